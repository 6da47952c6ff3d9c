"""Calls of torch that no mode, subclass or transform of the program's sees."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

_NOTHING: AbstractContextManager[object] = nullcontext()


class Unseen:
    """A context in which no mode and no subclass of the program's sees what we do."""

    __slots__ = ("_guards",)

    @staticmethod
    def _make() -> tuple[object, ...]:
        return torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction()

    def __enter__(self) -> None:
        guards: tuple[Any, ...] = self._make()
        for guard in guards:
            if hasattr(guard, "__enter__"):
                guard.__enter__()
        self._guards: tuple[Any, ...] = guards

    def __exit__(self, *exc_info: object) -> None:
        guards, self._guards = self._guards, ()
        for guard in reversed(guards):
            if hasattr(guard, "__exit__"):
                guard.__exit__(*exc_info)
        del guards, guard


def untransformed() -> AbstractContextManager[object]:
    """A context in which no transform of torch.func is at work: tensors are what they are."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return _NOTHING
    return temporarily_clear_interpreter_stack()

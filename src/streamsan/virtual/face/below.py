"""Running torch below everything that a program can put on top: modes, autograd, autocast."""

from __future__ import annotations

from typing import Any

import torch

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


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


class Below(Unseen):
    """A context in which operators go straight to their CPU kernels."""

    __slots__ = ()

    @staticmethod
    def _make() -> tuple[object, ...]:
        return (
            *Unseen._make(),
            torch._C._AutoDispatchBelowAutograd(),
            torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
        )

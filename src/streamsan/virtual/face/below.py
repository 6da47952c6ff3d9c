"""Running torch below everything that a program can put on top: modes, autograd, autocast."""

from __future__ import annotations

import torch

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Below:
    """A context in which operators go straight to their CPU kernels."""

    __slots__ = ("_guards",)

    def __enter__(self) -> None:
        guards = (
            torch._C._DisableTorchDispatch(),
            torch._C.DisableTorchFunction(),
            torch._C._AutoDispatchBelowAutograd(),
            torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
        )
        for guard in guards:
            if hasattr(guard, "__enter__"):
                guard.__enter__()
        self._guards: tuple[object, ...] = guards

    def __exit__(self, *exc_info: object) -> None:
        guards, self._guards = self._guards, ()
        for guard in reversed(guards):
            if hasattr(guard, "__exit__"):
                guard.__exit__(*exc_info)
        del guards, guard

"""Running torch below everything that a program can put on top: modes, autograd, autocast."""

from __future__ import annotations

import torch

from streamsan.autograd.unseen import Unseen

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


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

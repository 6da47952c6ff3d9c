"""Running torch below all that a program can put on top: modes, autograd, autocast, transforms."""

from __future__ import annotations

import torch

from streamsan.autograd.unseen import Unseen, untransformed

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Below(Unseen):
    """A context in which operators go straight to their CPU kernels.

    Deferred work of the machine may run whatever the thread that waits is in the middle of.
    """

    __slots__ = ()

    @staticmethod
    def _make() -> tuple[object, ...]:
        return (
            untransformed(),
            *Unseen._make(),
            torch._C._AutoDispatchBelowAutograd(),
            torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
        )

"""A process group's operators without a GPU: what torch calls back while each is issued.

The callbacks are those that torch 2.11 was seen to make on an H200, one process, backend NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.cuda import _gpu_trace as trace

NCCL = 0x3A2B
"""Handle of the group's own stream."""

SYNC, END, FUTURE = 0x4372, 0x4395, 0x49FB
"""Handles of events: before a collective, behind it, and of its future."""

ASYNC = (
    ("record", SYNC, 0),
    ("wait", SYNC, NCCL),
    ("record", END, NCCL),
    ("record", FUTURE, NCCL),
)
"""What happens inside of a collective that returns a handle."""

BLOCKING = (("record", END, 0), ("record", FUTURE, 0))
"""The same in the blocking form."""

COALESCED = (("record", SYNC, 0), ("wait", SYNC, NCCL), ("record", FUTURE, NCCL))
"""The same inside of a coalesced region, which records the end of all by itself."""

NATIVE = {"_cuda_getCurrentRawStream": lambda _: 0, "_cuda_getDevice": lambda: 0}
"""Functions of ``torch._C`` that a build without CUDA lacks."""

_REGISTRIES = {"record": trace.EventRecordCallbacks, "wait": trace.EventWaitCallbacks}


def fire(*happened: tuple[str, int, int]) -> None:
    """Call back as torch does."""
    for kind, event, stream in happened:
        _REGISTRIES[kind].fire_callbacks(event, stream)


@contextmanager
def restored_callbacks() -> Iterator[None]:
    """Forget the callbacks registered in here."""
    lists = [registry.callback_list for registry in _REGISTRIES.values()]
    kept = [list(callbacks) for callbacks in lists]
    yield
    for callbacks, before in zip(lists, kept):
        callbacks[:] = before


class Operator:
    """An operator of ``torch.ops.c10d`` that does nothing but what happens on a real GPU."""

    def __init__(self, name: str, happens: tuple[tuple[str, int, int], ...] = ASYNC) -> None:
        real: Any = getattr(torch.ops.c10d, name).default
        self._schema = real._schema
        self._happens = happens

    def __call__(self, *_: Any) -> str:
        """Issue the collective."""
        fire(*self._happens)
        return "result"


class Backend:
    """What is asked of a group's backend, or of one that was made by hand."""

    uid = 7
    bound_device_id = None
    options = SimpleNamespace(group_name="")

    def __init__(self, name: str, rank: int = 0) -> None:
        self._name = name
        self._rank = rank

    def rank(self) -> int:
        """This process's rank."""
        return self._rank

    def name(self) -> str:
        """The backend's name."""
        return self._name


class Group:
    """What is asked of a process group."""

    group_name = "0"
    group_desc = "default_pg"

    def __init__(self, backend: str = "nccl", rank: int = 0) -> None:
        self._backend = backend
        self._rank = rank

    def rank(self) -> int:
        """This process's rank."""
        return self._rank

    def _get_backend(self, device: torch.device) -> Backend:
        return Backend(self._backend if device.type == "cuda" else "gloo")


class Handle:
    """A handle that the program holds."""

"""Blocks of allocators that torch's GPU trace does not show: ``cudaMallocAsync``'s, the program's.

What they hand out is known from the tensors that show it, and lives as long as their storage.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from streamsan.record._observer import Observer
from streamsan.record.cuda._methods import listen

if TYPE_CHECKING:
    from streamsan.record._portable import Born
    from streamsan.record.cuda._recorder import CudaRecorder

_NAMES = {"cudaMallocAsync": "stream-ordered"}
"""torch's names of such allocators of its own, and the reports' (rule M4)."""

_UNKNOWN = "what orders the reuse of memory that an allocator of the program's own hands out"


class Untraced:
    """Follows storages where the allocator tells nothing.

    `allocator` is its name in reports; of an `unknown` one nobody but the program knows what it
    does with freed blocks. `gone` takes the address of a block, and the block, when its storage is
    no more.
    """

    def __init__(self, observer: Observer, backend: str, gone: Callable[[int, Born], None]) -> None:
        self._observer = observer
        self._gone = gone
        self.unknown = backend not in _NAMES
        self.allocator = _NAMES.get(backend, backend)
        if self.unknown:
            observer.note_once("blind-spot", _UNKNOWN)

    def follow(self, storage: torch.UntypedStorage, born: Born) -> None:
        """A storage shows a block that was not known."""
        address = storage.data_ptr()

        def tell() -> None:
            self._gone(address, born)

        weakref.finalize(storage, self._observer.monitor.later, tell).atexit = False


def install_untraced(recorder: CudaRecorder) -> None:
    """Follow storages where the allocator is such a one, and where the program changes to one."""

    def follow(*_: object) -> None:
        backend = torch.cuda.get_allocator_backend()
        blocks = recorder.blocks
        blocks.follow(
            None if backend == "native" else Untraced(recorder.observer, backend, blocks.vanished)
        )

    listen(recorder, torch._C, "_cuda_changeCurrentAllocator", follow)
    follow()

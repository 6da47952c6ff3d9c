"""What the parts of the CUDA recorder ask of torch and of the recorder, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._flags import NativeStreams
from streamsan.record.cuda._recorder import CudaRecorder


class Native(NativeStreams):
    """Streams by handle: (blocking, identity)."""

    def __init__(self) -> None:
        self.streams: dict[int, tuple[bool, int]] = {}
        self.green_context = 0

    def blocking(self, handle: int) -> bool | None:
        return self.streams[handle][0] if handle in self.streams else None

    def identity(self, handle: int) -> int | None:
        return self.streams[handle][1] if handle in self.streams else None

    def green(self, handle: int) -> int | None:
        return 0 if handle else self.green_context


class World:
    """A recorder that nothing is hooked to, one device, and the calling thread's current stream.

    `seen` are the records; `returned`, how often the allocator gave memory back to the driver.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[r.AnyRecord] = []
        self.stream = 0
        self.returned = 0
        self.backend = "native"
        self.native = Native()
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: self.backend)
        for name, answer in {
            "_cuda_getDevice": lambda: 0,
            "_cuda_getCurrentRawStream": lambda _: self.stream,
            "_cuda_memoryStats": lambda _: {"num_device_free": self.returned},
        }.items():
            monkeypatch.setattr(torch._C, name, answer, raising=False)
        self.observer = Observer()
        self.recorder = CudaRecorder(self.observer)
        self.streams, self.blocks = self.recorder.streams, self.recorder.blocks
        self.streams._native = self.native
        self.observer.begin(self.seen.append, r.Header("cuda", {}, (), {}), ())

    def of(self, kind: type[Any]) -> list[Any]:
        """The records of one kind."""
        return [record for record in self.seen if isinstance(record, kind)]

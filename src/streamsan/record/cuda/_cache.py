"""Memory that torch's allocator gives back to CUDA's driver, which joins the device (rule M3).

It does so when the program empties its cache, and by itself when memory is short, which nothing
tells of but a count in its statistics.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._methods import listen

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

PAGE = 21
"""Segments of torch's allocator start and end at multiples of 2 MiB."""

_UNCACHED = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")


class Cache:
    """The memory that torch's allocator has from the driver, by pages, with the streams it serves.

    A page serves one stream until it has gone back to the driver. So the statistics, which cost far
    more than a request, are only asked for where a page is new to a stream.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.owners: dict[int, int] = {}
        """By page: the stream it was last found to serve."""
        self._returned: dict[int, int] = {}
        self.uncached = any(os.environ.get(name) == "1" for name in _UNCACHED)
        """Whether each free is the driver's own, since torch was told to keep nothing."""

    def start(self) -> None:
        """What was given back by now is no news."""
        if torch.cuda.is_initialized():
            self._returned = {d: _returned(d) for d in range(torch.cuda.device_count())}

    def handed_out(self, address: int, device: int, owner: int) -> None:
        """A block at `address` is handed out for the stream `owner`."""
        page = address >> PAGE
        if self.owners.get(page) != owner:
            self.owners[page] = owner
            self.look(device)

    def look(self, device: int) -> None:
        """Tell where memory of a device has gone back since the last look."""
        returned = _returned(device)
        if returned > self._returned.get(device, 0):
            self.joined(device)
        self._returned[device] = returned

    def emptied(self, *_: object) -> None:
        """The program has emptied the cache."""
        backend = torch.cuda.get_allocator_backend()
        # cudaMallocAsync's waits for the devices by itself, whatever it gives back
        tell = {"native": self.look, "cudaMallocAsync": self.joined}.get(backend)
        if tell is not None and torch.cuda.is_initialized():
            for device in range(torch.cuda.device_count()):
                tell(device)

    def joined(self, device: int) -> None:
        """Rule M3: the calling thread comes after all work of the device."""
        observer = self._observer
        observer.emit(r.DeviceSync(device, observer.thread(), observer.stack(), "M3"))


def _returned(device: int) -> int:
    """How often torch's allocator has given memory of a device back."""
    return int(torch._C._cuda_memoryStats(device).get("num_device_free", 0))


def install_cache(recorder: CudaRecorder) -> Cache:
    """Listen to what empties torch's cache, for the rest of the process."""
    cache = recorder.cache
    cache.start()
    for name in ("_cuda_emptyCache", "_accelerator_emptyCache"):
        listen(recorder, torch._C, name, cache.emptied)
    return cache

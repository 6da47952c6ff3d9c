"""``torch.cuda.MemPool``: memory that serves only what is asked for in its name."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from streamsan.virtual.face import current
from streamsan.virtual.face.graphs import Pool, graph_pool_handle
from streamsan.virtual.gpu import Gpu


class MemPool:
    """A pool of its own in the caching allocator, which graphs may share.

    Raises NotImplementedError for one with an allocator of the program's.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None or use_on_oom or no_split:
            raise NotImplementedError(
                "torch.cuda.MemPool with an allocator or other options is not covered by"
                " StreamSan's virtual GPU (docs/virtual_gpu.md lists what is)"
            )
        gpu = current.face().gpu
        self._id = graph_pool_handle()
        with gpu.monitor:
            for device in gpu.devices:
                device.allocator.retain_pool(self._id[1])
        weakref.finalize(self, _dropped, gpu, self._id[1]).atexit = False

    @property
    def id(self) -> Pool:
        """The pool's handle."""
        return self._id

    @property
    def allocator(self) -> None:
        """No allocator of the program's."""
        return None

    def use_count(self) -> int:
        """How many hold the pool: this object, and the calling thread while it requests from it."""
        used = self._id[1] in current.face().gpu.requests.pools.values()
        return 1 + used

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments, as `torch.cuda.memory_snapshot` describes them."""
        return [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == self._id]


def _dropped(gpu: Gpu, pool: int) -> None:
    """A pool is gone: what is free of it goes back with the next `empty_cache` or shortage."""

    def release() -> None:
        for device in gpu.devices:
            device.allocator.release_pool(pool)

    gpu.monitor.later(release)


@contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """Let the calling thread's requests of a device come from a pool."""
    face = current.face()
    pools, index = face.gpu.requests.pools, face.device_index(device)
    outer = pools.get(index, 0)
    pools[index] = pool.id[1]
    try:
        yield
    finally:
        pools[index] = outer

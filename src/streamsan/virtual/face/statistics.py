"""Memory figures of the virtual machine, as the functions below ``torch.cuda.memory`` give them.

torch's own Python functions (``memory_stats``, ``memory_summary`` and so on) stand on these names
of ``torch._C``, which a CPU build lacks.
"""

from __future__ import annotations

from typing import Any

from streamsan.allocator import SegmentInfo, Statistics
from streamsan.virtual.devices import Device
from streamsan.virtual.face import current

NEVER = ("oversize_allocations", "oversize_segments")
"""Figures that need a limit on splitting, which the virtual machine's allocator has not."""


def _device(device: Any = None) -> Device:
    face = current.face()
    return face.gpu.devices[face.device_index(device)]


def memory_stats(device: Any = None) -> dict[str, Any]:
    """All figures of a device's allocator, nested as torch has them."""
    with current.face().gpu.monitor:
        return nested(_device(device).allocator.stats())


def nested(stats: Statistics) -> dict[str, Any]:
    """Figures of one of our allocators, nested as torch has them."""
    zero = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return {
        **stats.nested(),
        **stats.counters(),
        **{name: dict(zero) for name in NEVER},
        "max_split_size": -1,
        "num_sync_all_streams": 0,
    }


def host_memory_stats() -> dict[str, Any]:
    """The figures of pinned memory."""
    gpu = current.face().gpu
    with gpu.monitor:
        nested, counters = gpu.pinned.stats().nested(), gpu.pinned.stats().counters()
    names = {
        "allocations": "segment", "allocated_bytes": "reserved_bytes",
        "active_requests": "active", "active_bytes": "active_bytes",
    }  # fmt: skip
    return {
        **{name: nested[ours]["all"] for name, ours in names.items()},
        "num_host_alloc": counters["num_device_alloc"],
        "num_host_free": counters["num_device_free"],
    }


def reset_peak(device: Any = None) -> None:
    """Start the peaks over at the current figures."""
    with current.face().gpu.monitor:
        _device(device).allocator.reset_peak()


def reset_accumulated(device: Any = None) -> None:
    """Start the sums over at zero."""
    with current.face().gpu.monitor:
        _device(device).allocator.reset_accumulated()


def _reset_host_peak() -> None:
    with current.face().gpu.monitor:
        current.face().gpu.pinned.reset_peak()


def _reset_host_accumulated() -> None:
    with current.face().gpu.monitor:
        current.face().gpu.pinned.reset_accumulated()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes."""
    with current.face().gpu.monitor:
        chosen = _device(device)
        return chosen.segments.memory.free, chosen.total


def set_fraction(fraction: float, device: Any = None) -> None:
    """Limit a device's allocator to a part of its memory."""
    with current.face().gpu.monitor:
        chosen = _device(device)
        chosen.allocator.capacity = int(chosen.total * fraction)


def get_fraction(device: Any = None) -> float:
    """The part of a device's memory that its allocator may take."""
    chosen = _device(device)
    return chosen.allocator.capacity / chosen.total


def empty_cache() -> None:
    """Give cached memory back (M3)."""
    current.face().gpu.empty_cache()


def empty_host_cache() -> None:
    """Give cached pinned memory back."""
    with current.face().gpu.monitor:
        current.face().gpu.pinned.empty_cache()


def snapshot(*_: Any) -> dict[str, Any]:
    """All segments of all devices; no history of them is kept."""
    gpu = current.face().gpu
    segments: list[dict[str, Any]] = []
    with gpu.monitor:
        for device in gpu.devices:
            for found in device.allocator.snapshot():
                handle = gpu.numbered[found["stream"]].handle
                segments.append(segment(found, device.index, handle))
    return whole(segments, len(gpu.devices))


def segment(found: SegmentInfo, device: int, stream: int) -> dict[str, Any]:
    """A segment of one of our allocators, with the native handle of its `stream`, as torch's."""
    blocks = [{**block, "frames": []} for block in found["blocks"]]
    extra = {"device": device, "is_expandable": False, "frames": []}
    return {**found, **extra, "stream": stream, "blocks": blocks}


def whole(segments: list[dict[str, Any]], devices: int) -> dict[str, Any]:
    """A snapshot with these segments and without a history."""
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(devices)],
        "allocator_settings": {},
        "external_annotations": [],
    }


def raw_alloc(size: int, stream: int) -> int:
    """Address of a block that only `raw_delete` frees."""
    gpu = current.face().gpu
    device = gpu.thread.device
    with gpu.monitor:
        return gpu.allocate(device, size, gpu.external_stream(device, stream)).block.address


def raw_delete(address: int) -> None:
    """Free a block of `raw_alloc`."""
    gpu = current.face().gpu
    with gpu.monitor:
        live = gpu.live.get(address)
        if live is None:
            raise RuntimeError(f"invalid device pointer: {address:#x}")
        gpu.drop(live)


def backend() -> str:
    """What ``torch.cuda.get_allocator_backend`` calls the allocator."""
    return "cudaMallocAsync" if _device().allocator.name == "stream-ordered" else "native"


def native() -> dict[str, Any]:
    """Names of ``torch._C`` and what stands for them."""
    return {
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
        "_cuda_hostMemoryStats": host_memory_stats,
        "_cuda_resetPeakHostMemoryStats": _reset_host_peak,
        "_cuda_resetAccumulatedHostMemoryStats": _reset_host_accumulated,
        "_cuda_setMemoryFraction": set_fraction,
        "_cuda_getMemoryFraction": get_fraction,
        "_cuda_emptyCache": empty_cache,
        "_host_emptyCache": empty_host_cache,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_cudaCachingAllocator_raw_alloc": raw_alloc,
        "_cuda_cudaCachingAllocator_raw_delete": raw_delete,
        "_cuda_getAllocatorBackend": backend,
    }

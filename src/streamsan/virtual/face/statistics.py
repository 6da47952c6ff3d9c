"""``torch.cuda`` memory figures of the virtual machine."""

from __future__ import annotations

from typing import Any

from streamsan.allocator.statistics import Statistics
from streamsan.virtual.face import current


def _stats(device: Any = None) -> Statistics:
    face = current.face()
    return face.gpu.devices[face.device_index(device)].allocator.stats()


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Figures under torch's names (``allocated_bytes.all.current`` and so on)."""
    stats = _stats(device)
    found: dict[str, Any] = {}
    for name, figure in stats.figures().items():
        for part in ("current", "peak", "allocated", "freed"):
            found[f"{name}.all.{part}"] = getattr(figure, part)
    found["num_alloc_retries"] = stats.num_alloc_retries
    found["num_ooms"] = stats.num_ooms
    return found


def _reset_peak(device: Any = None) -> None:
    face = current.face()
    with face.gpu.monitor:
        face.gpu.devices[face.device_index(device)].allocator.reset_peak()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes."""
    face = current.face()
    index = face.device_index(device)
    total = face.gpu.memory.devices[index].size
    return total - _stats(index).reserved_bytes.current, total


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures as a small table."""
    rows = [
        f"  {name:<20} {figure.current:>16,} {figure.peak:>16,}"
        for name, figure in _stats(device).figures().items()
    ]
    head = f"  {'virtual GPU memory':<20} {'current':>16} {'peak':>16}"
    return "\n".join([head, *rows])


def empty_cache() -> None:
    """Give cached memory back (M3)."""
    current.face().gpu.empty_cache()


def memory_snapshot(*_: Any, **__: Any) -> list[Any]:
    """All segments of all devices."""
    face = current.face()
    with face.gpu.monitor:
        return [
            {"device": device.index, **segment}
            for device in face.gpu.devices
            for segment in device.allocator.snapshot()
        ]


def functions() -> dict[str, Any]:
    """Names of ``torch.cuda.memory`` and what stands for them."""
    return {
        "empty_cache": empty_cache,
        "memory_allocated": lambda device=None: _stats(device).allocated_bytes.current,
        "max_memory_allocated": lambda device=None: _stats(device).allocated_bytes.peak,
        "memory_reserved": lambda device=None: _stats(device).reserved_bytes.current,
        "max_memory_reserved": lambda device=None: _stats(device).reserved_bytes.peak,
        "memory_cached": lambda device=None: _stats(device).reserved_bytes.current,
        "max_memory_cached": lambda device=None: _stats(device).reserved_bytes.peak,
        "memory_stats": memory_stats,
        "memory_stats_as_nested_dict": memory_stats,
        "reset_peak_memory_stats": _reset_peak,
        "reset_max_memory_allocated": _reset_peak,
        "reset_max_memory_cached": _reset_peak,
        "reset_accumulated_memory_stats": lambda device=None: None,
        "mem_get_info": mem_get_info,
        "memory_summary": memory_summary,
        "memory_snapshot": memory_snapshot,
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        "get_allocator_backend": lambda: "native",
    }

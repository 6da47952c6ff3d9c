"""What the virtual devices say of themselves."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import torch

from streamsan.virtual.face import current

CAPABILITY = (9, 0)
"""Compute capability that the virtual devices report: a recent one, so that scripts take the paths
they would take on a current GPU."""

NAME = "StreamSan virtual GPU"

_SHOWN = (
    "name", "major", "minor", "total_memory", "multi_processor_count", "uuid", "pci_bus_id",
    "pci_device_id", "pci_domain_id", "L2_cache_size",
)  # fmt: skip
_FIXED: dict[str, Any] = {
    "name": NAME, "major": CAPABILITY[0], "minor": CAPABILITY[1], "multi_processor_count": 132,
    "warp_size": 32, "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024,
    "regs_per_multiprocessor": 65536, "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448, "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 50 << 20, "is_integrated": 0, "is_multi_gpu_board": 0, "gcnArchName": NAME,
    "clock_rate": 1_980_000, "memory_clock_rate": 2_619_000, "memory_bus_width": 5120,
    "pci_device_id": 0, "pci_domain_id": 0,
}  # fmt: skip


class Properties(SimpleNamespace):
    """``torch.cuda.get_device_properties``: the figures of a recent GPU, and this one's memory."""

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in _SHOWN}
        for name in ("total_memory", "L2_cache_size"):
            shown[name] = f"{shown[name] >> 20}MB"
        text = ", ".join(
            f"{name}='{value}'" if name == "name" else f"{name}={value}"
            for name, value in shown.items()
        )
        return f"_CudaDeviceProperties({text})"


def of(device: Any = None) -> Properties:
    """The properties of a device. Raises AssertionError where there is none, as torch does."""
    face = current.face()
    index = torch.cuda._utils._get_device_index(device, optional=True)
    if not 0 <= index < len(face.gpu.devices):
        raise AssertionError("Invalid device id")
    return Properties(
        **_FIXED,
        total_memory=face.gpu.devices[index].total,
        pci_bus_id=index,
        uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"streamsan:{index}"),
    )

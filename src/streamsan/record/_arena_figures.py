"""What ``torch.cuda`` answers where its allocator is one of ours.

torch has no figures of a foreign allocator and raises where a program asks for them, as most
training scripts do: these functions of ``torch._C`` answer instead, in the form of torch's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamsan.allocator import Allocator, CaptureRefused
from streamsan.virtual.face import statistics

if TYPE_CHECKING:
    from streamsan.record._arena import Arena


class Figures:
    """The functions, for the devices of an arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def install(self) -> None:
        """Put them in the place of torch's, for the rest of the process."""
        names = {
            "_cuda_memoryStats": self.stats,
            "_cuda_resetPeakMemoryStats": self.reset_peak,
            "_cuda_resetAccumulatedMemoryStats": self.reset_accumulated,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_getMemoryFraction": self.get_fraction,
            "_cuda_memorySnapshot": self.snapshot,
            "_cuda_record_memory_history": lambda *_, **__: None,
            "_cuda_attach_out_of_memory_observer": lambda observer: None,
            "_accelerator_isAllocatorInitialized": lambda: True,
            "_accelerator_getDeviceStats": self.stats,
            "_accelerator_resetPeakStats": self.reset_peak,
            "_accelerator_resetAccumulatedStats": self.reset_accumulated,
        }
        for name, function in names.items():
            if hasattr(torch._C, name):
                setattr(torch._C, name, function)

    def _allocator(self, device: int) -> Allocator:
        return self._arena.device(device).allocator

    def stats(self, device: int) -> dict[str, Any]:
        """All figures of a device."""
        with self._arena.observer.monitor:
            return statistics.nested(self._allocator(device).stats())

    def reset_peak(self, device: int) -> None:
        """Start all peaks over at the current figures."""
        with self._arena.observer.monitor:
            self._allocator(device).reset_peak()

    def reset_accumulated(self, device: int) -> None:
        """Start the sums and the counters over at zero."""
        with self._arena.observer.monitor:
            self._allocator(device).reset_accumulated()

    def set_fraction(self, fraction: float, device: int) -> None:
        """Limit a device's allocator to a part of its memory."""
        with self._arena.observer.monitor:
            chosen = self._arena.device(device)
            chosen.allocator.capacity = int(chosen.total * fraction)

    def get_fraction(self, device: int) -> float:
        """The part of a device's memory that its allocator may take."""
        with self._arena.observer.monitor:
            chosen = self._arena.device(device)
        return chosen.allocator.capacity / chosen.total

    def snapshot(self, *_: Any, **__: Any) -> dict[str, Any]:
        """All segments of all devices in use; no history of them is kept."""
        with self._arena.observer.monitor:
            segments = [
                statistics.segment(found, index, found["stream"])
                for index, device in self._arena.devices.items()
                for found in device.allocator.snapshot()
            ]
        return statistics.whole(segments, torch.cuda.device_count())


def refuse_captures(arena: Arena) -> None:
    """Rule G3: a graph needs memory of its own, which none of these allocators has here."""

    def capture_begin(*_: Any, **__: Any) -> None:
        raise CaptureRefused(arena.name)

    torch.cuda.CUDAGraph.capture_begin = capture_begin  # type: ignore[method-assign]


def install_figures(arena: Arena) -> None:
    """Let ``torch.cuda`` answer for an arena."""
    Figures(arena).install()
    refuse_captures(arena)

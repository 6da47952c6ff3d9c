"""Figures of an allocator, under the names ``torch.cuda.memory_stats`` uses."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field


class Figure:
    """A quantity that goes up and down: `current`, `peak`, and the sums `allocated` and `freed`."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = 0
        self.peak = 0
        self.allocated = 0
        self.freed = 0

    def add(self, amount: int) -> None:
        """Go up."""
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def subtract(self, amount: int) -> None:
        """Go down."""
        self.current -= amount
        self.freed += amount


class Total(Figure):
    """A figure of all blocks, and the same of those in `small` and in `large` segments."""

    __slots__ = ("large", "small")

    def __init__(self) -> None:
        super().__init__()
        self.small = Figure()
        self.large = Figure()

    # Written out, not made of calls of the parts' methods: each block that comes or goes changes
    # five figures and more.

    def add(self, amount: int, small: bool = False) -> None:
        """Go up, or down by a negative amount; in segments of one of the two sorts."""
        if amount < 0:
            self.subtract(-amount, small)
            return
        self.allocated += amount
        self.current = current = self.current + amount
        if current > self.peak:
            self.peak = current
        part = self.small if small else self.large
        part.allocated += amount
        part.current = current = part.current + amount
        if current > part.peak:
            part.peak = current

    def subtract(self, amount: int, small: bool = False) -> None:
        """Go down, in segments of one of the two sorts."""
        if amount < 0:
            self.add(-amount, small)
            return
        self.freed += amount
        self.current -= amount
        part = self.small if small else self.large
        part.freed += amount
        part.current -= amount


@dataclass(slots=True)
class Statistics:
    """The figures of one allocator.

    Counts: `allocation` (live blocks), `active` (live, or freed and held back by events),
    `segment` and `inactive_split` (free blocks that are parts of a segment). Bytes: the same as
    `allocated_bytes`, `active_bytes`, `reserved_bytes` and `inactive_split_bytes`, and
    `requested_bytes` before rounding (of active blocks).
    """

    allocation: Total = field(default_factory=Total)
    active: Total = field(default_factory=Total)
    segment: Total = field(default_factory=Total)
    inactive_split: Total = field(default_factory=Total)
    allocated_bytes: Total = field(default_factory=Total)
    active_bytes: Total = field(default_factory=Total)
    reserved_bytes: Total = field(default_factory=Total)
    inactive_split_bytes: Total = field(default_factory=Total)
    requested_bytes: Total = field(default_factory=Total)
    num_alloc_retries: int = 0
    num_ooms: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0

    def copy(self) -> Statistics:
        """Make a copy that stays as it is."""
        return copy.deepcopy(self)

    def figures(self) -> dict[str, Total]:
        """Map names to figures, without the plain counters."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if isinstance(value, Total)}

    def counters(self) -> dict[str, int]:
        """Map names to the plain counters."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if isinstance(value, int)}

    def _parts(self) -> list[Figure]:
        totals = self.figures().values()
        return [part for total in totals for part in (total, total.small, total.large)]

    def reset_peak(self) -> None:
        """Start all peaks over at the current figures."""
        for figure in self._parts():
            figure.peak = figure.current

    def reset_accumulated(self) -> None:
        """Start the sums and the counters over at zero."""
        for figure in self._parts():
            figure.allocated = figure.freed = 0
        for name in self.counters():
            setattr(self, name, 0)

    def nested(self) -> dict[str, dict[str, dict[str, int]]]:
        """Map names, pools and parts to numbers, as ``torch.cuda`` has them before it flattens."""

        def parts(figure: Figure) -> dict[str, int]:
            return {part: getattr(figure, part) for part in Figure.__slots__}

        return {
            name: {
                "all": parts(total),
                "small_pool": parts(total.small),
                "large_pool": parts(total.large),
            }
            for name, total in self.figures().items()
        }

    def flat(self) -> dict[str, int]:
        """Map keys such as ``allocated_bytes.all.current``, as ``torch.cuda.memory_stats`` does."""
        flat = self.counters()
        for name, pools in self.nested().items():
            for pool, parts in pools.items():
                flat.update((f"{name}.{pool}.{part}", value) for part, value in parts.items())
        return flat

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


@dataclass(slots=True)
class Statistics:
    """The figures of one allocator.

    Counts: `allocation` (live blocks), `active` (live, or freed and held back by events) and
    `segment`. Bytes: the same as `allocated_bytes`, `active_bytes` and `reserved_bytes`, and
    `requested_bytes` before rounding (of active blocks).
    """

    allocation: Figure = field(default_factory=Figure)
    active: Figure = field(default_factory=Figure)
    segment: Figure = field(default_factory=Figure)
    allocated_bytes: Figure = field(default_factory=Figure)
    active_bytes: Figure = field(default_factory=Figure)
    reserved_bytes: Figure = field(default_factory=Figure)
    requested_bytes: Figure = field(default_factory=Figure)
    num_alloc_retries: int = 0
    num_ooms: int = 0

    def copy(self) -> Statistics:
        """Make a copy that stays as it is."""
        return copy.deepcopy(self)

    def figures(self) -> dict[str, Figure]:
        """Map names to figures, without the plain counters."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if isinstance(value, Figure)}

    def reset_peak(self) -> None:
        """Start all peaks over at the current figures."""
        for figure in self.figures().values():
            figure.peak = figure.current

    def flat(self) -> dict[str, int]:
        """Map keys such as ``allocated_bytes.all.current``, as ``torch.cuda.memory_stats`` does."""
        flat = {"num_alloc_retries": self.num_alloc_retries, "num_ooms": self.num_ooms}
        for name, figure in self.figures().items():
            for part in ("current", "peak", "allocated", "freed"):
                flat[f"{name}.all.{part}"] = getattr(figure, part)
        return flat

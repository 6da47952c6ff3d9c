"""What allocators have in common: marks of streams, figures, and a list of their segments."""

from __future__ import annotations

from streamsan.allocator._segments import describe
from streamsan.allocator.contract import Block, SegmentInfo
from streamsan.allocator.statistics import Statistics


class Accounted:
    """Segments by address, each as its first block, with the figures of an allocator."""

    def __init__(self) -> None:
        self._segments: dict[int, Block] = {}
        self._stats = Statistics()

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that `stream` uses `block` as well as its owner (rule M2).

        The owner itself needs no note. Raises ValueError where the block is not live.
        """
        if not block.allocated:
            raise ValueError(f"not a live block: {block!r}")
        if stream != block.stream and stream not in block.users:
            block.users.append(stream)

    def stats(self) -> Statistics:
        """Copy the figures as of now."""
        return self._stats.copy()

    def reset_peak(self) -> None:
        """Start all peaks over at the current figures."""
        self._stats.reset_peak()

    def reset_accumulated(self) -> None:
        """Start the sums and the counters over at zero."""
        self._stats.reset_accumulated()

    def snapshot(self) -> list[SegmentInfo]:
        """List all segments by address, each with its blocks."""
        return [describe(self._segments[address]) for address in sorted(self._segments)]

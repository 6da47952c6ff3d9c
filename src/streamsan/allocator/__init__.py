"""Allocators: who gets which address, and when a freed block may be handed out again.

Pure Python, without a framework: `CachingAllocator` decides as PyTorch's allocator of device
memory does, `PinnedAllocator` as its allocator of pinned host memory. Both are an `Allocator`
over a `Driver` (where segments come from) and `Events` (how far a stream has come).
"""

from __future__ import annotations

from streamsan.allocator.caching import CachingAllocator
from streamsan.allocator.contract import (
    Allocator,
    Block,
    BlockInfo,
    Driver,
    Events,
    OutOfMemory,
    SegmentInfo,
)
from streamsan.allocator.pinned import PinnedAllocator
from streamsan.allocator.statistics import Figure, Statistics

__all__ = [
    "Allocator",
    "Block",
    "BlockInfo",
    "CachingAllocator",
    "Driver",
    "Events",
    "Figure",
    "OutOfMemory",
    "PinnedAllocator",
    "SegmentInfo",
    "Statistics",
]

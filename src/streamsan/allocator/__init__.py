"""Allocators: who gets which address, and when a freed block may be handed out again.

Pure Python, without a framework. For device memory: `CachingAllocator` decides as PyTorch's
does, `BfcAllocator` as the arena of TensorFlow and XLA with one of four deallocation policies,
`StreamOrderedAllocator` as ``cudaMallocAsync``; `QuarantineAllocator` is for debugging. All are an
`Allocator` over a `Driver` (where segments come from) and the `Streams` of one device;
`parse_allocator` and `make_allocator` know them by name. `PinnedAllocator` is PyTorch's for pinned
host memory.
"""

from __future__ import annotations

from streamsan.allocator.bfc import BfcAllocator, BinInfo
from streamsan.allocator.caching import CachingAllocator
from streamsan.allocator.choice import DEFAULT, NAMES, make_allocator, parse_allocator
from streamsan.allocator.contract import (
    Allocator,
    Block,
    BlockInfo,
    CaptureRefused,
    Driver,
    Events,
    OutOfMemory,
    SegmentInfo,
    Streams,
)
from streamsan.allocator.pinned import PinnedAllocator
from streamsan.allocator.policies import Async, Event, Frontier, HostSync, Policy
from streamsan.allocator.quarantine import QuarantineAllocator
from streamsan.allocator.statistics import Figure, Statistics
from streamsan.allocator.stream_ordered import StreamOrderedAllocator

__all__ = [
    "DEFAULT",
    "NAMES",
    "Allocator",
    "Async",
    "BfcAllocator",
    "BinInfo",
    "Block",
    "BlockInfo",
    "CachingAllocator",
    "CaptureRefused",
    "Driver",
    "Event",
    "Events",
    "Figure",
    "Frontier",
    "HostSync",
    "OutOfMemory",
    "PinnedAllocator",
    "Policy",
    "QuarantineAllocator",
    "SegmentInfo",
    "Statistics",
    "StreamOrderedAllocator",
    "Streams",
    "make_allocator",
    "parse_allocator",
]

"""The allocators of device memory by name: what ``--allocator NAME[:POLICY]`` means."""

from __future__ import annotations

from collections.abc import Callable

from streamsan.allocator.bfc import BfcAllocator
from streamsan.allocator.caching import CachingAllocator
from streamsan.allocator.contract import Allocator, Driver, Streams
from streamsan.allocator.policies import Async, Event, Frontier, HostSync, Policy
from streamsan.allocator.quarantine import QuarantineAllocator
from streamsan.allocator.stream_ordered import StreamOrderedAllocator
from streamsan.errors import UsageError

Maker = Callable[[Driver, Streams, int], Allocator]


def _bfc(policy: Callable[[Streams], Policy]) -> Maker:
    def make(driver: Driver, streams: Streams, capacity: int) -> Allocator:
        return BfcAllocator(driver, streams, capacity, policy(streams))

    return make


_MAKERS: dict[str, Maker] = {
    "caching": CachingAllocator,
    "bfc:async": _bfc(lambda _: Async()),
    "bfc:host-sync": _bfc(HostSync),
    "bfc:frontier": _bfc(Frontier),
    "bfc:event": _bfc(Event),
    "stream-ordered": StreamOrderedAllocator,
    "quarantine": QuarantineAllocator,
}

NAMES = tuple(_MAKERS)
"""All names, each with its policy where there are several."""

DEFAULT = "caching"

BFC = "bfc:async"
"""What ``bfc`` without a policy means: the behaviour of the report."""


def parse_allocator(text: str) -> str:
    """The full name of the allocator that `text` names. Raises UsageError where there is none."""
    name = BFC if text == "bfc" else text
    if name not in _MAKERS:
        raise UsageError(f"there is no allocator {text!r}: choose from {', '.join(NAMES)}")
    return name


def make_allocator(name: str, driver: Driver, streams: Streams, capacity: int) -> Allocator:
    """The allocator of one device: `name` is one of `NAMES`, `capacity` its limit in bytes."""
    return _MAKERS[name](driver, streams, capacity)

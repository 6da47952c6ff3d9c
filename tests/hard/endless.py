"""Programs that go on for ever, as the records they leave; each is a generator without an end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle

from streamsan.model import records as r

Run = Iterator[r.AnyRecord]
MAIN = 0
SIZE = 4096


def opening(streams: int) -> Run:
    """One host thread, number 0, and `streams` streams from number 1 on."""
    yield r.Header("virtual", {}, (), {})
    yield r.ThreadDef(MAIN, "MainThread", r.NONE, r.NONE)
    yield r.SiteDef(0, "train.py", 1, "main", True, "", "")
    yield r.StackDef(0, (0,))
    for stream in range(1, streams + 1):
        yield r.StreamDef(stream, 0, stream, False, False, f"s{stream}", r.NONE)


def touch(seq: int, stream: int, address: int, size: int, mode: int = 1) -> r.Operation:
    """A kernel of one dense access."""
    return r.Operation(
        seq, 0, "kernel", stream, MAIN, 0, (r.Access(0, address, size, (), (), mode, "x"),)
    )


def ring_of_streams(streams: int = 1000) -> Run:
    """Each stream waits for the one before and updates a buffer that goes round."""
    yield from opening(streams)
    order = cycle(range(1, streams + 1))
    before = next(order)
    for seq in count(1):
        stream = next(order)
        yield touch(seq, before, 0, SIZE, 3)
        yield r.EventRecord(before, before, MAIN, 0)
        yield r.EventWait(before, stream, MAIN, 0)
        before = stream


def live_blocks(blocks: int = 100_000) -> Run:
    """So many blocks live, each freed and handed out again in its turn; no synchronisation."""
    yield from opening(1)
    held: list[int] = []
    for number in range(blocks):
        held.append(number)
        yield r.Alloc(number, 0, number * SIZE, SIZE, 1, MAIN, 0, "caching")
    for number in count(blocks):
        slot = number % blocks
        yield touch(number, 1, slot * SIZE, SIZE, 2)
        yield r.Free(held[slot], MAIN, 0)
        held[slot] = number
        yield r.Alloc(number, 0, slot * SIZE, SIZE, 1, MAIN, 0, "caching")


def constant() -> Run:
    """Eight streams read one block, and nothing ever waits."""
    yield from opening(8)
    yield r.Alloc(0, 0, 0, SIZE, 1, MAIN, 0, "caching")
    for seq in count(1):
        yield touch(seq, 1 + seq % 8, 0, SIZE)


def single_bytes() -> Run:
    """One byte after the other of a large block, written by one stream that nobody waits for."""
    yield from opening(1)
    yield r.Alloc(0, 0, 0, 1 << 30, 1, MAIN, 0, "caching")
    for seq in count(1):
        yield touch(seq, 1, 2 * seq % (1 << 30), 1, 2)


def scattered_bytes() -> Run:
    """The same in memory that no allocator ever told of."""
    yield from opening(1)
    for seq in count(1):
        yield touch(seq, 1, 2 * seq, 1, 2)


def strided_views() -> Run:
    """Columns of a large matrix, each once, by two streams in turn; and no two overlap."""
    yield from opening(2)
    yield r.Alloc(0, 0, 0, 1 << 30, 1, MAIN, 0, "caching")
    for seq in count(1):
        access = r.Access(0, seq % 100_000, 1, (100,), (100_000,), 2, "x")
        yield r.Operation(seq, 0, "kernel", 1 + seq % 2, MAIN, 0, (access,))


def one_event() -> Run:
    """One event, recorded on two streams in turn and waited for by a third."""
    yield from opening(3)
    for seq in count(1):
        yield touch(seq, 1 + seq % 2, 0, SIZE)
        yield r.EventRecord(7, 1 + seq % 2, MAIN, 0)
        yield r.EventWait(7, 3, MAIN, 0)


def new_events() -> Run:
    """An event for each hand-over, destroyed behind it."""
    yield from opening(2)
    for seq in count(1):
        yield touch(seq, 1, 0, SIZE, 2)
        yield r.EventRecord(seq, 1, MAIN, 0)
        yield r.EventWait(seq, 2, MAIN, 0)
        yield touch(seq, 2, 0, SIZE)
        yield r.EventRecord(-seq, 2, MAIN, 0)
        yield r.EventWait(-seq, 1, MAIN, 0)
        yield r.EventDestroy(seq, MAIN)
        yield r.EventDestroy(-seq, MAIN)


def kept_events() -> Run:
    """An event for each hand-over, and none is ever destroyed; the host waits now and then."""
    yield from opening(40)
    for seq in count(1):
        stream = 1 + seq % 40
        yield touch(seq, stream, stream * SIZE, SIZE, 2)
        yield r.EventRecord(seq, stream, MAIN, 0)
        yield r.EventWait(seq, 1 + (seq + 1) % 40, MAIN, 0)
        if seq % 20 == 0:
            yield r.DeviceSync(0, MAIN, 0)


def threads_that_come_and_go(joined: bool = True) -> Run:
    """A thread for each batch: it fills pinned memory and uploads it, and is joined."""
    yield from opening(1)
    for seq in count(1):
        thread = 1 + seq
        yield r.ThreadDef(thread, f"Thread-{thread}", MAIN, 0)
        host = r.Access(r.HOST, 0, SIZE, (), (), 2, "x")
        if joined:
            yield r.Operation(seq, int(r.OpKind.HOST), "fill", thread, thread, 0, (host,))
        yield touch(seq, 1, 0, SIZE, 2)
        yield r.HostRelease(thread, thread)
        yield r.ThreadEnd(thread)
        if joined:
            yield r.HostAcquire(thread, MAIN)


def threads_of_one_block() -> Run:
    """A thread for each batch, which launches on a block that lives on, and is joined."""
    yield from opening(1)
    yield r.Alloc(0, 0, 0, SIZE, 1, MAIN, 0, "caching")
    for seq in count(1):
        thread = 1 + seq
        yield r.ThreadDef(thread, f"Thread-{thread}", MAIN, 0)
        yield r.Operation(seq, 0, "kernel", 1, thread, 0, (r.Access(0, 0, SIZE, (), (), 2, "x"),))
        yield r.HostRelease(thread, thread)
        yield r.ThreadEnd(thread)
        yield r.HostAcquire(thread, MAIN)


def threads_never_joined() -> Run:
    """The same threads without host accesses, and nobody waits for their end."""
    yield from threads_that_come_and_go(joined=False)


def futures(idle: bool = False) -> Run:
    """A worker answers through a new future each time; `idle`: a third thread follows nothing."""
    yield from opening(1)
    yield r.ThreadDef(5, "worker", MAIN, 0)
    if idle:
        yield r.ThreadDef(6, "idle", MAIN, 0)
    for seq in count(1):
        yield r.HostRelease(2 * seq, MAIN)
        yield r.HostAcquire(2 * seq, 5)
        yield r.Operation(seq, 0, "kernel", 1, 5, 0, ())
        yield r.HostRelease(2 * seq + 1, 5)
        yield r.HostAcquire(2 * seq + 1, MAIN)


def graphs() -> Run:
    """A graph is captured, launched and destroyed, over and over."""
    yield from opening(1)
    for graph in count(1):
        work = touch(graph, 1, 0, SIZE, 2)
        yield r.Operation(graph, 0, "kernel", 1, MAIN, 0, work.accesses, graph=graph, captured=True)
        yield r.Operation(
            graph, int(r.OpKind.GRAPH_LAUNCH), "launch", 1, MAIN, 0, work.accesses, graph=graph
        )
        yield r.GraphDestroy(graph, MAIN)


def many_tensors() -> Run:
    """Operators of 5,000 tensors each."""
    yield from opening(1)
    accesses = tuple(r.Access(0, n * SIZE, SIZE, (), (), 3, "x") for n in range(5000))
    for seq in count(1):
        yield r.Operation(seq, 0, "foreach_add_", 1, MAIN, 0, accesses)


def many_stacks(depth: int = 900) -> Run:
    """A recursion that launches at each depth."""
    yield from opening(1)
    for line in range(depth):
        yield r.SiteDef(1 + line, "deep.py", line, "down", True, "", "")
        yield r.StackDef(1 + line, tuple(range(line, max(0, line - 100), -1)))
    for seq in count(1):
        access = r.Access(0, 0, SIZE, (), (), 1 + seq % 2, "x")
        yield r.Operation(seq, 0, "kernel", 1, MAIN, 1 + seq % depth, (access,))

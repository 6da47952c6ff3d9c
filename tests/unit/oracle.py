"""A naive race detector, to hold the real one against: an explicit graph, and every byte's history.

It knows every operation as a node with its ancestors, keeps all accesses of every byte, and
compares all of them; quadratic, and so simple that it can be checked by eye. A use of an earlier
block is not told where the same timeline used the byte's present block too, unordered as well: the
detector leaves it out, unless it filed the later use with gaps (more than 16 runs).
"""

from __future__ import annotations

from streamsan.model import records as r
from streamsan.model.extent import Extent, count, runs

Pair = tuple[int, int]


def bytes_of(extent: Extent) -> set[int]:
    """All bytes of an extent, one by one."""
    return {byte for low in runs(extent) for byte in range(low, low + extent[1])}


class Oracle:
    """Reads records like a checker; `races` are pairs of stack numbers, first and second.

    `works` are the nodes of the operations, in order of submission.
    """

    def __init__(self) -> None:
        """An empty graph."""
        self.races: set[Pair] = set()
        self.works: list[int] = []
        self._ancestors: list[set[int]] = []
        self._last: dict[int, int] = {}
        self._streams: dict[int, r.StreamDef] = {}
        self._events: dict[int, int] = {}
        self._objects: dict[int, list[int]] = {}
        self._launches: dict[int, int] = {}
        self._blocks: dict[int, r.Alloc] = {}
        self._marks: dict[int, set[int]] = {}
        self._history: dict[int, list[tuple[int, r.Operation, int, int, bool]]] = {}
        self._owner: dict[int, int] = {}

    def feed(self, record: r.AnyRecord) -> None:
        """Take the next record."""
        handler = getattr(self, "_" + type(record).__name__.lower(), None)
        if handler is not None:
            handler(record)

    def before(self, first: int, second: int) -> bool:
        """Whether the graph leads from one of `works` to another."""
        return self.works[first] in self._ancestors[self.works[second]]

    def _node(self, *before: int | None) -> int:
        """A node that comes after others; ancestors include the node itself."""
        number = len(self._ancestors)
        known = (self._ancestors[n] for n in before if n is not None)
        self._ancestors.append({number}.union(*known))
        return number

    def _host_node(self, thread: int, *before: int | None) -> int:
        self._last[thread] = self._node(self._last.get(thread), *before)
        return self._last[thread]

    def _stream_node(self, stream: int, thread: int, *before: int | None) -> int:
        mine = self._streams[stream]
        peers = [
            self._last.get(other.timeline)
            for other in self._streams.values()
            if other.device == mine.device
            and other.default != mine.default
            and (other.blocking or other.default)
            and (mine.blocking or mine.default)
        ]
        number = self._node(self._last.get(stream), self._last.get(thread), *peers, *before)
        self._last[stream] = number
        return number

    def _threaddef(self, x: r.ThreadDef) -> None:
        self._host_node(x.timeline, self._last.get(x.parent))

    def _streamdef(self, x: r.StreamDef) -> None:
        self._streams[x.timeline] = x

    def _operation(self, x: r.Operation) -> None:
        if x.kind == r.OpKind.HOST:
            node = self._host_node(x.timeline)
        elif x.kind == r.OpKind.GRAPH_LAUNCH:
            node = self._stream_node(x.timeline, x.thread, self._launches.get(x.graph))
            self._launches[x.graph] = node
        else:
            node = self._stream_node(x.timeline, x.thread)
        self.works.append(node)
        for access in x.accesses:
            extent = (access.address, access.run, access.sizes, access.strides)
            for byte in bytes_of(extent):
                self._compare(byte, node, x, access.mode, count(extent) <= 16)

    def _compare(self, byte: int, node: int, op: r.Operation, mode: int, whole: bool) -> None:
        history, block = self._history.setdefault(byte, []), self._owner.get(byte, r.NONE)
        racing = [
            (earlier, owner, dense)
            for other, earlier, earlier_mode, owner, dense in history
            if (mode | earlier_mode) & r.Mode.WRITE and earlier.timeline != op.timeline
            if other not in self._ancestors[node]
        ]
        told = {e.timeline for e, owner, dense in racing if owner == block and dense}
        for earlier, owner, _ in racing:
            if owner == block or earlier.timeline not in told:
                self.races.add((earlier.stack, op.stack))
        history.append((node, op, mode, block, whole))

    def _eventrecord(self, x: r.EventRecord) -> None:
        self._events[x.event] = self._stream_node(x.stream, x.thread)

    def _eventwait(self, x: r.EventWait) -> None:
        self._stream_node(x.stream, x.thread, self._events.get(x.event))

    def _eventsync(self, x: r.EventSync) -> None:
        self._host_node(x.thread, self._events.get(x.event))

    def _eventdestroy(self, x: r.EventDestroy) -> None:
        self._events.pop(x.event, None)

    def _streamsync(self, x: r.StreamSync) -> None:
        mine = self._streams[x.stream]
        peers = [s for s in self._streams.values() if s.blocking and s.device == mine.device]
        if mine.default and peers:  # the sync is an operation of the stream (D1)
            self._stream_node(x.stream, x.thread)
        self._host_node(x.thread, self._last.get(x.stream))

    def _devicesync(self, x: r.DeviceSync) -> None:
        streams = [s.timeline for s in self._streams.values() if s.device == x.device]
        self._host_node(x.thread, *(self._last.get(s) for s in streams))

    def _hostrelease(self, x: r.HostRelease) -> None:
        self._objects.setdefault(x.object, []).append(self._host_node(x.thread))

    def _hostacquire(self, x: r.HostAcquire) -> None:
        self._host_node(x.thread, *self._objects.get(x.object, []))

    def _alloc(self, x: r.Alloc) -> None:
        self._blocks[x.block] = x
        self._owner.update(dict.fromkeys(range(x.address, x.address + x.size), x.block))
        self._marks[x.block] = set()

    def _recordstream(self, x: r.RecordStream) -> None:
        if x.block in self._marks:
            self._marks[x.block].add(x.stream)

    def _free(self, x: r.Free) -> None:
        block = self._blocks.pop(x.block, None)
        if block is None:
            return
        tails = [self._last.get(s) for s in self._marks[x.block]]
        known = [self._last.get(x.thread), *tails]
        guard: set[int] = set().union(*(self._ancestors[n] for n in known if n is not None))
        for byte in range(block.address, block.address + block.size):
            history = self._history.get(byte, [])
            self._history[byte] = [entry for entry in history if entry[0] not in guard]

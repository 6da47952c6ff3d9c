"""The ordering rules: one method per fact of a run, one place per rule."""

from __future__ import annotations

from collections.abc import Collection

from streamsan.model.records import NONE, StreamDef, ThreadDef
from streamsan.order._clocks import Clock, Timeline, Version, join
from streamsan.order._edges import Edges
from streamsan.order._objects import Floors, HostObjects, common

_FEW_EVENTS = 1024
_FEW_THREADS = 64


class _Event:
    """An event: its latest version, and the versions that records on other streams replaced."""

    __slots__ = ("latest", "older")

    def __init__(self) -> None:
        self.latest: Version | None = None
        self.older: dict[int, Version] = {}


class Order:
    """Happens-before of a run, or of one capture (`capture`: host threads give no order there, G1).

    `now` is the number of the latest operation; the caller sets it, and edges keep it.
    """

    def __init__(self, capture: bool = False) -> None:
        """An order without any timeline."""
        self.now = NONE
        self.edges = Edges()
        self.timelines: dict[int, Timeline] = {}
        self._threads: list[Timeline] = []
        self.floors = Floors(self._threads)
        """The epoch of each timeline that every live host thread has reached: all operations to
        come are ordered after it (S3).
        """
        self._devices: dict[int, list[Timeline]] = {}
        self._events: dict[int, _Event] = {}
        self._prune_events_at = _FEW_EVENTS
        self._objects = HostObjects()
        self._ended: dict[int, Timeline] = {}
        self._retire_at = _FEW_THREADS
        self._last_retired = NONE
        self._launches: dict[int, Version] = {}
        self._capture = capture

    # Timelines

    def stream(self, number: int) -> Timeline:
        """The stream of that number; one never defined is taken as non-blocking."""
        found = self.timelines.get(number)
        if found is None:
            found = self.timelines[number] = Timeline(number, is_stream=True)
        return found

    def thread(self, number: int) -> Timeline:
        """The host thread of that number; one never defined starts without any order."""
        found = self.timelines.get(number)
        if found is None:
            found = self.timelines[number] = Timeline(number, is_stream=False)
            if number <= self._last_retired:  # it was retired, and does one thing more
                join(found.clock, common(self._threads))
            else:
                self._threads.append(found)
                self.floors.clear()
        return found

    def define_stream(self, definition: StreamDef) -> None:
        """A stream exists. Rules D1 and D2 pair the legacy default stream with blocking streams.

        A per-thread default stream counts as any other blocking stream (D2).
        """
        stream = self.stream(definition.timeline)
        stream.device = definition.device
        stream.default, stream.blocking = definition.default, definition.blocking
        siblings = self._devices.setdefault(definition.device, [])
        for other in siblings:
            legacy, ordinary = (stream, other) if stream.default else (other, stream)
            if legacy.default and not ordinary.default and ordinary.blocking:
                stream.peers.append(other)
                other.peers.append(stream)
        siblings.append(stream)

    def define_thread(self, definition: ThreadDef) -> None:
        """Rule T1, start: a thread comes after what its parent had done so far."""
        thread = self.thread(definition.timeline)
        if definition.parent != NONE:
            parent = self.thread(definition.parent)
            parent.handed = True
            self._gain(thread, parent.clock)

    def end_thread(self, number: int) -> set[int]:
        """A thread has ended; the ended threads that need not be known any longer.

        These are, from time to time, those whose own accesses all live threads come after, so that
        all that may still happen does (S3). Their numbers disappear from all clocks; the caller
        forgets the accesses.
        """
        thread = self.timelines.get(number)
        if thread is None or thread not in self._threads:
            return set()
        self._threads.remove(thread)
        self.floors.clear()
        self._ended[number] = thread
        if len(self._ended) < self._retire_at:
            return set()
        gone = {n for n, thread in self._ended.items() if self.floors[n] >= thread.worked}
        for number in gone:
            del self._ended[number], self.timelines[number]
        self._retire_at = _FEW_THREADS + 2 * len(self._ended)
        if gone:
            self._last_retired = max(self._last_retired, *gone)
            self._erase(gone)
        return gone

    def _erase(self, gone: set[int]) -> None:
        """Take retired threads out of all clocks and edges."""
        clocks = [timeline.clock for timeline in self.timelines.values()]
        clocks += [e.latest.clock for e in self._events.values() if e.latest is not None]
        clocks += [version.clock for version in self._launches.values()]
        clocks += [self._objects.shared, *self._objects.clocks.values()]
        for clock in clocks:
            for number in gone & clock.keys():
                del clock[number]
        self.edges.erase(gone)
        self.floors.clear()

    # Operations

    def operate(self, stream: Timeline, thread: int) -> int:
        """Rules S1, S3, D1: `stream` gets an operation, which `thread` enqueues; its epoch.

        The operation's clock is the stream's afterwards.
        """
        clock = stream.clock
        if not self._capture:
            host = self.timelines.get(thread) or self.thread(thread)
            known = clock.get(thread, 0)
            if known < host.epoch:
                if known < host.gained:
                    join(clock, host.clock)
                else:  # nothing new but the thread's own accesses
                    clock[thread] = host.epoch
            host.handed = True
        if stream.peers:
            self._after_peers(stream)
        stream.epoch = stream.worked = clock[stream.number] = stream.epoch + 1
        return stream.epoch

    def _after_peers(self, stream: Timeline) -> None:
        """Rule D1: legacy default stream and blocking streams come after one another's work."""
        for peer in stream.peers:
            if stream.clock.get(peer.number, 0) < peer.epoch:
                join(stream.clock, peer.clock)

    def perform(self, thread: Timeline) -> int:
        """Rule S2: `thread` accesses memory itself; the access's epoch.

        A new epoch begins only where the current one has been handed to another timeline.
        """
        if thread.handed:
            thread.handed = False
            thread.epoch += 1
            thread.clock[thread.number] = thread.epoch
            self.floors.pop(thread.number, None)
        thread.worked = thread.epoch
        return thread.epoch

    def launch(self, stream: Timeline, graph: int, stack: int) -> None:
        """Rule G4: this launch, just enqueued, comes after the last one of the same graph."""
        last = self._launches.get(graph)
        if last is not None:
            join(stream.clock, last.clock)
        self._launches[graph] = self._version(stream, stack, 1)

    def forget_graph(self, graph: int) -> None:
        """The executable graph is gone, and its number may come again."""
        self._launches.pop(graph, None)

    # Events

    def record(self, event: int, stream: int, thread: int, stack: int) -> None:
        """Rule E1: a new version of `event` captures all work of `stream` so far."""
        source = self.stream(stream)
        worked = source.worked
        self.operate(source, thread)
        source.worked = worked
        state = self._events.get(event)
        if state is None:
            if len(self._events) >= self._prune_events_at:
                self._prune_events()
            state = self._events[event] = _Event()
        last = state.latest
        number = 1
        if last is not None:
            number = last.number + 1
            if last.stream != stream:
                state.older[last.stream] = last._replace(clock={})
        state.latest = self._version(source, stack, number)

    def _prune_events(self) -> None:
        """Let versions that all live threads have passed (S3) share what these have in common."""
        passed = common(self._threads)
        for state in self._events.values():
            last = state.latest
            if last is not None and passed.get(last.stream, 0) >= last.epoch:
                state.latest = last._replace(clock=passed)
        self._prune_events_at = len(self._events) * 9 // 8 + _FEW_EVENTS

    def _version(self, stream: Timeline, stack: int, number: int) -> Version:
        return Version(
            stream.number, stream.epoch, stream.clock.copy(), stream.worked, number, stack
        )

    def wait(self, event: int, stream: int, thread: int, stack: int) -> bool:
        """Rule E2: later work of `stream` comes after the latest version of `event`.

        False if the event was never recorded, which orders nothing.
        """
        target = self.stream(stream)
        worked = target.worked
        self.operate(target, thread)
        target.worked = worked
        state = self._events.get(event)
        version = state.latest if state is not None else None
        if state is None or version is None:
            self.edges.waited_in_vain(stream, event, stack)
            return False
        known = target.clock.get(version.stream, 0)
        if known < version.epoch:
            join(target.clock, version.clock)
        if version.stream != stream:
            self.edges.waited(
                stream, event, version, state.older, stack, self.now, known < version.worked
            )
        return True

    def event_sync(self, event: int, thread: int, stack: int) -> None:
        """Rules E3 and E4: `thread` comes after the latest version, not after later work."""
        state = self._events.get(event)
        if state is None or state.latest is None:
            return
        version = state.latest
        host = self.thread(thread)
        if host.clock.get(version.stream, 0) < version.epoch:
            self._gain(host, version.clock)
        self.edges.waited(thread, event, version, state.older, stack, self.now, True)

    def destroy_event(self, event: int) -> None:
        """Rule E5: orders already taken stay; the number, used again, is a new event."""
        self._events.pop(event, None)

    def version_of(self, event: int) -> Version | None:
        """The latest version of `event`, if it was ever recorded."""
        state = self._events.get(event)
        return state.latest if state is not None else None

    # Host synchronisation

    def stream_sync(self, stream: int, thread: int, stack: int) -> None:
        """Rules H1, H3, E4: `thread`, and no other, comes after all work of `stream` so far.

        A synchronisation of the legacy default stream counts as an operation of it (D1), so that
        earlier work of its device's blocking streams is covered too.
        """
        host, source = self.thread(thread), self.stream(stream)
        if source.default and source.peers:
            worked = source.worked
            self.operate(source, thread)
            source.worked = worked
        self._synchronise(source, host, stack)

    def device_sync(self, device: int, thread: int, stack: int) -> None:
        """Rules H2, H3, M3: `thread` comes after all streams of `device`, and of no other."""
        host = self.thread(thread)
        for stream in self._devices.get(device, ()):
            self._synchronise(stream, host, stack)

    def _synchronise(self, source: Timeline, host: Timeline, stack: int) -> None:
        if host.clock.get(source.number, 0) < source.epoch:
            self._gain(host, source.clock)
        self.edges.synchronised(source.number, source.epoch, host.number, stack, self.now)

    def _gain(self, thread: Timeline, clock: Clock) -> None:
        """`thread` comes after `clock`. Its epoch goes up so that others take the gain over."""
        join(thread.clock, clock)
        thread.epoch += 1
        thread.gained = thread.clock[thread.number] = thread.epoch
        thread.handed = False
        self.floors.clear()

    # Host threads

    def release(self, item: int, thread: int) -> None:
        """Rules T1 and T2: `thread` hands its order over through a host object."""
        host = self.thread(thread)
        host.handed = True
        self._objects.release(item, host.clock, self._threads)

    def acquire(self, item: int, thread: int) -> None:
        """Rules T1 and T2: `thread` comes after what was handed over through a host object."""
        handed = self._objects.handed(item)
        host = self.thread(thread)
        clock = host.clock
        if any(clock.get(timeline, 0) < epoch for timeline, epoch in handed.items()):
            self._gain(host, handed)

    # Clocks for questions

    def before_next(self, stream: int) -> list[Clock]:
        """The clocks that the next operation of `stream` comes after (S1, D1)."""
        timeline = self.stream(stream)
        return [timeline.clock, *(peer.clock for peer in timeline.peers)]

    def memory_guard(self, threads: Collection[int], recorded: Collection[int]) -> Clock:
        """Rules M2, M5, T1: the clock that the next owner of a block freed now comes after.

        It is that of the `threads` that used the block or free it, since each gave its reference up
        before the last one went; and the tails of the streams `recorded` on the block. It holds
        until the next record of the run.
        """
        timelines = self.timelines
        if len(threads) == 1 and not recorded:  # by far the most common
            (number,) = threads
            return timelines[number].clock if number in timelines else {}
        clock: Clock = {}
        for number in threads:
            if number in timelines:
                join(clock, timelines[number].clock)
        for number in recorded:
            join(clock, self.stream(number).clock)
        return clock

    def frontier(self, guard: Clock, device: int) -> Clock:
        """Rule M6, `frontier`: `guard`, and all that was enqueued on a device until now."""
        clock = guard.copy()
        for stream in self._devices.get(device, ()):
            join(clock, stream.clock)
        return clock

    def stream_ordered(self, stream: Timeline, released: Clock) -> None:
        """Rule M4: the driver orders an allocation or a free, just enqueued, after a clock."""
        join(stream.clock, released)

    @property
    def merged(self) -> int:
        """Host objects whose order was made more than it is, to stay within memory."""
        return self._objects.merged

"""A small trace builder: writes the records of a run by hand and checks them.

Each call that enqueues or synchronises takes a `line`, the line of ``train.py`` that does it; lines
count up by themselves where it is left out. Timelines are small numbers; thread 0 is ``main``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.model.extent import Extent
from streamsan.model.findings import Finding, Report

FILE = "/home/me/train.py"
Bytes = tuple[int, int] | Extent
"""Bytes from, to (exclusive); or an extent."""


def access(touched: Bytes, mode: int, space: int = 0) -> r.Access:
    """An access to some bytes of a space."""
    if len(touched) == 2:
        low, high = touched
        return r.Access(space, low, high - low, (), (), mode, "x")
    return r.Access(space, *touched, mode, "x")


class Trace:
    """Records of a run, kept in `records`."""

    def __init__(self) -> None:
        """A run with one host thread and the default stream of device 0 (`default`)."""
        self.records: list[r.AnyRecord] = []
        self._line = 0
        self._lines: set[tuple[int, str]] = set()
        self._seq = self._timelines = self._block = self._graph = 0
        self.main = self.thread("main", parent=r.NONE)
        self.default = self.stream("", default=True)

    def add(self, record: r.AnyRecord) -> None:
        """Append a record."""
        self.records.append(record)

    def stack(self, line: int | None, target: str = "") -> int:
        """A stack of one user line; its number is the line."""
        self._line = line if line is not None else self._line + 1
        if (self._line, target) not in self._lines:
            self._lines.add((self._line, target))
            self.add(r.SiteDef(self._line, FILE, self._line, "main", True, "", target))
            self.add(r.StackDef(self._line, (self._line,)))
        return self._line

    # Timelines

    def thread(self, name: str, parent: int) -> int:
        """A new host thread."""
        number, self._timelines = self._timelines, self._timelines + 1
        self.add(r.ThreadDef(number, name, parent, r.NONE))
        return number

    def stream(
        self,
        target: str = "side",
        *,
        device: int = 0,
        blocking: bool = False,
        default: bool = False,
        line: int | None = None,
        name: str = "",
    ) -> int:
        """A new stream, assigned to the variable `target`."""
        number, self._timelines = self._timelines, self._timelines + 1
        stack = r.NONE if default else self.stack(line, target)
        self.add(r.StreamDef(number, device, number, blocking, default, name, stack))
        return number

    # Operations

    def op(
        self,
        timeline: int,
        *,
        read: Sequence[Bytes] = (),
        write: Sequence[Bytes] = (),
        update: Sequence[Bytes] = (),
        line: int | None = None,
        thread: int | None = None,
        kind: r.OpKind = r.OpKind.KERNEL,
        name: str = "kernel",
        space: int = 0,
        touched: Sequence[r.Access] = (),
        **more: Any,
    ) -> int:
        """An operation of a stream, or with kind HOST of a thread; its line.

        What it touches is of one `space`; accesses of others come as they are, in `touched`.
        """
        stack = self.stack(line)
        accesses = [
            access(b, mode, space)
            for mode, many in ((1, read), (2, write), (3, update))
            for b in many
        ]
        accesses.extend(touched)
        self._seq += 1
        by = self.main if thread is None else thread
        self.add(
            r.Operation(self._seq, int(kind), name, timeline, by, stack, tuple(accesses), **more)
        )
        return stack

    def host(self, thread: int | None = None, *, space: int = r.HOST, **more: Any) -> int:
        """A host access; its line."""
        by = self.main if thread is None else thread
        return self.op(by, kind=r.OpKind.HOST, thread=by, space=space, **more)

    # Order

    def record(self, event: int, stream: int, line: int | None = None, **more: int) -> None:
        """Record an event."""
        thread = more.pop("thread", self.main)
        self.add(r.EventRecord(event, stream, thread, self.stack(line), **more))

    def wait(self, event: int, stream: int, line: int | None = None, **more: int) -> None:
        """Let a stream wait for an event."""
        thread = more.pop("thread", self.main)
        self.add(r.EventWait(event, stream, thread, self.stack(line), **more))

    def wait_stream(self, stream: int, other: int, line: int | None = None) -> None:
        """Let `stream` wait for `other` through an event of its own, on one line."""
        event = 1000 + len(self.records)
        self.record(event, other, line)
        self.wait(event, stream, self._line)
        self.add(r.EventDestroy(event, self.main))

    def event_sync(self, event: int, thread: int | None = None, query: bool = False) -> None:
        """Let a thread wait for an event."""
        by = self.main if thread is None else thread
        self.add(r.EventSync(event, by, self.stack(None), query))

    def stream_sync(self, stream: int, thread: int | None = None, query: bool = False) -> None:
        """Let a thread wait for a stream."""
        by = self.main if thread is None else thread
        self.add(r.StreamSync(stream, by, self.stack(None), query))

    def device_sync(self, device: int = 0, thread: int | None = None, cause: str = "H2") -> None:
        """Let a thread wait for a device."""
        by = self.main if thread is None else thread
        self.add(r.DeviceSync(device, by, self.stack(None), cause))

    def hand_over(self, source: int, target: int, item: int = 1) -> None:
        """Order one thread after another through a host object."""
        self.add(r.HostRelease(item, source))
        self.add(r.HostAcquire(item, target))

    # Memory

    def alloc(
        self,
        start: int,
        end: int,
        stream: int | None = None,
        *,
        target: str = "tensor",
        allocator: str = "caching",
        space: int = 0,
        graph: int = r.NONE,
        line: int | None = None,
        thread: int | None = None,
    ) -> int:
        """Hand out a block; its number. `stream` may be NONE, for host memory."""
        self._block += 1
        owner = self.default if stream is None else stream
        by = self.main if thread is None else thread
        stack = self.stack(line, target)
        self.add(
            r.Alloc(self._block, space, start, end - start, owner, by, stack, allocator, graph)
        )
        return self._block

    def free(self, block: int, line: int | None = None, thread: int | None = None) -> int:
        """Give a block up; the line."""
        stack = self.stack(line)
        self.add(r.Free(block, self.main if thread is None else thread, stack))
        return stack

    def mark(self, block: int, stream: int, explicit: bool = True) -> None:
        """Tell the allocator that a stream uses a block."""
        self.add(r.RecordStream(block, stream, self.main, self.stack(None), explicit))

    def empty_cache(self, thread: int | None = None) -> None:
        """Give cached memory back to the driver."""
        self.device_sync(0, thread, cause="M3")

    # Graphs

    def begin_capture(
        self, _stream: int, _thread: int | None = None, _pool_of: int = r.NONE
    ) -> int | None:
        """Begin a capture of a stream by a thread, with the pool of another graph if one is named;
        its graph, or None if the allocator bears no capture.
        """
        self._graph += 1
        return 100 + self._graph

    def end_capture(self, graph: int) -> None:
        """End the capture of a graph."""

    def launch(self, graph: int, stream: int, thread: int | None = None) -> int:
        """Launch all that a graph captured; the line."""
        operations = [x for x in self.records if isinstance(x, r.Operation)]
        captured = [x for x in operations if x.captured and x.graph == graph]
        touched = [access for x in captured for access in x.accesses]
        kind = r.OpKind.GRAPH_LAUNCH
        return self.op(stream, kind=kind, thread=thread, touched=touched, graph=graph)

    def destroy_graph(self, graph: int, thread: int | None = None) -> None:
        """Destroy a graph."""
        self.add(r.GraphDestroy(graph, self.main if thread is None else thread))

    # Verdict

    def report(self) -> Report:
        """The report of the records so far."""
        checker = Checker()
        for record in self.records:
            checker.feed(record)
        return checker.report()

    def races(self) -> list[tuple[int, int]]:
        """The lines of each race: first, second."""
        return [_lines(finding) for finding in self.report().races]

    def possible(self) -> list[tuple[int, int]]:
        """The lines of each race that rests on a guess."""
        return [_lines(finding) for finding in self.report().possible]

    def latent(self) -> list[tuple[int, int]]:
        """The lines of each latent race: use, free."""
        return [_lines(finding) for finding in self.report().latent]


def _lines(finding: Finding) -> tuple[int, int]:
    first, second = finding.first.site, finding.second.site
    assert first is not None
    assert second is not None
    return first.line, second.line

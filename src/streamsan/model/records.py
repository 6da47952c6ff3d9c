"""The records of a run, in order of submission: what a recorder says and a checker reads.

A trace is a sequence of these records and nothing else; a live run hands the same objects to the
checker. Numbers, not objects, refer from one record to another. Timelines (streams and host
threads) share one number space, and so do all other kinds of identity within their own kind.
The ordering rules behind each record are those of ``docs/rules.md``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Union

import msgspec

HOST = -1
"""Address space of host memory; device memory has its device's index, from 0."""

NONE = -1
"""The identity of nothing, wherever a record may leave one out."""


FOREIGN = "driver::"
"""First part of the name of an operation that another library than the framework enqueued."""


class Mode(IntEnum):
    """How bytes are touched; the values are bits."""

    READ = 1
    WRITE = 2
    READ_WRITE = 3


class Confidence(IntEnum):
    """How an access is known: guessed from a pointer, inferred, or declared by a schema."""

    POSSIBLE = 0
    LIKELY = 1
    CERTAIN = 2


class OpKind(IntEnum):
    """What an operation is."""

    KERNEL = 0
    COPY = 1
    FILL = 2
    HOST = 3
    GRAPH_LAUNCH = 4
    COLLECTIVE = 5
    CALLBACK = 6


class CopyKind(IntEnum):
    """Which memories a copy joins; the host side is pinned unless it says pageable."""

    NONE = 0
    DEVICE_TO_DEVICE = 1
    HOST_TO_DEVICE = 2
    DEVICE_TO_HOST = 3
    PAGEABLE_TO_DEVICE = 4
    DEVICE_TO_PAGEABLE = 5
    PEER = 6


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all records."""


class Access(Record, frozen=True):
    """Bytes that one operation touches, in canonical form (see `streamsan.model.extent`).

    The bytes are all ``address + sum(i[k] * strides[k]) .. + run`` for ``0 <= i[k] < sizes[k]``.
    A dense tensor has no sizes: its `run` is all of it.
    """

    space: int
    address: int
    run: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    mode: Annotated[int, msgspec.Meta(ge=1, le=3)]
    argument: str
    confidence: Annotated[int, msgspec.Meta(ge=0, le=2)] = int(Confidence.CERTAIN)


class Header(Record, frozen=True, tag="header"):
    """First record of a run: who recorded it, on what. `recorder` is ``virtual`` or ``cuda``."""

    recorder: str
    versions: dict[str, str]
    arguments: tuple[str, ...]
    options: dict[str, str]


class SiteDef(Record, frozen=True, tag="site"):
    """A source line. `text` is the line itself; `target`, the variable its statement assigns."""

    site: int
    file: str
    line: int
    function: str
    user: bool
    text: str
    target: str


class StackDef(Record, frozen=True, tag="stack"):
    """A Python stack as site numbers, innermost first."""

    stack: int
    sites: tuple[int, ...]


class ThreadDef(Record, frozen=True, tag="thread"):
    """A host thread. It starts after what `parent` had done so far (rule T1)."""

    timeline: int
    name: str
    parent: int
    stack: int


class ThreadEnd(Record, frozen=True, tag="thread-end"):
    """A host thread has ended, and has handed over what it did to whoever joins it (rule T1)."""

    timeline: int


class StreamDef(Record, frozen=True, tag="stream"):
    """A native stream. `blocking` streams take part in rule D1; `default` is the legacy stream.

    `name` is empty unless the user or the framework named it; `stack` is where it was made.
    """

    timeline: int
    device: int
    handle: int
    blocking: bool
    default: bool
    name: str
    stack: int


class Operation(Record, frozen=True, tag="op"):
    """Work of one timeline: a stream's, or (kind HOST) the thread's own access to host memory.

    `context` is the stream of the enclosing stream context where the launch went to another
    stream (else NONE). `node` names the backward node that enqueued the work, `forward` is the
    stack of its forward operation. `graph` is the executable graph launched (GRAPH_LAUNCH) or,
    with `captured`, the graph the operation was captured into: it then executed nothing.
    """

    seq: int
    kind: int
    name: str
    timeline: int
    thread: int
    stack: int
    accesses: tuple[Access, ...]
    copy: int = int(CopyKind.NONE)
    node: str = ""
    forward: int = NONE
    context: int = NONE
    graph: int = NONE
    captured: bool = False


class EventRecord(Record, frozen=True, tag="event-record"):
    """`event` captures all work of `stream` so far (rule E1)."""

    event: int
    stream: int
    thread: int
    stack: int
    captured: int = NONE


class EventWait(Record, frozen=True, tag="event-wait"):
    """Later work of `stream` comes after the latest version of `event` (rule E2)."""

    event: int
    stream: int
    thread: int
    stack: int
    captured: int = NONE


class EventSync(Record, frozen=True, tag="event-sync"):
    """`thread` waited for the latest version of `event` (E3); `query`: a query said done (E4)."""

    event: int
    thread: int
    stack: int
    query: bool = False


class EventDestroy(Record, frozen=True, tag="event-destroy"):
    """`event` is gone; orders already taken stay (rule E5)."""

    event: int
    thread: int


class StreamSync(Record, frozen=True, tag="stream-sync"):
    """`thread` waited for all work of `stream` so far (H1, C2, C4, C7; `query`: E4)."""

    stream: int
    thread: int
    stack: int
    query: bool = False


class DeviceSync(Record, frozen=True, tag="device-sync"):
    """`thread` waited for all streams of `device` (H2; `cause` names another rule, such as M3)."""

    device: int
    thread: int
    stack: int
    cause: str = "H2"


class Alloc(Record, frozen=True, tag="alloc"):
    """A block is handed out. `stream` is the owner the allocator files it under (NONE: host).

    `allocator` names the allocator and its policy, such as ``caching`` or ``pinned``.
    A block of a graph's private pool names the graph (rule G3).
    """

    block: int
    space: int
    address: int
    size: int
    stream: int
    thread: int
    stack: int
    allocator: str
    graph: int = NONE


class Free(Record, frozen=True, tag="free"):
    """The program gave a block up; the line of `stack` is where the last reference went."""

    block: int
    thread: int
    stack: int


class RecordStream(Record, frozen=True, tag="record-stream"):
    """The allocator is told that `stream` uses `block` (rules M2 and M5).

    `explicit` marks the user's own call, apart from those a framework makes by itself.
    """

    block: int
    stream: int
    thread: int
    stack: int
    explicit: bool = True


class HostRelease(Record, frozen=True, tag="release"):
    """`thread` hands over through a host object: a lock, queue, event, future (rules T1, T2)."""

    object: int
    thread: int


class HostAcquire(Record, frozen=True, tag="acquire"):
    """`thread` takes what was handed over through `object` so far (rules T1, T2)."""

    object: int
    thread: int


class GraphDestroy(Record, frozen=True, tag="graph-destroy"):
    """An executable graph is gone, and its private pool may be reused (rule G3)."""

    graph: int
    thread: int


class Misuse(Record, frozen=True, tag="misuse"):
    """Something wrong by itself that only the recorder can see. `kind` is a kind id."""

    kind: str
    text: str
    thread: int
    stack: int
    stream: int = NONE


class Note(Record, frozen=True, tag="note"):
    """Something the report must say: `topic` is ``blind-spot``, ``internal-error`` or ``info``."""

    topic: str
    text: str


class End(Record, frozen=True, tag="end"):
    """Last record of a run: the program's own exit status and its wall-clock seconds."""

    status: int
    seconds: float


AnyRecord = Union[
    Header,
    SiteDef,
    StackDef,
    ThreadDef,
    ThreadEnd,
    StreamDef,
    Operation,
    EventRecord,
    EventWait,
    EventSync,
    EventDestroy,
    StreamSync,
    DeviceSync,
    Alloc,
    Free,
    RecordStream,
    HostRelease,
    HostAcquire,
    GraphDestroy,
    Misuse,
    Note,
    End,
]
"""Every record a trace may hold."""

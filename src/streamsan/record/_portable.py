"""The parts of the recorder that run for each operator, in Python.

`streamsan.record._compiled` says the same in C, several times faster, where it could be built;
`streamsan.record._core` chooses. Both pass the same tests.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence, Sized
from types import FrameType
from typing import Any

from streamsan.model.records import NONE, Access, AnyRecord
from streamsan.virtual.memory import NOWHERE
from streamsan.virtual.monitor import Monitor

_DEPTH = 400
"""Innermost frames by which stacks differ: a deep recursion would have ever longer ones."""

Touch = Callable[[Any, int, str, list[Access]], int]
"""``touch(tensor, mode, argument, accesses)`` appends what a tensor touches; gives its owner."""

Place = tuple[int, str, int]
"""A tensor argument of an operator: see `streamsan.virtual.face.schema.Plan`."""


class Stacks:
    """Numbers of Python stacks; `define` is called with the innermost frame of a new one.

    What `define` meets has to live on: stacks are told apart by the identities of their codes.
    """

    def __init__(self, define: Callable[[FrameType | None], int]) -> None:
        self._define = define
        self._numbers: dict[tuple[int, ...], int] = {}

    def number(self) -> int:
        """Number of the calling thread's Python stack."""
        key: list[int] = []
        innermost = sys._getframe(1)
        frame: FrameType | None = innermost
        while frame is not None and len(key) < 2 * _DEPTH:
            key.append(id(frame.f_code))
            key.append(frame.f_lasti)
            frame = frame.f_back
        found = self._numbers.get(tuple(key))
        if found is None:
            found = self._numbers[tuple(key)] = self._define(innermost)
        return found

    def clear(self) -> None:
        """Forget all stacks."""
        self._numbers.clear()


class Accesses:
    """What tensors touch. `tensor` is the class of them; `touch` says it of one."""

    def __init__(self, tensor: Any, touch: Touch) -> None:
        self._tensor = tensor
        self._touch = touch

    def touch(self, value: Any, mode: int, argument: str, accesses: list[Access]) -> int:
        """Append what a tensor, or each of a list, touches; the highest owner of them."""
        if isinstance(value, self._tensor):
            return self._touch(value, mode, argument, accesses)
        highest = NOWHERE
        if isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, self._tensor):
                    highest = max(highest, self._touch(item, mode, argument, accesses))
        return highest

    def arguments(
        self,
        places: Sequence[Place],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        accesses: list[Access],
        grad: bool,
    ) -> tuple[int, bool]:
        """Append what an operator's arguments touch; the highest owner of them.

        And, if `grad` asks for it, whether a gradient is wanted of one.
        """
        highest, wanted = NOWHERE, False
        for position, name, mode in places:
            value = args[position] if 0 <= position < len(args) else kwargs.get(name)
            highest = max(highest, self.touch(value, mode, name, accesses))
            wanted = wanted or (grad and self._wants(value))
        return highest, wanted

    def _wants(self, value: Any) -> bool:
        values = value if isinstance(value, (list, tuple)) else (value,)
        return any(isinstance(item, self._tensor) and item.requires_grad for item in values)


UNKNOWN, OWN = NONE - 1, NONE - 2
"""`Work.stack` while nobody has asked for it, and where whatever happens has its own."""


class Work:
    """What a thread is at: what happened inside of its operator, or None outside of operators.

    `stack` and `thread` are those to report for all of that, or UNKNOWN, or OWN. `body` are the
    accesses seen so far of the custom operator at work, if there is one. `operands` are the
    addresses of the operator's blocks, known where an arena asks. `contexts` are the streams whose
    contexts the thread is in, the innermost last.
    """

    __slots__ = ("body", "contexts", "inside", "operands", "stack", "thread")

    def __init__(self) -> None:
        self.body: list[Access] | None = None
        self.inside: list[Callable[[], None]] | None = None
        self.operands: frozenset[int] = frozenset()
        self.contexts: list[int] = []
        self.stack = self.thread = OWN


class Born:
    """A device block that an allocator handed out for the stream `owner`.

    Its `number`, `device` and `size` are known once a tensor shows it. `backward` is whether a
    backward node asked for it; `users` are the streams that the allocator knows of.
    """

    __slots__ = (
        "backward", "device", "graph", "number", "owner", "size", "stack", "thread", "users",
    )  # fmt: skip

    def __init__(self, owner: int, thread: int, stack: int, graph: int, backward: bool) -> None:
        self.owner = owner
        self.thread = thread
        self.stack = stack
        self.graph = graph
        self.backward = backward
        self.number = self.device = NONE
        self.size = 0
        self.users: set[int] = {owner}


class LiveBlocks(dict[int, Born]):
    """Live device blocks by address."""

    def pop(self, address: int) -> Born | None:  # type: ignore[override]
        """Remove the block at an address: it, or None."""
        return super().pop(address, None)


class Outlet(Monitor):
    """The way out for records, under the lock of the recording.

    `sink` takes the records, None takes nothing; `sequence` is the number of the last operation;
    `recording` is whether a recording is under way.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sink: Callable[[AnyRecord], None] | None = None
        self.sequence = 0
        self.recording = False
        self._busy = False
        self._waiting: deque[AnyRecord] = deque()

    def emit(self, record: AnyRecord) -> None:
        """Hand a record to the sink, within the lock. Raises what the sink raises."""
        if self.sink is not None:
            with self:
                self.hand_on(record)

    def hand_on(self, record: AnyRecord) -> None:
        """The same with the lock held; what comes out of the handling of another waits for it."""
        sink = self.sink
        if sink is None:
            return
        if self._busy:
            self._waiting.append(record)
            return
        self._busy = True
        try:
            sink(record)
            while self._waiting:
                sink(self._waiting.popleft())
        finally:
            self._busy = False

    def after_fork(self) -> None:
        """Start afresh in a forked child, without a sink."""
        sequence = self.sequence
        super().after_fork()
        self.sequence = sequence


class Packed:
    """A sink that packs records into bytes, for a checker in another process.

    `encode` gives the bytes of one. Where it raises, or gives more than `most`, `otherwise` does,
    or no bytes for a record to be dropped. `full` is called with each record from the `limit`-th
    on, until some are removed.
    """

    def __init__(
        self,
        encode: Callable[[AnyRecord], bytes],
        otherwise: Callable[[AnyRecord], bytes],
        full: Callable[[], None],
        most: int,
        limit: int,
    ) -> None:
        self._encode, self._otherwise, self._full = encode, otherwise, full
        self._most, self._limit = most, limit
        self._parts: list[bytes] = []

    def _bytes(self, record: AnyRecord) -> bytes:
        try:
            raw = self._encode(record)
        except Exception:
            return self._otherwise(record)
        return raw if len(raw) <= self._most else self._otherwise(record)

    def __call__(self, record: AnyRecord) -> None:
        """Take a record. Raises what `otherwise` and `full` raise."""
        raw = self._bytes(record)
        if raw:
            self._parts.append(raw)
            if len(self._parts) >= self._limit:
                self._full()

    def __len__(self) -> int:
        """How many records there are."""
        return len(self._parts)

    def whole(self) -> bytes:
        """All records so far, as one msgpack array."""
        parts = list(self._parts)
        return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)

    def __delitem__(self, first: slice) -> None:
        """Remove the first records: those that `whole` gave last."""
        del self._parts[first]

    def clear(self) -> None:
        """Forget all records."""
        self._parts.clear()


class Then:
    """A call of `call`, and, where `reason` has any elements, of `then`, whose result it gives."""

    def __init__(
        self, call: Callable[..., object], reason: Sized, then: Callable[..., object]
    ) -> None:
        self._call, self._reason, self._then = call, reason, then

    def __call__(self, *args: Any) -> object:
        """Make both calls with the same arguments."""
        self._call(*args)
        return self._then(*args) if len(self._reason) else None

"""A little of the CUDA runtime, as traces: each call leaves the records that its rule asks for.

The rules are those of ``docs/rules.md``, where PyTorch cannot reach them: managed and pageable
memory, the synchronising forms of copies and fills, the legacy stream, blocking streams.
"""

from __future__ import annotations

from typing import NamedTuple

from streamsan.model import records as r
from streamsan.model.extent import Extent
from tests.unit.builder import Bytes, Trace, access

SIZE = 64


class Buffer(NamedTuple):
    """Memory of a kind: ``device``, ``pinned``, ``managed`` or ``pageable``."""

    kind: str
    bytes: Bytes

    @property
    def space(self) -> int:
        """Its address space."""
        return 0 if self.kind == "device" else r.HOST

    @property
    def on_host(self) -> bool:
        """Whether a copy takes it for host memory."""
        return self.kind in ("pinned", "pageable")

    def part(self, low: int, high: int) -> Buffer:
        """Some of its bytes."""
        return Buffer(self.kind, (self.bytes[0] + low, self.bytes[0] + high))

    def rows(self, count: int, width: int, pitch: int) -> Buffer:
        """`count` rows of `width` bytes, `pitch` bytes apart."""
        extent: Extent = (self.bytes[0], width, (count,), (pitch,))
        return Buffer(self.kind, extent)


class Request(NamedTuple):
    """A message under way: the thread that carries it."""

    thread: int


class Cuda:
    """Calls of one host thread; `trace` holds the records. `default` is the legacy stream."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.default = self.trace.default
        self._top = self._object = 0

    # Memory, by rule M3

    def _buffer(self, kind: str) -> Buffer:
        self._top += SIZE
        return Buffer(kind, (self._top, self._top + SIZE))

    def device(self) -> Buffer:
        """Device memory; allocating it gives no order (M3)."""
        return self._buffer("device")

    def pinned(self) -> Buffer:
        """Page-locked host memory, or registered memory."""
        return self._buffer("pinned")

    def managed(self) -> Buffer:
        """Managed memory, which host and device reach."""
        return self._buffer("managed")

    def pageable(self) -> Buffer:
        """Ordinary host memory."""
        return self._buffer("pageable")

    def free(self) -> None:
        """Some memory goes back to the driver, which joins the device (M3)."""
        self.trace.device_sync(cause="M3")

    # Streams

    def stream(self, blocking: bool = True, device: int = 0) -> int:
        """A stream as the runtime makes it: blocking unless the program asks for less (D1)."""
        return self.trace.stream(blocking=blocking, device=device)

    def kernel(
        self, stream: int, *, reads: tuple[Buffer, ...] = (), writes: tuple[Buffer, ...] = ()
    ) -> None:
        """A kernel."""
        self._op(stream, r.OpKind.KERNEL, reads, writes)

    def _op(
        self, stream: int, kind: r.OpKind, reads: tuple[Buffer, ...], writes: tuple[Buffer, ...]
    ) -> None:
        touched = [
            access(buffer.bytes, int(mode), buffer.space)
            for mode, buffers in ((r.Mode.READ, reads), (r.Mode.WRITE, writes))
            for buffer in buffers
        ]
        self.trace.op(stream, kind=kind, touched=touched)

    # Copies and fills, by rules C1 to C6

    def memcpy(self, to: Buffer, source: Buffer) -> None:
        """The host-blocking form, on the legacy stream.

        C1: from pageable memory it returns when the source is staged. C5: between devices it does
        not block. All others return when the bytes are there (C2, and C5 for host memory).
        """
        self._copy(to, source, self.default)
        staged = source.kind == "pageable" and not to.on_host
        if not staged and (to.on_host or source.on_host):
            self.trace.stream_sync(self.default)

    def memcpy_async(self, to: Buffer, source: Buffer, stream: int) -> None:
        """The asynchronous form: blocks for pageable targets (C4) and within the host (C5)."""
        self._copy(to, source, stream)
        if to.kind == "pageable" or (to.on_host and source.on_host):
            self.trace.stream_sync(stream)

    def _copy(self, to: Buffer, source: Buffer, stream: int) -> None:
        if source.kind == "pageable":  # C1, C4: the host reads it before the call returns
            self.read(source)
            self._op(stream, r.OpKind.COPY, (), (to,))
        else:
            self._op(stream, r.OpKind.COPY, (source,), (to,))

    def memset(self, buffer: Buffer) -> None:
        """The blocking form, on the legacy stream: blocks for pinned and managed memory (C6)."""
        self.memset_async(buffer, self.default)
        if buffer.kind != "device":
            self.trace.stream_sync(self.default)

    def memset_async(self, buffer: Buffer, stream: int) -> None:
        """The asynchronous form: in stream order only (C6)."""
        self._op(stream, r.OpKind.FILL, (), (buffer,))

    # The host, and messages

    def read(self, buffer: Buffer) -> None:
        """The host reads. So does a blocking send of a message, also from device memory."""
        self.trace.host(read=[buffer.bytes], space=buffer.space)

    send = read

    def write(self, buffer: Buffer) -> None:
        """The host writes. So does a blocking receive."""
        self.trace.host(write=[buffer.bytes], space=buffer.space)

    def isend(self, buffer: Buffer) -> Request:
        """A send under way: it reads at any time before its `finish`."""
        thread = self.trace.thread("send", self.trace.main)
        self.trace.host(thread, read=[buffer.bytes], space=buffer.space)
        return Request(thread)

    def irecv(self, buffer: Buffer) -> Request:
        """A receive under way: it writes at any time before its `finish`."""
        thread = self.trace.thread("receive", self.trace.main)
        self.trace.host(thread, write=[buffer.bytes], space=buffer.space)
        return Request(thread)

    def finish(self, request: Request) -> None:
        """Wait for a message."""
        self._object += 1
        self.trace.hand_over(request.thread, self.trace.main, self._object)

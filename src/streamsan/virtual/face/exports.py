"""NumPy arrays that share pinned memory, whose reads and writes show only in part.

A recorder that listens to NumPy (`Exports.sees_uses`) tells what its functions read and write. Code
that takes nothing but an array's address calls none of them. An array that is gone before the
memory was in order was read, if ever, out of order: so the end of an array of which no use was seen
counts as its read, which is a guess, or where nobody listens to NumPy, likely.

Writes show in the bytes. Those that an upload reads are kept when it is enqueued, and compared when
the array ends, before the host waits for anything, and before the next upload: what differs by then
the host has written without having waited. Both count as accesses of the line that made the array.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from streamsan.model import records as r
from streamsan.model.extent import span
from streamsan.virtual.observer import Observer

_UPLOADS = 64
"""Uploads that are remembered, the latest of those that no wait has covered."""

_KEPT = 16 << 20
"""Bytes of one upload that are kept at most."""

_HOST, _WRITE = int(r.OpKind.HOST), int(r.Mode.WRITE)
_UP, _DOWN = int(r.CopyKind.HOST_TO_DEVICE), int(r.CopyKind.DEVICE_TO_HOST)


_Stream = tuple[int, int]
"""A stream's timeline and its device."""


class _Array:
    """An array that was lent: the bytes it shares, where they are, and who made it where."""

    __slots__ = ("access", "pointer", "stack", "thread", "used")

    def __init__(self, access: r.Access, pointer: int, thread: int, stack: int) -> None:
        self.access = msgspec.structs.replace(access, confidence=int(r.Confidence.LIKELY))
        self.pointer = pointer
        self.used = False
        self.thread = thread
        self.stack = stack


class _Upload:
    """A copy to a device that reads pinned memory, and what the host did since it was enqueued.

    `kept` are the bytes that arrays share with it, by array: first address and bytes. `threads`
    are those that have waited for something since: they may have come after the upload.
    """

    __slots__ = ("end", "kept", "start", "stream", "threads")

    def __init__(self, access: r.Access, stream: _Stream) -> None:
        self.start, self.end = access.address, access.address + access.run
        self.stream = stream
        self.kept: dict[int, tuple[int, bytes]] = {}
        self.threads: set[int] = set()

    def overlap(self, access: r.Access) -> tuple[int, int]:
        """The addresses that both touch: first, and behind the last; nothing if not ascending."""
        return max(self.start, access.address), min(self.end, access.address + access.run)


class Exports:
    """Arrays given out so far, and the uploads that nobody has waited for."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._arrays: dict[int, _Array] = {}
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._uploads: deque[_Upload] = deque(maxlen=_UPLOADS)
        self._landings: dict[tuple[int, _Stream], int] = {}
        self.sees_uses = False
        """Whether it is told what NumPy does with arrays."""
        self.reached: Callable[[int, int], None] | None = None
        """Hears which bytes devices copy from and to: the first, and the one behind the last."""
        observer.watcher = self

    def add(self, array: Any, access: r.Access) -> None:
        """`array` shares the bytes of `access`."""
        observer, key = self._observer, id(array)
        pointer = array.__array_interface__["data"][0]
        lent = _Array(access, pointer, observer.thread(), observer.stack())

        def gone(_: weakref.ref[Any]) -> None:
            del self._alive[key], self._arrays[key]
            ends = [*self._end(lent), *self._changes(key, lent, lent.thread)]
            for upload in list(self._uploads):
                upload.kept.pop(key, None)
            if ends:
                observer.monitor.later(lambda: self._report(lent, lent.thread, tuple(ends)))

        with observer.monitor:
            self._alive[key] = weakref.ref(array, gone)
            self._arrays[key] = lent
            for upload in self._uploads:
                self._keep(upload, key, lent)

    def _end(self, lent: _Array) -> list[r.Access]:
        """What an array that is gone was read for, as far as nobody saw it."""
        if not self.sees_uses:
            return [lent.access]
        guess = msgspec.structs.replace(lent.access, confidence=int(r.Confidence.POSSIBLE))
        return [] if lent.used else [guess]

    # -- what the recorder tells ------------------------------------------------------------------

    def touched(
        self, copy: int, stream: int, accesses: tuple[r.Access, ...], captured: bool
    ) -> None:
        """An operation that touches host memory was enqueued, or done by the host (`copy` 0)."""
        on = stream, max((access.space for access in accesses), default=r.NONE)
        for access in accesses:
            if access.space != r.HOST:
                continue
            low, high = span((access.address, access.run, access.sizes, access.strides))
            if copy and self.reached is not None:
                with self._observer.monitor:
                    self.reached(low, high)
            if copy == _DOWN:  # a captured one may come whenever its graph is launched
                self._landed(low, high, (r.NONE, r.NONE) if captured else on)
            elif copy == _UP and not captured and not access.sizes:
                self._uploaded(access, on)
            elif not copy and self._arrays:
                self._used(low, high)
                if access.mode & _WRITE and access.confidence and not access.sizes:
                    self._rewritten(access)

    def _used(self, low: int, high: int) -> None:
        """The host has used bytes, through an array or otherwise."""
        with self._observer.monitor:
            for lent in self._arrays.values():
                if low < lent.access.address + lent.access.run and lent.access.address < high:
                    lent.used = True

    def waits(self, record: r.StreamSync | r.DeviceSync | r.EventSync) -> None:
        """A thread is about to come after work of a device: until then it has not."""
        if not self._uploads and not self._landings:
            return
        with self._observer.monitor:
            self._compare(record.thread)
            if isinstance(record, r.EventSync):
                return
            for upload in list(self._uploads):
                if _covers(record, upload.stream):
                    self._uploads.remove(upload)
            for start, stream in list(self._landings):
                if _covers(record, stream):
                    del self._landings[start, stream]

    def _uploaded(self, access: r.Access, stream: _Stream) -> None:
        with self._observer.monitor:
            self._compare(self._observer.thread())
            upload = _Upload(access, stream)
            if any(s < upload.end and upload.start < e for (s, _), e in self._landings.items()):
                return  # the device may change these bytes at any time
            for key, lent in self._arrays.items():
                self._keep(upload, key, lent)
            self._uploads.append(upload)

    def _landed(self, low: int, high: int, stream: _Stream) -> None:
        with self._observer.monitor:
            self._landings[low, stream] = max(high, self._landings.get((low, stream), 0))
            for upload in list(self._uploads):
                if upload.start < high and low < upload.end:
                    self._uploads.remove(upload)

    def _rewritten(self, access: r.Access) -> None:
        """An operator of the host, which is seen by itself, has changed bytes."""
        with self._observer.monitor:
            for upload in self._uploads:
                low, high = upload.overlap(access)
                for key, lent in self._arrays.items() if low < high else ():
                    self._keep(upload, key, lent)

    # -- comparing --------------------------------------------------------------------------------

    def _keep(self, upload: _Upload, key: int, lent: _Array) -> None:
        """Keep what an upload reads and an array may change."""
        low, high = upload.overlap(lent.access)
        if low >= high or lent.access.sizes:
            return
        if high - low > _KEPT:
            text = f"writes through arrays to pinned memory of more than {_KEPT >> 20} MiB"
            self._observer.note_once("blind-spot", text)
            return
        upload.kept[key] = low, _bytes(lent, low, high - low)

    def _compare(self, thread: int) -> None:
        """Report what was written through arrays, as far as it must have been `thread`."""
        for upload in self._uploads:
            upload.threads.add(thread)
        for key, lent in list(self._arrays.items()):
            changes = self._changes(key, lent, thread)
            if changes:
                self._report(lent, thread, tuple(changes))

    def _changes(self, key: int, lent: _Array, thread: int) -> list[r.Access]:
        """What of an array has changed under an upload; it is the state to compare with from now.

        Another thread that has waited may have written after the upload: so nothing is said then.
        """
        found = []
        for upload in list(self._uploads):
            low, old = upload.kept.get(key, (0, b""))
            new = _bytes(lent, low, len(old)) if old else old
            if new == old:
                continue
            upload.kept[key] = low, new
            if upload.threads <= {thread}:
                first, last = _ends(old, new)
                found.append(
                    msgspec.structs.replace(
                        lent.access, address=low + first, run=last - first, mode=_WRITE
                    )
                )
        return found

    def _report(self, lent: _Array, thread: int, accesses: tuple[r.Access, ...]) -> None:
        self._observer.operation(
            _HOST, "Tensor.numpy", thread, accesses, stack=lent.stack, thread=thread
        )


def _covers(record: r.StreamSync | r.DeviceSync, stream: _Stream) -> bool:
    """Whether a wait is for all work of a stream."""
    if isinstance(record, r.DeviceSync):
        return record.device == stream[1]
    return record.stream == stream[0]


def _bytes(lent: _Array, address: int, size: int) -> bytes:
    return ctypes.string_at(lent.pointer + address - lent.access.address, size)


def _ends(old: bytes, new: bytes) -> tuple[int, int]:
    """The first byte that differs, and the one behind the last, of two that do somewhere."""
    import numpy as np

    differ = np.flatnonzero(np.frombuffer(old, np.uint8) != np.frombuffer(new, np.uint8))
    return int(differ[0]), int(differ[-1]) + 1

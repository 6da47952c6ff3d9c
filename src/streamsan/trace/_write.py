"""Writing a trace: batches of records, framed, each handed to the system as soon as it is due."""

from __future__ import annotations

# The thread and its locks come from below `threading`: a recorder may have patched that module,
# and the program under test must not find a thread of ours in `threading.enumerate()`.
import _thread
import fcntl
import os
import stat
import zlib
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

import zstandard

from streamsan.errors import UsageError
from streamsan.model.records import AnyRecord
from streamsan.trace._batches import encode
from streamsan.trace._format import BATCH, FRAME, HEADER, MAGIC, MAX_RECORDS, VERSION

INTERVAL = 1.0
"""Seconds after which a batch is written though it is not full."""


class Writer:
    """Writes records to a new trace file.

    A frame is written every `batch` records, every `interval` seconds, and on `close`, so that a
    program killed at any moment leaves all but its last second behind. Frames bypass Python's
    buffers. A forked child shares the open file; its writes are ignored.

    Raises UsageError if `path` exists and `force` is not given, if another run writes it, or if it
    cannot be written.
    """

    def __init__(
        self, path: Path, *, force: bool = False, batch: int = BATCH, interval: float = INTERVAL
    ) -> None:
        self.path = path
        self._file = _create(path, force)
        self._process = os.getpid()
        self._batch = min(batch, MAX_RECORDS)
        self._pending: list[AnyRecord] = []
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._failure: Exception | None = None
        self._lock = _thread.allocate_lock()
        self._closed = _thread.allocate_lock()
        self._closed.acquire()
        _thread.start_new_thread(self._flush_regularly, (interval,))

    def write(self, *records: AnyRecord) -> None:
        """Add `records`. Raises, now or at a later call, what kept a frame from being written."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._pending += records
            if len(self._pending) >= self._batch:
                self._flush()
        self._raise_failure()

    def close(self) -> None:
        """Write what is pending and close the file. A second call does nothing."""
        if os.getpid() != self._process or self._file.closed:
            return
        with self._lock:
            self._flush()
            self._file.close()
        self._closed.release()
        self._raise_failure()

    def _flush_regularly(self, interval: float) -> None:
        try:
            while not self._closed.acquire(timeout=interval):
                with self._lock:
                    self._flush()
        except Exception as error:  # the next call tells it
            self._failure = self._failure or error

    def _flush(self) -> None:
        batch, self._pending = self._pending, []
        if not batch or self._failure:
            return
        try:
            self._write_frames(batch)
        except Exception as error:  # what follows a torn frame is unreadable: write no more
            self._failure = error

    def _write_frames(self, batch: list[AnyRecord]) -> None:
        for raw in encode(batch):
            payload = self._compressor.compress(raw)
            frame = memoryview(FRAME.pack(len(payload), len(raw), zlib.crc32(payload)) + payload)
            while frame:
                frame = frame[self._file.write(frame) :]

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure


def _claim(path: Path, file: FileIO) -> None:
    """Keep other runs from writing `file`, and empty it.

    The lock is the process's own: a forked child does not have it, and it ends with the process.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise UsageError(
            f"the trace file {path} is being written by another run: name another one"
        ) from None
    except OSError:  # this file system has no locks
        pass
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.truncate(0)


def _create(path: Path, force: bool) -> FileIO:
    try:
        with ExitStack() as stack:
            file = stack.enter_context(FileIO(path, "xb" if not force else "ab"))
            _claim(path, file)
            file.write(HEADER.pack(MAGIC, VERSION))
            stack.pop_all()  # it stays open
            return file
    except FileExistsError:
        raise UsageError(
            f"the trace file {path} exists already: name another one, or add --force"
        ) from None
    except OSError as error:
        raise UsageError(
            f"the trace file {path} cannot be written ({error.strerror}): name another path"
        ) from None

"""The recording side of every recorder: numbers for stacks, threads and streams, and one way out.

No error in here reaches the program under test: each is noted once, and recording goes on.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import msgspec

from streamsan.model import records as r
from streamsan.record import Sink
from streamsan.record._sites import assigned_name, is_ours, is_user, line_text
from streamsan.virtual.monitor import Monitor

_DEPTH = 100
"""Innermost frames kept of a stack."""


class Local(threading.local):
    """Per thread: its timeline, and in which recording it was given."""

    timeline = r.NONE
    run = 0


class Observer:
    """Emits the records of one process to a sink; None takes nothing."""

    def __init__(self) -> None:
        self.monitor = Monitor()
        self.user_files: tuple[str, ...] = ()
        self._sink: Sink | None = None
        self._run = 0
        self._local = Local()
        self._numbers = itertools.count()
        self._timelines = itertools.count()
        self._parents: weakref.WeakKeyDictionary[threading.Thread, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._busy = False
        self._waiting: deque[r.AnyRecord] = deque()
        self._codes: dict[int, CodeType] = {}
        self._streams: dict[int, r.StreamDef] = {}
        self.foreign: Callable[[], int] = lambda: r.NONE
        """Timeline that a thread unknown to Python works for, or NONE: it is one of its own."""
        self._clear()

    def _clear(self) -> None:
        self._stacks: dict[tuple[int, ...], int] = {}
        self._sites: dict[tuple[int, int], int] = {}
        self._site_count = 0
        self._user_sites: set[int] = set()
        self._user_stacks: set[int] = set()
        self._sequence = 0
        self._errors: set[str] = set()

    # -- a recording ------------------------------------------------------------------------------

    def begin(self, sink: Sink, header: r.Header, user_files: tuple[str, ...]) -> None:
        """Start a recording; streams known from before are defined again."""
        with self.monitor:
            self._clear()
            self._sink = sink
            self._run += 1
            self.user_files = user_files
            self._began = time.perf_counter()
            self.emit(header)
            self.thread()
            for stream in self._streams.values():
                self.emit(msgspec.structs.replace(stream, stack=r.NONE))

    def end(self, status: int) -> None:
        """Finish the recording; what comes after is dropped."""
        with self.monitor:
            self.emit(r.End(status, time.perf_counter() - self._began))
            self._sink = None

    @property
    def recording(self) -> bool:
        """Whether a recording is under way."""
        return self._sink is not None

    def abandon(self) -> None:
        """Drop everything from here on: this is a forked child."""
        self._sink = None
        self.monitor.after_fork()

    # -- records ----------------------------------------------------------------------------------

    def emit(self, record: r.AnyRecord) -> None:
        """Hand a record to the sink; one that comes out of the handling of another waits for it."""
        sink = self._sink
        if sink is None:
            return
        with self.monitor:
            if self._busy:
                self._waiting.append(record)
                return
            self._busy = True
            try:
                sink(record)
                while self._waiting:
                    sink(self._waiting.popleft())
            except Exception as error:
                self._busy = False
                self.internal_error(error)
            finally:
                self._busy = False

    def internal_error(self, error: BaseException) -> None:
        """Note an error of ours once."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
        text = f"{type(error).__name__}: {error}{place}"
        if text in self._errors:
            return
        self._errors.add(text)
        if len(self._errors) < 20:
            self.emit(r.Note("internal-error", text))

    def note(self, topic: str, text: str) -> None:
        """Say something in the report."""
        self.emit(r.Note(topic, text))

    def operation(
        self, kind: int, name: str, timeline: int, accesses: tuple[r.Access, ...], **extra: Any
    ) -> None:
        """Report an operation of the calling thread."""
        if self._sink is None:
            return
        try:
            thread = extra.pop("thread", None)
            stack = extra.pop("stack", None)
            with self.monitor:
                if thread is None:
                    thread = self.thread()
                if stack is None:
                    stack = self.stack()
                self._sequence += 1
                self.emit(
                    r.Operation(
                        self._sequence, kind, name, timeline, thread, stack, accesses, **extra
                    )
                )
        except Exception as error:
            self.internal_error(error)

    def next_number(self) -> int:
        """A number not used before, for blocks, events, graphs and host objects."""
        return next(self._numbers)

    # -- threads ----------------------------------------------------------------------------------

    def thread(self) -> int:
        """Timeline of the calling thread."""
        local = self._local
        if local.run != self._run:
            try:
                if threading.get_ident() not in threading._active:  # type: ignore[attr-defined]
                    served = self.foreign()
                    if served != r.NONE:
                        return served
                self._new_thread()
            except Exception as error:
                self.internal_error(error)
        return local.timeline

    def _new_thread(self) -> None:
        local = self._local
        local.run = self._run
        local.timeline = next(self._timelines)
        # Not current_thread(): it would make up a Thread object for a foreign thread.
        known = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        parent, stack = self._parents.get(known, (r.NONE, r.NONE)) if known else (r.NONE, r.NONE)
        name = known.name if known is not None else f"thread {threading.get_native_id()}"
        self.emit(r.ThreadDef(local.timeline, name, parent, stack))

    def starting(self, thread: threading.Thread) -> None:
        """The calling thread is about to start another."""
        if self._sink is not None:
            self._parents[thread] = (self.thread(), self.stack())

    def release(self, number: int) -> None:
        """The calling thread hands over through a host object (T1)."""
        if self._sink is not None:
            self.emit(r.HostRelease(number, self.thread()))

    def acquire(self, number: int) -> None:
        """The calling thread takes what was handed over through a host object (T1)."""
        if self._sink is not None:
            self.emit(r.HostAcquire(number, self.thread()))

    # -- streams ----------------------------------------------------------------------------------

    def stream(self, device: int, handle: int, *, blocking: bool, default: bool, name: str) -> int:
        """Define a stream; its timeline."""
        timeline = next(self._timelines)
        try:
            record = r.StreamDef(
                timeline,
                device,
                handle,
                blocking,
                default,
                name,
                r.NONE if default else self.stack(),
            )
            self._streams[timeline] = record
            self.emit(record)
        except Exception as error:
            self.internal_error(error)
        return timeline

    # -- stacks -----------------------------------------------------------------------------------

    def stack(self) -> int:
        """Number of the calling thread's Python stack, StreamSan's own frames left out."""
        if self._sink is None:
            return r.NONE
        key: list[int] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            key.append(id(frame.f_code))
            key.append(frame.f_lasti)
            frame = frame.f_back
        number = self._stacks.get(tuple(key))
        if number is None:
            try:
                number = self._define(tuple(key), sys._getframe(1))
            except Exception as error:
                self.internal_error(error)
                return r.NONE
        return number

    def is_user_stack(self, number: int) -> bool:
        """Whether a line of the user's is on a stack."""
        return number in self._user_stacks

    def _define(self, key: tuple[int, ...], frame: FrameType | None) -> int:
        with self.monitor:
            sites: list[int] = []
            while frame is not None:
                code = frame.f_code
                self._codes[id(code)] = code  # alive, its id stays its own
                if len(sites) < _DEPTH and not is_ours(code.co_filename):
                    sites.append(self._site(code, frame.f_lineno or code.co_firstlineno))
                frame = frame.f_back
            number = self._stacks[key] = len(self._stacks)
            if any(site in self._user_sites for site in sites):
                self._user_stacks.add(number)
            self.emit(r.StackDef(number, tuple(sites)))
            return number

    def _site(self, code: CodeType, line: int) -> int:
        key = (id(code), line)
        number = self._sites.get(key)
        if number is None:
            number = self._sites[key] = self._site_count
            self._site_count += 1
            file = code.co_filename
            user = is_user(file, self.user_files)
            if user:
                self._user_sites.add(number)
            text = line_text(file, line) if user else ""
            target = assigned_name(file, line) if user else ""
            name = getattr(code, "co_qualname", code.co_name)
            self.emit(r.SiteDef(number, file, line, name, user, text, target))
        return number

    def birth_name(self) -> str:
        """The variable that the user's current statement assigns, or an empty string."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not is_ours(file) and is_user(file, self.user_files):
                return assigned_name(file, frame.f_lineno or 0)
            frame = frame.f_back
        return ""

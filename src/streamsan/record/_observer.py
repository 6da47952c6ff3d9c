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
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import CodeType, FrameType
from typing import Any, TypeVar

import msgspec

from streamsan.model import records as r
from streamsan.record import Sink, _core
from streamsan.record._portable import Outlet
from streamsan.record._sites import (
    assigned_name,
    is_launcher,
    is_ours,
    is_user_frame,
    line_text,
    portable,
)
from streamsan.tracebacks import is_from_a_signal
from streamsan.virtual.monitor import Monitor
from streamsan.virtual.observer import Watcher

_DEPTH = 100
"""Innermost frames kept of a stack, and if none of them is the user's, the next that is."""

_ERRORS = 20
"""Different errors of ours that are told; what follows is told in one sentence."""

_WAITS = (r.StreamSync, r.EventSync, r.DeviceSync)
_HOST = int(r.OpKind.HOST)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _guarded(default: object) -> Callable[[_Method], _Method]:
    """Keep the errors of a method from its caller, who gets `default` then."""

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def call(self: Observer, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.internal_error(error)
                return default

        return call  # type: ignore[return-value]

    return decorate


class Local(threading.local):
    """Per thread: its timeline, and in which recording it was given."""

    timeline = r.NONE
    run = 0


class Observer:
    """Emits the records of one process to a sink; None takes nothing."""

    def __init__(self) -> None:
        self.outlet: Outlet = _core.Outlet()
        """The way out, which is the monitor too."""
        self.monitor: Monitor = self.outlet
        self.user_files: tuple[str, ...] = ()
        self._run = 0
        self._local = Local()
        self.next_number: Callable[[], int] = itertools.count().__next__
        """A number not used before, for blocks, events, graphs and host objects."""
        self._timelines = itertools.count()
        self._parents: weakref.WeakKeyDictionary[threading.Thread, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self.recording = False
        """Whether a recording is under way."""
        self._codes: dict[int, CodeType] = {}
        self.stacks = _core.stacks(self._define)
        self.user_stacks: set[int] = set()
        """Numbers of those with a line of the user's."""
        self._streams: dict[int, r.StreamDef] = {}
        self.foreign: Callable[[], int] = lambda: r.NONE
        """Timeline that a thread unknown to Python works for, or NONE: it is one of its own."""
        self.watcher: Watcher | None = None
        self._used = False
        self._clear()

    def _clear(self) -> None:
        self.stacks.clear()
        self._stack_count = 0
        self._sites: dict[tuple[int, int], int] = {}
        self._site_count = 0
        self._user_sites: set[int] = set()
        self.user_stacks.clear()
        self.outlet.sequence = 0
        self._errors: set[str] = set()
        self._untold: r.Note | None = None
        self._notes: set[tuple[str, str]] = set()

    # -- a recording ------------------------------------------------------------------------------

    def begin(self, sink: Sink, header: r.Header, user_files: tuple[str, ...]) -> None:
        """Start a recording; streams known from before are defined again."""
        with self.monitor:
            self._used = self.used
            self._clear()
            self.outlet.sink = sink
            self._run += 1
            self.user_files = user_files
            self._set_recording(True)
            self._began = time.perf_counter()
            self.emit(header)
            self.thread()
            for stream in self._streams.values():
                self.emit(stream)

    def end(self, status: int) -> None:
        """Finish the recording; what comes after is dropped."""
        with self.monitor:
            if self._untold is not None:
                self.emit(self._untold)
            self.emit(r.End(status, time.perf_counter() - self._began))
            self.outlet.sink = None
            self._set_recording(False)

    def _set_recording(self, on: bool) -> None:
        self.recording = self.outlet.recording = on

    @property
    def used(self) -> bool:
        """Whether an operation was recorded in this process so far."""
        return self._used or self.outlet.sequence > 0

    def abandon(self) -> None:
        """Drop everything from here on: this is a forked child."""
        self.outlet.sink = None
        self._set_recording(False)
        self.monitor.after_fork()

    # -- records ----------------------------------------------------------------------------------

    def emit(self, record: r.AnyRecord) -> None:
        """Hand a record to the sink; one that comes out of the handling of another waits for it."""
        if not self.recording:
            return
        try:
            if self.watcher is not None and isinstance(record, _WAITS):
                self.watcher.waits(record)
            self.outlet.emit(record)
        except Exception as error:
            self.internal_error(error)

    def internal_error(self, error: BaseException) -> None:
        """Note an error of ours once. One that a signal's handler has raised is the program's."""
        if is_from_a_signal(error):
            raise error
        with suppress(Exception), self.monitor:
            text = _describe(error)
            if text in self._errors or len(self._errors) > _ERRORS:
                return
            self._errors.add(text)
            if len(self._errors) > _ERRORS:
                text = f"more than {_ERRORS} different errors: the others are not told"
            note = self._untold = r.Note("internal-error", text)
            self.outlet.hand_on(note)
            self._untold = None

    @_guarded(None)
    def note(self, topic: str, text: str) -> None:
        """Say something in the report."""
        self.emit(r.Note(topic, text))

    @_guarded(None)
    def note_once(self, topic: str, text: str) -> None:
        """Say something in the report, though it may come up again."""
        with self.monitor:
            if (topic, text) not in self._notes:
                self._notes.add((topic, text))
                self.emit(r.Note(topic, text))

    def operation(
        self,
        kind: int,
        name: str,
        timeline: int,
        accesses: tuple[r.Access, ...],
        *,
        copy: int = 0,
        node: str = "",
        forward: int = r.NONE,
        context: int = r.NONE,
        graph: int = r.NONE,
        captured: bool = False,
        thread: int | None = None,
        stack: int | None = None,
    ) -> None:
        """Report an operation, of the calling thread and its stack unless told otherwise."""
        if not self.recording:
            return
        try:
            if thread is None:
                thread = self.thread()
            if stack is None:
                stack = self.stack()
            outlet = self.outlet
            with outlet:
                outlet.sequence += 1
                outlet.hand_on(
                    r.Operation(
                        outlet.sequence, kind, name, timeline, thread, stack, accesses, copy, node,
                        forward, context, graph, captured,
                    )
                )  # fmt: skip
            if (copy or kind == _HOST) and self.watcher is not None:
                self.watcher.touched(copy, timeline, accesses, captured)
        except Exception as error:
            self.internal_error(error)

    # -- threads ----------------------------------------------------------------------------------

    def thread(self) -> int:
        """Timeline of the calling thread."""
        local = self._local
        return local.timeline if local.run == self._run else self._other_thread()

    @_guarded(r.NONE)
    def _other_thread(self) -> int:
        """Timeline of a thread that is new in this recording, or works for another."""
        if threading.get_ident() not in threading._active:  # type: ignore[attr-defined]
            served = self.foreign()
            if served != r.NONE:
                return served
        self._new_thread()
        return self._local.timeline

    def _new_thread(self) -> None:
        local = self._local
        local.run = self._run
        local.timeline = next(self._timelines)
        # Not current_thread(): it would make up a Thread object for a foreign thread.
        known = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        parent, stack = self._parents.get(known, (r.NONE, r.NONE)) if known else (r.NONE, r.NONE)
        name = known.name if known is not None else f"thread {threading.get_native_id()}"
        self.emit(r.ThreadDef(local.timeline, name, parent, stack))

    @_guarded(None)
    def starting(self, thread: threading.Thread) -> None:
        """The calling thread is about to start another."""
        if self.recording:
            self._parents[thread] = (self.thread(), self.stack())

    @_guarded(None)
    def ended(self, thread: threading.Thread) -> None:
        """The calling thread, `thread`, has handed over to whoever joins it, and ends."""
        if self.recording and self._local.run == self._run:
            self.emit(r.ThreadEnd(self._local.timeline))

    @_guarded(None)
    def release(self, number: int) -> None:
        """The calling thread hands over through a host object (T1)."""
        if self.recording:
            self.emit(r.HostRelease(number, self.thread()))

    @_guarded(None)
    def acquire(self, number: int) -> None:
        """The calling thread takes what was handed over through a host object (T1)."""
        if self.recording:
            self.emit(r.HostAcquire(number, self.thread()))

    # -- streams ----------------------------------------------------------------------------------

    @_guarded(r.NONE)
    def stream(self, device: int, handle: int, *, blocking: bool, default: bool, name: str) -> int:
        """Define a stream; its timeline."""
        timeline = next(self._timelines)
        stack = r.NONE if default else self.stack()
        record = r.StreamDef(timeline, device, handle, blocking, default, name, stack)
        # Numbers of stacks do not outlast a recording, so the next one gets its name in full.
        self._streams[timeline] = msgspec.structs.replace(
            record, name=name or self.birth_name(), stack=r.NONE
        )
        self.emit(record)
        return timeline

    # -- stacks -----------------------------------------------------------------------------------

    def stack(self) -> int:
        """Number of the calling thread's Python stack, StreamSan's own frames left out."""
        if not self.recording:
            return r.NONE
        try:
            return self.stacks.number()
        except Exception as error:
            self.internal_error(error)
            return r.NONE

    def is_user_stack(self, number: int) -> bool:
        """Whether a line of the user's is on a stack."""
        return number in self.user_stacks

    def _define(self, frame: FrameType | None) -> int:
        """A number for a new stack, given with its innermost frame."""
        with self.monitor:
            sites: list[int] = []
            user = cut = outside = False
            while frame is not None:
                code = frame.f_code
                self._codes[id(code)] = code  # alive, its id stays its own
                outside = outside or is_launcher(code.co_filename)
                if outside or is_ours(code.co_filename):
                    pass
                elif user and len(sites) >= _DEPTH:
                    cut = True
                else:
                    site = self._site(frame)
                    user = user or site in self._user_sites
                    if len(sites) < _DEPTH or user:
                        sites.append(site)
                frame = frame.f_back
            if cut:
                self.note_once("blind-spot", f"callers beyond the innermost {_DEPTH} frames")
            number = self._stack_count
            self._stack_count += 1
            if user:
                self.user_stacks.add(number)
            self.emit(r.StackDef(number, tuple(sites)))
            return number

    def _site(self, frame: FrameType) -> int:
        code = frame.f_code
        line = frame.f_lineno or code.co_firstlineno
        key = (id(code), line)
        number = self._sites.get(key)
        if number is None:
            number = self._sites[key] = self._site_count
            self._site_count += 1
            file = code.co_filename
            user = is_user_frame(frame, self.user_files)
            if user:
                self._user_sites.add(number)
            text = line_text(file, line) if user else ""
            target = assigned_name(file, line) if user else ""
            name = getattr(code, "co_qualname", code.co_name)
            shown = file if user else portable(file)
            self.emit(r.SiteDef(number, shown, line, name, user, text, target))
        return number

    @_guarded("")
    def birth_name(self) -> str:
        """The variable that the user's current statement assigns, or an empty string."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not is_ours(file) and is_user_frame(frame, self.user_files):
                return assigned_name(file, frame.f_lineno or 0)
            frame = frame.f_back
        return ""


def _describe(error: BaseException) -> str:
    """An error and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"

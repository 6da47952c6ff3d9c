"""Host threads: what orders them, and a place to stand in each new one (rules T1 and T2).

Hand-overs are reported for threads and for locks, queues and all that is built on them, as far as
these were made while installed. Not seen: threads that ``_thread`` or native code starts, locks of
``_thread`` itself, and names that a module imported from ``threading`` before.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from streamsan.record._hosts_locks import Lock, RLock, SimpleQueue
from streamsan.record._hosts_report import REPORTER, Callbacks, Handover
from streamsan.tracebacks import remove_our_frames

__all__ = ["Callbacks", "HostThreads"]

_KEY = "_streamsan_handover"
"""Where a thread, an event or an event loop keeps its hand-over, in its instance's dict."""

Method = Callable[..., Any]


class HostThreads:
    """Reports hand-overs between host threads to `callbacks` while installed.

    The new thread acquires what its starter had done, then `before_run`, ``run`` and `after_run`
    follow in it, then it releases to whoever joins it. A forked child reports nothing.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._patches: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Start to report. Raises RuntimeError where a recording is already at work."""
        if REPORTER.recording:
            raise RuntimeError("host threads are being recorded already")
        REPORTER.begin(self._callbacks)
        REPORTER.on = threading.active_count() > 1
        self._replace(threading, "Lock", Lock)
        self._replace(threading, "RLock", RLock)
        self._replace(queue, "SimpleQueue", SimpleQueue)
        for name, wrap in _THREAD.items():
            self._wrap(threading.Thread, name, wrap)
        for name, wrap in _EVENT.items():
            self._wrap(threading.Event, name, wrap)
        asyncio = sys.modules.get("asyncio.base_events")
        if asyncio is not None:
            self._wrap(asyncio.BaseEventLoop, "call_soon_threadsafe", _call_soon_threadsafe)

    def uninstall(self) -> None:
        """Stop to report and put back what was replaced; locks handed out go on to work."""
        REPORTER.end()
        while self._patches:
            owner, name, original, replacement = self._patches.pop()
            if vars(owner).get(name) is replacement:  # else someone patched it after us
                setattr(owner, name, original)

    def _wrap(self, owner: type, name: str, wrap: Callable[[Method], Method]) -> None:
        original: Method = vars(owner)[name]
        self._replace(owner, name, wraps(original)(wrap(original)))

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        self._patches.append((owner, name, vars(owner)[name], replacement))
        setattr(owner, name, replacement)


def _handover(thing: object) -> Handover:
    made: Handover | None = vars(thing).get(_KEY)
    if made is None:
        made = vars(thing).setdefault(_KEY, Handover())
    return made


def _thread_init(original: Method) -> Method:
    def __init__(self: threading.Thread, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        # A thread sets this event before ``threading`` knows it: a callback that asks for the
        # current thread there would bring a dummy thread into being.
        _silence(self._started)  # type: ignore[attr-defined]

    return __init__


class _Silent(Handover):
    """A hand-over that is not told."""

    __slots__ = ()

    def give(self) -> None:
        """Tell nothing."""

    def take(self) -> None:
        """Tell nothing."""


def _silence(event: threading.Event) -> None:
    event._cond = threading.Condition(_thread.allocate_lock())  # type: ignore[attr-defined]
    vars(event)[_KEY] = _Silent()


def _thread_start(original: Method) -> Method:
    def start(self: threading.Thread) -> None:
        known = getattr(self, "_started", None)
        if not REPORTER.recording or known is None or known.is_set():
            original(self)  # in the latter two cases to raise what it raises
            return
        REPORTER.on = True
        REPORTER.call("started", self)
        _handover(self).give()
        own = vars(self).get("run")  # a program may have set it on the instance
        self.run = partial(_run, self, own)  # type: ignore[method-assign]
        _clean_exceptions(self)
        try:
            original(self)
        except BaseException:
            if not known.is_set():
                _restore_run(self, own)
            raise

    return start


def _run(thread: threading.Thread, own: Method | None) -> None:
    """Take the place of the thread's ``run``, for one call."""
    _restore_run(thread, own)
    _handover(thread).take()
    REPORTER.call("before_run", thread)
    try:
        thread.run()
    finally:
        REPORTER.call("after_run", thread)
        _handover(thread).give()
        REPORTER.call("ended", thread)


def _clean_exceptions(thread: threading.Thread) -> None:
    """Let ``threading.excepthook`` see no frames of ours."""
    invoke: Method = thread._invoke_excepthook  # type: ignore[attr-defined]

    def invoke_cleanly(*args: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            with suppress(Exception):
                remove_our_frames(error)
        invoke(*args)

    thread._invoke_excepthook = invoke_cleanly  # type: ignore[attr-defined]


def _restore_run(thread: threading.Thread, own: Method | None) -> None:
    if own is None:
        vars(thread).pop("run", None)
    else:
        thread.run = own  # type: ignore[method-assign]


def _thread_join(original: Method) -> Method:
    def join(self: threading.Thread, timeout: float | None = None) -> None:
        original(self, timeout)
        if REPORTER.on:
            threading.Thread.is_alive(self)  # takes the hand-over where the thread has ended

    return join


def _thread_is_alive(original: Method) -> Method:
    def is_alive(self: threading.Thread) -> bool:
        alive: bool = original(self)
        if not alive and REPORTER.on:
            _take_of(self)
        return alive

    return is_alive


def _event_set(original: Method) -> Method:
    def set(self: threading.Event) -> None:  # noqa: A001
        # Who polls `is_set` takes no lock, so the flag must not be up before this is told.
        if REPORTER.on:
            _handover(self).give()
        original(self)

    return set


def _event_is_set(original: Method) -> Method:
    def is_set(self: threading.Event) -> bool:
        answer: bool = original(self)
        if answer and REPORTER.on:
            _take_of(self)
        return answer

    return is_set


def _take_of(thing: object) -> None:
    handover: Handover | None = vars(thing).get(_KEY)
    if handover is not None:
        handover.take()


def _call_soon_threadsafe(original: Method) -> Method:
    def call_soon_threadsafe(self: Any, callback: Method, *args: Any, context: Any = None) -> Any:
        if REPORTER.on and callable(callback):
            handover = _handover(self)
            handover.give()
            callback = _taking(handover, callback)
        return original(self, callback, *args, context=context)

    return call_soon_threadsafe


def _taking(handover: Handover, callback: Method) -> Method:
    @wraps(callback, updated=())
    def taking(*args: Any) -> Any:
        handover.take()
        return callback(*args)

    return taking


_THREAD = {
    "__init__": _thread_init,
    "start": _thread_start,
    "join": _thread_join,
    "is_alive": _thread_is_alive,
}
_EVENT = {"set": _event_set, "is_set": _event_is_set}

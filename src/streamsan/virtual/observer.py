"""What the virtual GPU tells whoever watches it; the recorder implements this."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from streamsan.model.records import (
    NONE,
    Access,
    AnyRecord,
    DeviceSync,
    EventDestroy,
    EventSync,
    StreamSync,
)
from streamsan.virtual.monitor import Monitor


class Watcher(Protocol):
    """Looks at host memory when the recording says what happens to it."""

    def touched(self, copy: int, stream: int, accesses: tuple[Access, ...], captured: bool) -> None:
        """A copy was enqueued, or the host has touched memory (`copy` 0), and that was told."""

    def waits(self, record: StreamSync | DeviceSync | EventSync) -> None:
        """It is about to be told that a thread has waited."""


class Observer(Protocol):
    """Takes the records of the virtual GPU and supplies the numbers in them.

    `monitor` is the lock that the machine shares with the recording.
    """

    monitor: Monitor
    watcher: Watcher | None

    def emit(self, record: AnyRecord) -> None:
        """Hand one record on."""

    def stack(self) -> int:
        """Number of the calling thread's Python stack."""

    def thread(self) -> int:
        """Timeline of the calling thread."""

    def stream(self, device: int, handle: int, *, blocking: bool, default: bool, name: str) -> int:
        """Define a stream; its timeline."""

    def birth_name(self) -> str:
        """The variable that the user's current statement assigns, or an empty string."""

    def operation(
        self,
        kind: int,
        name: str,
        timeline: int,
        accesses: tuple[Access, ...],
        *,
        copy: int = 0,
        node: str = "",
        forward: int = NONE,
        context: int = NONE,
        graph: int = NONE,
        captured: bool = False,
        thread: int | None = None,
        stack: int | None = None,
    ) -> None:
        """Report an operation, of the calling thread and its stack unless told otherwise."""

    def internal_error(self, error: BaseException) -> None:
        """Note an error of ours, for the report."""

    def note_once(self, topic: str, text: str) -> None:
        """Say something in the report, though it may come up again."""

    def next_number(self) -> int:
        """A number not used before, for blocks, events, graphs and host objects."""


def tell_destroyed(observer: Observer, number: int) -> None:
    """An event is gone (E5). For a finalizer, which may run at any moment."""
    observer.monitor.later(lambda: observer.emit(EventDestroy(number, observer.thread())))


_Method = TypeVar("_Method", bound=Callable[..., None])


def tells(method: _Method) -> _Method:
    """A method that only tells ``self.observer`` something: its errors go there too.

    What it could not tell is missing from the report, but never from the program's results.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.observer.internal_error(error)

    return call  # type: ignore[return-value]


class Nobody:
    """Watches nothing: the virtual GPU alone."""

    watcher: Watcher | None = None

    def __init__(self) -> None:
        self._number = 0
        self.monitor = Monitor()

    def emit(self, record: AnyRecord) -> None:
        """Drop the record."""

    def stack(self) -> int:
        """No stack."""
        return NONE

    def thread(self) -> int:
        """No timeline."""
        return NONE

    def stream(self, device: int, handle: int, *, blocking: bool, default: bool, name: str) -> int:
        """No timeline."""
        return NONE

    def birth_name(self) -> str:
        """No name."""
        return ""

    def operation(
        self,
        kind: int,
        name: str,
        timeline: int,
        accesses: tuple[Access, ...],
        *,
        copy: int = 0,
        node: str = "",
        forward: int = NONE,
        context: int = NONE,
        graph: int = NONE,
        captured: bool = False,
        thread: int | None = None,
        stack: int | None = None,
    ) -> None:
        """Drop the operation."""

    def internal_error(self, error: BaseException) -> None:
        """There is no report."""

    def note_once(self, topic: str, text: str) -> None:
        """There is no report."""

    def next_number(self) -> int:
        """The next number."""
        self._number += 1
        return self._number

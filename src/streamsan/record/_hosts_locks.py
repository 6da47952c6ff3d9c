"""Stand-ins for ``threading.Lock``, ``threading.RLock`` and ``queue.SimpleQueue`` (rule T1).

They behave as the originals and report each hand-over. All else in the standard library is built
on them: conditions, events, semaphores, barriers, queues, futures, executors.
"""

from __future__ import annotations

import _thread
import queue
from types import TracebackType
from typing import Any, ClassVar, NoReturn, TypeVar

from streamsan.record._hosts_report import REPORTER, Handover

T = TypeVar("T")


class _StandIn(type):
    """Makes instances of the class stood in for instances of the stand-in too."""

    _original: ClassVar[type]

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        original = cls.__dict__.get("_original")  # a subclass of a stand-in has none
        return original is not None and isinstance(instance, original)


class _LockHandover(Handover):
    """The hand-over of a lock: only the release that unlocked it orders who takes it next."""

    __slots__ = ()

    def take(self) -> None:
        """Report the acquisition, unless this thread itself was the last to release."""
        if self.giver and self.giver != REPORTER.thread:
            super().take()


class Lock(metaclass=_StandIn):
    """Stands in for ``threading.Lock``, whose type does not allow subclasses."""

    __slots__ = ("__weakref__", "_handover", "_inner")
    _original = _thread.LockType

    def __init__(self) -> None:
        self._inner = _thread.allocate_lock()
        self._handover = _LockHandover()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The type stood in for: ``isinstance`` against it holds."""
        return _thread.LockType

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; see ``threading.Lock.acquire``."""
        taken = self._inner.acquire(blocking, timeout)
        if taken:
            try:
                self._handover.take()
            except BaseException:  # an interrupt must not leave the lock taken
                self._inner.release()
                raise
        return taken

    def release(self) -> None:
        """Give the lock up; see ``threading.Lock.release``."""
        try:
            if self._inner.locked():
                self._handover.give()
        finally:
            self._inner.release()

    def locked(self) -> bool:
        """Say whether the lock is taken."""
        return self._inner.locked()

    acquire_lock = acquire
    release_lock = release
    locked_lock = locked
    __enter__ = acquire

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._inner._at_fork_reinit()  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("cannot pickle '_thread.lock' object")

    def __repr__(self) -> str:
        return repr(self._inner)


class RLock(_thread.RLock, metaclass=_StandIn):  # type: ignore[misc]  # final to mypy only
    """Stands in for ``threading.RLock``: the outermost acquire and release hand over."""

    __slots__ = ("_depth", "_handover")
    _original = _thread.RLock

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        self._depth = 0
        self._handover = _LockHandover()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; see ``threading.RLock.acquire``."""
        taken = super().acquire(blocking, timeout)
        if taken:
            self._depth += 1
            if self._depth == 1:
                self._took()
        return taken

    def release(self) -> None:
        """Give the lock up once; see ``threading.RLock.release``."""
        try:
            if self._is_owned():  # type: ignore[attr-defined]
                self._depth -= 1
                if not self._depth:
                    self._handover.give()
        finally:
            super().release()

    __enter__ = acquire

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _took(self) -> None:
        try:
            self._handover.take()
        except BaseException:  # an interrupt must not leave the lock taken
            self._depth = 0
            super().release()
            raise

    def _release_save(self) -> tuple[Any, int]:
        """Give the lock up however often it was taken; ``Condition.wait`` calls this."""
        depth = self._depth
        if self._is_owned():  # type: ignore[attr-defined]
            self._handover.give()
            self._depth = 0
        return super()._release_save(), depth  # type: ignore[misc]

    def _acquire_restore(self, state: tuple[Any, int]) -> None:
        super()._acquire_restore(state[0])  # type: ignore[misc]
        self._depth = state[1]
        self._handover.take()

    def _at_fork_reinit(self) -> None:
        super()._at_fork_reinit()  # type: ignore[misc]
        self._depth = 0


class SimpleQueue(queue.SimpleQueue[T], metaclass=_StandIn):
    """Stands in for ``queue.SimpleQueue``: a put hands over to the gets that follow."""

    _original = queue.SimpleQueue

    def __init__(self) -> None:
        super().__init__()
        self._handover = Handover()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Put an item; see ``queue.SimpleQueue.put``."""
        self._handover.give()
        super().put(item, block, timeout)

    def put_nowait(self, item: T) -> None:
        """Put an item; see ``queue.SimpleQueue.put_nowait``."""
        self._handover.give()
        super().put_nowait(item)

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take an item; see ``queue.SimpleQueue.get``."""
        item = super().get(block, timeout)
        self._handover.take()
        return item

    def get_nowait(self) -> T:
        """Take an item; see ``queue.SimpleQueue.get_nowait``."""
        item = super().get_nowait()
        self._handover.take()
        return item

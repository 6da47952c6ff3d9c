"""The one lock of a recording: it knows who holds it, and keeps work back until it is let go."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Monitor:
    """A re-entrant lock. Finalizers may run at any moment, also in the middle of a change that this
    lock guards; they hand their work to `later`, which runs it when the lock is next free.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = 0
        self._depth = 0
        self._later: deque[Callable[[], None]] = deque()

    def __enter__(self) -> Monitor:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1
        if self._depth == 1 and self._later:
            try:
                self._run_later()
            except BaseException:
                self.__exit__()
                raise
        return self

    def _run_later(self) -> None:
        while self._later:
            self._later.popleft()()

    def __exit__(self, *exc_info: object) -> None:
        try:
            if self._depth == 1:
                self._run_later()
        finally:
            self._depth -= 1
            if not self._depth:
                self._owner = 0
            self._lock.release()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let other threads have the lock for a while, however often the caller took it."""
        depth, self._depth, self._owner = self._depth, 0, 0
        for _ in range(depth):
            self._lock.release()
        try:
            yield
        finally:
            for _ in range(depth):
                self._lock.acquire()
            self._depth, self._owner = depth, threading.get_ident()

    @property
    def mine(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` under the lock: now, or when whoever holds the lock lets it go.

        It does not wait: a finalizer that did could wait for a thread that waits for its own.
        Work that comes too late for the holder is done by the next one, before anything else.
        """
        self._later.append(work)
        if not self.mine and self._lock.acquire(blocking=False):
            try:
                with self:
                    pass
            finally:
                self._lock.release()

    def after_fork(self) -> None:
        """Start afresh in a forked child, where the thread that held the lock is gone."""
        self.__init__()  # type: ignore[misc]

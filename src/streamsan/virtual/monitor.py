"""The one lock of a recording: it knows who holds it, and keeps work back until it is let go."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


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
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            if self._depth == 1:
                while self._later:
                    self._later.popleft()()
        finally:
            self._depth -= 1
            if not self._depth:
                self._owner = 0
            self._lock.release()

    @property
    def mine(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` under the lock: now, or when the calling thread lets it go."""
        self._later.append(work)
        if not self.mine:
            with self:
                pass

    def after_fork(self) -> None:
        """Start afresh in a forked child, where the thread that held the lock is gone."""
        self.__init__()  # type: ignore[misc]

"""Work that several processes do together, each on a virtual machine of its own.

A collective has two tasks on its stream. The first takes its inputs and hands them to the
transport; the second waits until the transport has what the other processes gave, and writes the
outputs. NCCL's kernels run beside the host and beside one another, so a program may rely on a
collective to get on whatever its host waits for. Here the host runs the device, and therefore

- where it waits for one collective, it begins all others that can begin: two processes may wait
  for theirs in different orders;
- where it is busy elsewhere, a thread begins what has been enqueued for `PATIENCE` seconds: the
  host may be waiting for a process that waits for the collective.

So the only processes that wait for ever are those that would do so with NCCL.
"""

from __future__ import annotations

import _thread
import atexit
import time
from typing import TYPE_CHECKING

from streamsan.virtual.streams import Task, advance

if TYPE_CHECKING:
    from streamsan.virtual.gpu import Gpu

PATIENCE = 0.1
"""Seconds that a collective may be enqueued before it begins although nothing here waits for it."""

LAST_SECONDS = 10.0
"""Seconds that a process which ends gives to the collectives it still takes part in."""

_MOMENT = 0.0005


class Transfers:
    """The exchanges of one machine that have not begun, or have not come to their end."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._begins: list[tuple[Task, float]] = []
        self._watched = False
        self._registered = False
        self.outstanding = 0
        """How many exchanges have not ended."""

    def add(self, begin: Task) -> None:
        """An exchange was enqueued, which `begin` begins."""
        self.outstanding += 1
        self._begins.append((begin, time.monotonic() + PATIENCE))
        if not self._registered:
            self._registered = True
            atexit.register(self._finish)
        if not self._watched:
            self._watched = True
            _thread.start_new_thread(self._watch, ())

    def ended(self) -> None:
        """An exchange has come to its end."""
        self.outstanding -= 1

    def begin_all(self) -> None:
        """Begin what can begin without waiting."""
        for task, _ in self._begins:
            advance(task)
        self._begins = [entry for entry in self._begins if not entry[0].done]

    def pass_time(self) -> None:
        """A moment of a thread that waits for another process. The machine is free meanwhile."""
        self.begin_all()
        with self._gpu.monitor.released():
            time.sleep(_MOMENT)

    def _watch(self) -> None:
        """Begin what its host has left enqueued for too long, until there is nothing enqueued."""
        while True:
            time.sleep(PATIENCE / 4)
            with self._gpu.monitor:
                if any(due < time.monotonic() for _, due in self._begins):
                    self.begin_all()
                if not self._begins:
                    self._watched = False
                    return

    def _finish(self) -> None:
        """Take part in what is enqueued to the end, for other processes may wait for it."""
        end = time.monotonic() + LAST_SECONDS
        with self._gpu.monitor:
            while self.outstanding and time.monotonic() < end:
                self._gpu.schedule.go_on(self._gpu.streams())
                for stream in self._gpu.streams():
                    if stream.tail is not None:
                        advance(stream.tail)
                self.pass_time()

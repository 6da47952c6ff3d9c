"""Schedules: which ready task of the virtual GPU runs next, and when.

``program`` runs each task as it is enqueued, which is what CUDA_LAUNCH_BLOCKING=1 amounts to;
``late`` runs nothing before something waits for it; ``hold:STREAM`` keeps one stream late and runs
all others as soon as they can; ``random:SEED`` runs ready tasks at random moments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from streamsan.errors import UsageError
from streamsan.virtual.streams import Stream

NAMES = ("program", "late", "hold:STREAM", "random:SEED")
"""The schedules as a user writes them."""


class Schedule(Protocol):
    """Decides what runs after each submission and each wait.

    `immediate` is whether work runs at once, and nothing is queued but behind a collective that
    waits for other processes.
    """

    immediate: bool

    def go_on(self, streams: Sequence[Stream]) -> None:
        """Run what this schedule wants to run now that tasks were queued, or waited for."""

    def remark(self, streams: Sequence[Stream]) -> str:
        """What the user should know at the end of a run about the schedule, or nothing."""


class Program:
    """Each task as it is enqueued."""

    immediate = True

    def go_on(self, streams: Sequence[Stream]) -> None:
        """Run what a collective has held up, as far as that goes."""
        held = [stream for stream in streams if stream.queue]
        while any(stream.step() for stream in held):
            pass

    def remark(self, streams: Sequence[Stream]) -> str:
        """Nothing."""
        return ""


class Late:
    """Only what somebody waits for."""

    immediate = False

    def go_on(self, streams: Sequence[Stream]) -> None:
        """Leave everything queued."""

    def remark(self, streams: Sequence[Stream]) -> str:
        """Nothing."""
        return ""


class Hold:
    """One stream late, all others as soon as they can.

    `name` is a stream's name (or the last part of it, `copy` for `self.copy`) or its handle.
    """

    immediate = False

    def __init__(self, name: str) -> None:
        self._name = name

    def holds(self, stream: Stream) -> bool:
        """Whether `stream` is the one held back."""
        if self._name == "default":
            return stream.default
        return self._name in (stream.name, stream.name.rpartition(".")[2], str(stream.handle))

    def go_on(self, streams: Sequence[Stream]) -> None:
        """Run everything that does not wait for the held stream."""
        others = [stream for stream in streams if stream.queue and not self.holds(stream)]
        while any(stream.step() for stream in others):
            pass

    def remark(self, streams: Sequence[Stream]) -> str:
        """Say so where the program had no such stream, and nothing was held."""
        if any(self.holds(stream) for stream in streams):
            return ""
        names = sorted({stream.name or str(stream.handle) for stream in streams})
        return (
            f"the schedule hold:{self._name} held nothing: the program's streams are"
            f" {', '.join(names)}"
        )


class Random:
    """After each submission, a random number of ready tasks of random streams."""

    immediate = False

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def go_on(self, streams: Sequence[Stream]) -> None:
        """Run between none and all ready tasks, one at a time."""
        while self._random.random() < 0.5:
            ready = [stream for stream in streams if stream.queue and stream.queue[0].ready]
            if not ready:
                return
            self._random.choice(ready).step()

    def remark(self, streams: Sequence[Stream]) -> str:
        """Nothing."""
        return ""


def parse(text: str) -> Schedule:
    """The schedule that `text` names; UsageError where there is none."""
    name, _, argument = text.partition(":")
    if name == "program" and not argument:
        return Program()
    if name == "late" and not argument:
        return Late()
    if name == "hold" and argument:
        return Hold(argument)
    if name == "random" and argument.lstrip("-").isdigit():
        return Random(int(argument))
    raise UsageError(f"no schedule '{text}': choose one of {', '.join(NAMES)}")

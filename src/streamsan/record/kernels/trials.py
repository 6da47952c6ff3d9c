"""Trials: an autotuner launches the same kernel over and over again, only to take its time.

The first launch of each trial is told like any other. Those that follow it repeat it, on the same
stream and with nothing in between, so they could add nothing to a report; telling them would take
time in the very moments that are measured, and the tuner might choose, and remember, another kernel
than without us.
"""

from __future__ import annotations

import functools
import threading
from typing import Any


class Trials(threading.local):
    """Per thread: the launchers that were told of since a trial began; None outside of trials."""

    told: set[int] | None = None

    def repeats(self, launcher: object) -> bool:
        """Whether this trial has had a launch by that launcher; the next one will have."""
        if self.told is None:
            return False
        known = id(launcher) in self.told
        self.told.add(id(launcher))
        return known

    def watch(self, owner: Any, name: str) -> None:
        """Take each call of a method for a trial."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def trial(*args: Any, **kwargs: Any) -> Any:
            if self.told is not None:
                return original(*args, **kwargs)
            self.told = set()
            try:
                return original(*args, **kwargs)
            finally:
                self.told = None

        setattr(owner, name, trial)

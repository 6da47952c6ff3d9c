"""Recorders: what turns a running program's calls into records of `streamsan.model.records`.

`open_recorder` is the one entrance. The recorder hands every record, in order of submission and
from whichever thread, to the sink it was given; it takes a lock of its own around each call, so a
sink needs none. `remove_our_frames` cleans the traceback of an exception of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from streamsan.allocator import DEFAULT
from streamsan.model.records import AnyRecord
from streamsan.record._tracebacks import remove_our_frames

__all__ = [
    "Options",
    "Recorder",
    "Sink",
    "open_recorder",
    "remove_our_frames",
    "use_allocator",
]

Sink = Callable[[AnyRecord], None]
"""Takes the records of a run, one at a time."""


@dataclass(frozen=True)
class Options:
    """How to record.

    `device` is ``auto``, ``cuda`` or ``virtual``; `devices`, the number of virtual GPUs;
    `schedule`, the virtual GPU's ``NAME`` or ``NAME:ARGUMENT``; `allocator`, one of
    `streamsan.allocator.NAMES`; `engine`, one of `streamsan.autograd.POLICIES`, or empty for
    torch's own; `memory`, bytes of one virtual GPU. `user_files` are files that count as the user's
    wherever they lie (the script itself).
    """

    device: str = "auto"
    devices: int = 1
    schedule: str = "program"
    allocator: str = DEFAULT
    engine: str = ""
    memory: int = 16 << 30
    user_files: tuple[str, ...] = ()
    arguments: tuple[str, ...] = field(default=())


class Recorder(Protocol):
    """A recorder at work. `name` is ``virtual`` or ``cuda``; `lock` is held around each record."""

    name: str

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock. Who holds one of his own in the sink takes this one first everywhere else."""

    def stop(self, status: int = 0) -> None:
        """End the recording: emit what is outstanding and the End record. Never raises."""


def open_recorder(options: Options, sink: Sink) -> Recorder:
    """Start to record this process. Raises UsageError where torch or the device is no good."""
    from streamsan.record import _torch

    return _torch.start(options, sink)


def use_allocator(name: str) -> None:
    """Make one of `streamsan.allocator.NAMES` torch's allocator on the GPU, without recording.

    It is so for the rest of the process. Where memory is short, operators raise what torch makes of
    ``std::bad_alloc``: a RuntimeError. Raises UsageError where torch or the GPU is no good, and
    where the GPU is in use already.
    """
    from streamsan.record import _torch

    _torch.use_allocator(name)

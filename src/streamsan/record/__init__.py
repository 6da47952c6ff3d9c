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
from streamsan.tracebacks import remove_our_frames

__all__ = [
    "Options",
    "Recorder",
    "Sink",
    "core_is_compiled",
    "device_of",
    "dispatcher_problem",
    "driver_problem",
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
    torch's own; `driver`, whether to watch the driver's calls on a real GPU: ``on``, ``off`` or
    ``auto``, which is once a library that makes such calls has been imported; `memory`, bytes of
    one virtual GPU. `user_files` are files that count as the user's wherever they lie (the script
    itself).
    """

    device: str = "auto"
    devices: int = 1
    schedule: str = "program"
    allocator: str = DEFAULT
    engine: str = ""
    driver: str = "auto"
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


def device_of(options: Options) -> str:
    """``cuda`` or ``virtual``: where this process would be recorded. Raises as `open_recorder`."""
    if options.device == "virtual":
        return options.device
    from streamsan.record import _torch

    return _torch.device_of(options)


def open_recorder(options: Options, sink: Sink) -> Recorder:
    """Start to record this process. Raises UsageError where torch or the device is no good."""
    from streamsan.record import _torch

    return _torch.start(options, sink)


def core_is_compiled() -> bool:
    """Whether the parts that run for each operator on a GPU are compiled ones."""
    from streamsan.record import _core

    return _core.compiled()


def dispatcher_problem() -> str:
    """Why operators cannot be seen from inside of torch's dispatcher here, or an empty string.

    What that takes is compiled, if it is not there yet.
    """
    from streamsan.record import dispatch

    return dispatch.problem()


def driver_problem() -> str:
    """Why the driver's calls cannot be watched here, or an empty string."""
    from streamsan.record.cupti import _library as _cupti

    return _cupti.problem()


def use_allocator(name: str) -> None:
    """Make one of `streamsan.allocator.NAMES` torch's allocator on the GPU, without recording.

    It is so for the rest of the process. Where memory is short, operators raise what torch makes of
    ``std::bad_alloc``: a RuntimeError. Raises UsageError where torch or the GPU is no good, and
    where the GPU is in use already.
    """
    from streamsan.record import _torch

    _torch.use_allocator(name)

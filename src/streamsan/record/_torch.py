"""The torch recorder: one for the virtual GPU and for CUDA devices."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamsan
from streamsan.allocator import DEFAULT, parse_allocator
from streamsan.autograd import TORCH, parse_policy, wanted
from streamsan.errors import UsageError
from streamsan.model.records import Header
from streamsan.record import Options, Recorder, Sink
from streamsan.record._children import watch_children
from streamsan.record._observer import Observer
from streamsan.record._threads import Callbacks, HostThreads
from streamsan.record.cuda._presence import available, device_name
from streamsan.virtual.memory import PINNED
from streamsan.virtual.monitor import Monitor
from streamsan.virtual.schedule import parse

if TYPE_CHECKING:
    from streamsan.record._arena import Arena

OLDEST = (2, 11)
"""The oldest torch that is known to work."""

_BLIND_SPOT = (
    "reads and writes of host memory other than pinned memory, and reads of pinned memory by code"
    " that has nothing but its address"
)
_ARRAYS = "or through arrays and buffers while they live: StreamSan's compiled core is missing here"


def import_torch() -> Any:
    """torch, or UsageError saying what to install."""
    try:
        import torch
    except ImportError as error:
        raise UsageError(
            f"torch cannot be imported ({error}): pip install 'streamsan[torch]'"
        ) from None
    found = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if found < OLDEST:
        raise UsageError(
            f"torch {torch.__version__} is too old: StreamSan needs {OLDEST[0]}.{OLDEST[1]} or"
            " newer"
        )
    return torch


def choose(device: str, torch: Any) -> str:
    """``cuda`` or ``virtual`` for a device option; UsageError where it cannot be had."""
    found = _installed.name == "cuda" if _installed else available(torch)
    if device == "auto":
        return "cuda" if found else "virtual"
    if device == "cuda" and not found:
        raise UsageError("no CUDA device is to be had here: use --device virtual")
    if device not in ("cuda", "virtual"):
        raise UsageError(f"no device '{device}': choose auto, cuda or virtual")
    return device


def device_of(options: Options) -> str:
    """``cuda`` or ``virtual``. Raises UsageError where torch or the device is no good."""
    return choose(options.device, import_torch())


class Installed:
    """What stays in the process once a recorder was started: the observer and its hooks."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.observer = Observer()
        self.enter_thread: Callable[[], None] = lambda: None
        self.leave: Callable[[], None] = lambda: None
        self.arena: Arena | None = None
        """torch's allocator on a real GPU, where that is one of ours."""
        self.remark: Callable[[], str] = lambda: ""
        """What the report should say of the schedule, or nothing."""
        self.blind_spot = _BLIND_SPOT
        """What every report says."""


_installed: Installed | None = None


def start(options: Options, sink: Sink) -> Recorder:
    """Start to record. Raises UsageError where torch or the device is no good."""
    global _installed
    schedule = parse(options.schedule)
    policy = parse_policy(options.engine) if options.engine else TORCH
    torch = import_torch()
    name = choose(options.device, torch)
    first = _installed is None
    if _installed is None:
        _installed = _prepared(name, options)
    elif _installed.name != name:
        raise UsageError(
            f"this process already runs on the {_installed.name} device: start a new one for {name}"
        )
    elif _installed.observer.recording:
        raise UsageError("this process is being recorded already")
    else:
        _check_size(_installed, options)
    installed = _installed
    installed.observer.begin(sink, _header(name, options, torch), options.user_files)
    try:
        if first:
            _install(installed, name, options, schedule)
        elif name == "virtual":
            _restart(schedule)
        if options.engine or wanted():
            _engine().install(policy=policy)
    except BaseException:
        installed.observer.abandon()
        _installed = None if first else installed
        raise
    return TorchRecorder(installed)


def _engine() -> Any:
    """The backward engine's module, which needs torch."""
    from streamsan.autograd import engine

    return engine


def use_allocator(name: str) -> None:
    """Make an allocator of ours torch's on the GPU. Raises UsageError where that cannot be had."""
    choose("cuda", import_torch())
    from streamsan.record import _arena

    _arena.use(parse_allocator(name))


def _prepared(name: str, options: Options) -> Installed:
    """What is to be installed; an allocator of ours already is: it has to be before CUDA starts."""
    installed = Installed(name, options)
    if name == "cuda":
        from streamsan.record import _arena

        if options.allocator != DEFAULT or _arena.current() is not None:
            installed.arena = _arena.use(options.allocator)
            installed.observer = installed.arena.observer
    return installed


def _header(name: str, options: Options, torch: Any) -> Header:
    versions = {
        "streamsan": streamsan.__version__, "python": platform.python_version(),
        "torch": str(torch.__version__),
    }  # fmt: skip
    if name == "cuda":
        versions["device"] = device_name(torch)
        versions["cuda"] = str(torch.version.cuda)
    chosen = {"device": name}
    if options.allocator != DEFAULT:
        chosen["allocator"] = options.allocator
    if options.engine:
        chosen["engine"] = options.engine
    ranks = os.environ.get("WORLD_SIZE", "1")
    if ranks != "1" and "RANK" in os.environ:
        chosen["rank"] = f"{os.environ['RANK']} of {ranks}"
    if name == "virtual":
        chosen.update(schedule=options.schedule, devices=str(options.devices))
    return Header(name, versions, options.arguments, chosen)


def _install(installed: Installed, name: str, options: Options, schedule: Any) -> None:
    observer = installed.observer
    if name == "virtual":
        from streamsan.virtual import face
        from streamsan.virtual.gpu import Gpu

        gpu = Gpu(observer, schedule, options.devices, options.memory, options.allocator)
        shown = face.install(gpu)
        _see_arrays(
            installed, shown.host.exports, lambda address: gpu.memory.owner(address) == PINNED
        )
        installed.enter_thread = face.enter_thread

        installed.remark = lambda: gpu.schedule.remark(gpu.streams())

        def leave() -> None:
            shown.enabled = False

    else:
        from streamsan.record._interchange import watch_driver
        from streamsan.record.cuda import _recorder as _cuda

        recorder = _cuda.CudaRecorder(observer, installed.arena)
        recorder.install()
        pinned = recorder.blocks.pinned
        _see_arrays(installed, recorder.exports, lambda address: pinned.find(address) is not None)
        installed.remark = watch_driver(recorder, options.driver)
        installed.enter_thread = recorder.enter_thread
        leave = recorder.leave
    installed.leave = leave
    HostThreads(
        Callbacks(
            release=observer.release,
            acquire=observer.acquire,
            started=observer.starting,
            before_run=lambda thread: installed.enter_thread(),
            ended=observer.ended,
            error=observer.internal_error,
        )
    ).install()
    watch_children(observer, used=lambda: observer.used)
    os.register_at_fork(after_in_child=lambda: _forked(installed))


def _see_arrays(installed: Installed, exports: Any, is_pinned: Callable[[int], bool]) -> None:
    """Have it told what NumPy and files do with pinned memory, where that can be."""
    from streamsan.record.arrays import listen_to_arrays
    from streamsan.record.arrays._files import listen_to_files

    listen_to_files(installed.observer, is_pinned)
    if not listen_to_arrays(installed.observer, exports, is_pinned):
        installed.blind_spot = f"{_BLIND_SPOT}, {_ARRAYS}"


def _forked(installed: Installed) -> None:
    """A forked child is not recorded, and no GPU in use survives a fork."""
    installed.observer.abandon()
    if installed.observer.used:
        installed.leave()


def _check_size(installed: Installed, options: Options) -> None:
    """Raise UsageError where the virtual machine that this process has is another one."""
    if installed.options.allocator != options.allocator:
        raise UsageError(
            f"the memory of this process is the {installed.options.allocator} allocator's: start a"
            f" new process for {options.allocator}"
        )
    wanted = options.devices, options.memory
    has = installed.options.devices, installed.options.memory
    if installed.name == "virtual" and wanted != has:
        raise UsageError(
            f"the virtual GPU of this process has {has[0]} x {has[1]:,} bytes: a process has one"
            " machine, so ask for the same one again or start a new process"
        )


def _restart(schedule: Any) -> None:
    """Record again on the virtual machine that this process has."""
    from streamsan.virtual.face import current

    gpu = current.face().gpu
    for device in range(len(gpu.devices)):
        gpu.sync_device(device)
    gpu.schedule = schedule
    gpu.describe()


class TorchRecorder:
    """A recording under way."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self.name = installed.name

    @property
    def lock(self) -> Monitor:
        """The lock of the recording."""
        return self._installed.observer.monitor

    def stop(self, status: int = 0) -> None:
        """End the recording. Never raises."""
        observer = self._installed.observer
        try:
            remark = self._installed.remark()
            _engine().reset()
            if remark:
                observer.note("blind-spot", remark)
            observer.note("blind-spot", self._installed.blind_spot)
            observer.end(status)
        except Exception as error:
            observer.internal_error(error)

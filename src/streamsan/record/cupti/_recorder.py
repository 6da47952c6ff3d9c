"""What other libraries do on the device, as the driver sees it: the part behind ``--driver``.

torch's operators, its replays, Triton's kernels and collectives are told by the adapters that know
them (`_accounted`). For all else a driver call is the only sign: a kernel's pointers are matched to
live blocks, and each is taken to be read and written, as an access of confidence ``possible``.
Copies, fills, waits and synchronisations are certain.

Records of events, and memory that goes back to the driver, are noted in a ring and told with what
comes next (`_noted`). Where there is no ring, a wait for an event that nobody told of is
taken to cover all work enqueued so far: no race is claimed for want of it. The report says so.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record._accounted import is_accounted
from streamsan.record._interchange_modes import declared_outputs, given_array
from streamsan.record.cuda._driver import library as driver_library
from streamsan.record.cupti._calls import (
    CALLS,
    GraphLaunch,
    Launch,
    Sync,
    Transfer,
    Wait,
    stream_of,
    words,
)
from streamsan.record.cupti._kernels import Kernels
from streamsan.record.cupti._library import CallbackData, Cupti, CuptiError
from streamsan.record.cupti._noted import Noted
from streamsan.record.cupti._streams import SeenStreams
from streamsan.record.cupti._touched import touched
from streamsan.record.cupti._transfers import Transfers

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_UNSEEN = "kernels launched by other means than torch and Triton, if any (--driver on shows them)"
_POINTERS = "what kernels of other libraries do with pointers that they find in memory"
_PROFILED = "kernels launched outside of torch while a profiler had CUPTI's one subscription"
_GRAPHS = "graphs that another library than torch launched"
_EVENTS = (
    "records of events by other libraries: a wait for such an event was taken to cover all work"
    " enqueued before it"
)


class DriverRecorder:
    """Hands what the driver's callbacks show to the recorder of CUDA devices."""

    def __init__(self, recorder: CudaRecorder, cupti: Any = None, driver: Any = None) -> None:
        """`cupti` and `driver` stand for the libraries, in a test without a GPU."""
        self._recorder = recorder
        self._cupti = cupti
        driver = driver or driver_library()
        self._kernels = Kernels(driver)
        self._transfers = Transfers(recorder, driver)
        self._streams = SeenStreams(recorder.streams)
        self.noted = Noted(recorder, self._streams)
        self._devices: dict[int, int] = {}
        self._plans = {name.encode(): plan for name, plan in CALLS.items()}
        self._remark = _UNSEEN

    def start(self) -> None:
        """Subscribe; where that cannot be, the report says why, and the program goes on."""
        if self._remark != _UNSEEN:
            return
        try:
            if self._cupti is None:
                self._cupti = Cupti(self.called, self.noted.names)
                atexit.register(self._cupti.unsubscribe)
            self._subscribe()
        except CuptiError as error:
            self._remark = f"kernels launched outside of torch, since {error}"

    def _subscribe(self) -> None:
        self._cupti.subscribe(CALLS)
        self.noted.follow(self._cupti)
        self._remark = _POINTERS

    def remark(self) -> str:
        """What was not seen, for the report."""
        return self._remark

    def give_way(self) -> None:
        """A profiler is about to ask for the one subscription."""
        if self._remark == _POINTERS:
            self._cupti.unsubscribe()
            self.noted.rest()
            self._remark = _PROFILED

    def come_back(self) -> None:
        """The profiler is done; it may keep the subscription all the same."""
        if self._remark != _PROFILED:
            return
        with suppress(CuptiError):
            self._subscribe()
            self._recorder.observer.note_once("blind-spot", _PROFILED)

    def called(self, address: int) -> None:
        """A watched call has ended; never raises."""
        recorder = self._recorder
        if not (recorder.enabled and recorder.observer.recording):
            return
        if self.noted.pending:
            recorder._guarded(self.noted.tell)
        if recorder.local.inside is None and not is_accounted():
            recorder._guarded(lambda: self._told(CallbackData.from_address(address)))

    def _told(self, data: CallbackData) -> None:
        if ctypes.c_int.from_address(data.result).value:
            return  # it failed, or a query answered that there is work left
        decode, per_thread = self._plans[data.name]
        call = decode(words(data.parameters or 0))
        device = self._device(data.context)
        if isinstance(call, Sync) and call.stream is None:
            observer = self._recorder.observer
            observer.emit(r.DeviceSync(device, observer.thread(), self._recorder.stack()))
            return
        handle = stream_of(call.stream or 0, per_thread)
        timeline = self._streams.timeline(device, handle)
        if isinstance(call, Launch):
            self._launch(call, data.symbol or b"kernel", device, timeline)
        elif isinstance(call, Transfer):
            self._transfers.report(call, device, timeline, self._sure)
        elif isinstance(call, Wait):
            self._wait(call.event, device, timeline)
        elif isinstance(call, Sync):
            self._synchronized(timeline, call.query)
        elif isinstance(call, GraphLaunch):
            self._recorder.observer.note_once("blind-spot", _GRAPHS)

    def _device(self, context: int | None) -> int:
        key = context or 0
        found = self._devices.get(key)
        if found is None:
            found = self._devices[key] = self._cupti.device(context)
        return found

    @property
    def _sure(self) -> int:
        """How sure an access of the calling thread is.

        Threads that a library made without Python, as XLA does, are ordered in ways not seen.
        """
        known = threading.get_ident() in threading._active  # type: ignore[attr-defined]
        return int(r.Confidence.CERTAIN if known else r.Confidence.POSSIBLE)

    def _launch(self, launch: Launch, symbol: bytes, device: int, timeline: int) -> None:
        kernel = self._kernels.kernel(launch.function, symbol)
        parameters = self._kernels.parameters(kernel, launch)
        outputs = declared_outputs(kernel.name) if self._sure else None
        find = self._recorder.blocks.find
        accesses = touched(parameters, outputs, device, find, given_array, kernel.constant)
        if accesses:
            name = r.FOREIGN + kernel.name
            self._recorder.operation(int(r.OpKind.KERNEL), name, timeline, accesses)

    def _wait(self, event: int, device: int, timeline: int) -> None:
        """Rule E2; of an event that was recorded unseen, no less than it may mean is taken."""
        streams, observer = self._recorder.streams, self._recorder.observer
        if streams.knows_event(event):
            streams.wait(event, timeline, observer.thread(), self._recorder.stack())
        if streams.knows_event(event) or self.noted.complete:
            return
        observer.note_once("blind-spot", _EVENTS)
        for other in streams.of_device(device):
            if other != timeline:
                streams.order(other, timeline)

    def _synchronized(self, timeline: int, query: bool) -> None:
        """Rules H1 and E4."""
        observer = self._recorder.observer
        observer.emit(r.StreamSync(timeline, observer.thread(), self._recorder.stack(), query))


def watch_profiler(driver: DriverRecorder) -> None:
    """The profiler of torch needs CUPTI's one subscription: give way to it while it runs."""
    module: Any = torch.autograd.profiler
    prepare, disable = module._prepare_profiler, module._disable_profiler

    def prepare_profiler(*args: Any, **kwargs: Any) -> Any:
        driver.give_way()
        return prepare(*args, **kwargs)

    def disable_profiler(*args: Any, **kwargs: Any) -> Any:
        try:
            return disable(*args, **kwargs)
        finally:
            driver.come_back()

    module._prepare_profiler, module._disable_profiler = prepare_profiler, disable_profiler

"""Libraries beside torch that use the device: when to watch the driver, and their events.

Nothing here imports such a library: hooks wait until the program does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record._accounted import account_for
from streamsan.record._extensions import after_extension, after_script
from streamsan.record._interchange_modes import declare, declare_raw
from streamsan.record.cuda._methods import listen
from streamsan.record.cupti._recorder import DriverRecorder, watch_profiler
from streamsan.record.kernels.imports import after_import

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

LIBRARIES = ("cupy", "numba.cuda", "jax", "pycuda.driver", "cuda.bindings.driver", "cuda.core")
"""Modules whose import tells that a program has kernels that torch's dispatcher does not show."""

_SCRIPT = "kernels that TorchScript fuses operators into, and launches by itself"


def watch_driver(recorder: CudaRecorder, when: str) -> Callable[[], str]:
    """Watch the driver: ``on``, ``off``, or ``auto``, once there is something to see: one of
    `LIBRARIES`, or an extension that can launch kernels. Returns what tells at the end of a
    recording what was not seen.
    """
    driver = DriverRecorder(recorder)
    if when != "on":
        after_script(lambda _: recorder.observer.note_once("blind-spot", _SCRIPT))
    if when == "off":
        return driver.remark
    events = Events(recorder, driver.noted.told)
    watch_profiler(driver)
    for owner, name in (
        (torch.cuda.CUDAGraph, "replay"),
        (torch._tensor_str, "_str"),
        (type(torch.ops), "load_library"),
    ):
        account_for(owner, name)
    after_import("cupy", _guarded(recorder, events.of_cupy))
    after_import("numba.cuda", _guarded(recorder, events.of_numba))
    after_import("cuda.bindings.driver", _guarded(recorder, events.of_driver))
    after_import("cuda.bindings.runtime", _guarded(recorder, events.of_runtime))

    def start(_: object) -> None:
        """Not before CUDA: a forked child of a process that has started it cannot use it."""
        cuda: Any = torch.cuda
        recorder._guarded(lambda: cuda._lazy_call(lambda: recorder._guarded(driver.start)))

    if when == "on":
        start(when)
    for name in LIBRARIES:
        after_import(name, start)
    after_extension(start)
    return driver.remark


def _guarded(
    recorder: CudaRecorder, hook: Callable[[ModuleType], None]
) -> Callable[[ModuleType], None]:
    """`hook`, whose errors are told and reach nobody."""

    def guarded(module: ModuleType) -> None:
        recorder._guarded(lambda: hook(module))

    return guarded


class Events:
    """What libraries do with events: record (E1), synchronise (E3) and query (E4).

    Nothing counts before torch has started CUDA: there is nothing to be ordered with.
    """

    def __init__(self, recorder: CudaRecorder, told: Callable[[int], None]) -> None:
        """`told` hears of each event that was recorded, for who sees it elsewhere as well."""
        self._recorder = recorder
        self._told = told
        self._streams = recorder.streams

    def of_cupy(self, cupy: Any) -> None:
        """CuPy's events and streams. A stream that is not named is the current one."""
        event, stream = cupy.cuda.Event, cupy.cuda.stream
        self._listen(cupy.cuda.Stream, "__init__", lambda _, this, *__, **___: self.born(this.ptr))

        def recorded(_: Any, this: Any, to: Any = None) -> None:
            self.record(this.ptr, (to or stream.get_current_stream()).ptr)

        self._listen(event, "record", recorded)
        self._listen(event, "synchronize", lambda _, this: self.wait(this.ptr))
        base = getattr(stream, "_BaseStream", stream.Stream)
        self._listen(base, "record", lambda result, this, _=None: self.record(result.ptr, this.ptr))
        done = event.done

        def is_done(this: Any) -> Any:
            answer = done.__get__(this)
            if answer:
                self._tell(lambda: self.wait(this.ptr, query=True))
            return answer

        event.done = property(is_done, doc=done.__doc__)
        declare(cupy, "ElementwiseKernel")
        declare(cupy, "ReductionKernel")
        declare_raw(cupy, "RawKernel")

    def of_numba(self, cuda: Any) -> None:
        """Those of numba."""
        event = cuda.cudadrv.driver.Event
        self._listen(cuda, "stream", lambda made, *_, **__: self.born(native(made.handle)))

        def recorded(_: Any, this: Any, stream: Any = 0) -> None:
            self.record(native(this.handle), native(getattr(stream, "handle", stream)))

        self._listen(event, "record", recorded)
        self._listen(event, "synchronize", lambda _, this: self.wait(native(this.handle)))

        def queried(answer: Any, this: Any) -> None:
            if answer:
                self.wait(native(this.handle), query=True)

        self._listen(event, "query", queried)

    def of_driver(self, module: Any) -> None:
        """The driver's own functions in Python."""
        self._bindings(module, "cuEvent")
        self._listen(module, "cuGreenCtxCreate", lambda *_: self._streams.divide())

    def of_runtime(self, module: Any) -> None:
        """Those of CUDA's runtime."""
        self._bindings(module, "cudaEvent")
        self._listen(module, "cudaGreenCtxCreate", lambda *_: self._streams.divide())

    def _bindings(self, module: Any, prefix: str) -> None:
        """Each function returns its status first: 0, or an error that means nothing was done."""

        def recorded(result: Any, event: Any, stream: Any = 0, *_: Any) -> None:
            if not int(result[0]):
                self.record(native(event), native(stream))

        def synchronized(result: Any, event: Any) -> None:
            if not int(result[0]):
                self.wait(native(event))

        def queried(result: Any, event: Any) -> None:
            if not int(result[0]):
                self.wait(native(event), query=True)

        self._listen(module, prefix + "Record", recorded)
        self._listen(module, prefix + "Synchronize", synchronized)
        self._listen(module, prefix + "Query", queried)

    def _listen(self, owner: Any, name: str, listener: Callable[..., None]) -> None:
        if hasattr(owner, name):
            listen(self._recorder, owner, name, listener)

    def _tell(self, work: Callable[[], None]) -> None:
        if self._recorder.enabled and self._recorder.observer.recording:
            self._recorder._guarded(work)

    def born(self, stream: int) -> None:
        """A stream was made on the current device, and has the name that the program gives it."""
        if torch.cuda.is_initialized():
            self._streams.define_external(torch.cuda.current_device(), stream)

    def record(self, event: int, stream: int) -> None:
        """An event was recorded on a native stream of the current device."""
        if not torch.cuda.is_initialized():
            return
        self._told(event)
        device = torch.cuda.current_device()
        observer, timeline = self._recorder.observer, self._streams.define_external(device, stream)
        self._streams.record(event, timeline, observer.thread(), self._recorder.stack())

    def wait(self, event: int, query: bool = False) -> None:
        """The calling thread waited for an event, or was told that it is done."""
        observer, number = self._recorder.observer, self._streams.event(event)
        observer.emit(r.EventSync(number, observer.thread(), self._recorder.stack(), query))


def native(handle: Any) -> int:
    """The number of a native handle, whatever a library wraps it in."""
    if handle is None:
        return 0
    if hasattr(handle, "value"):  # of ctypes
        return int(handle.value or 0)
    return int(handle)

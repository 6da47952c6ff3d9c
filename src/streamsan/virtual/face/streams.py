"""Streams and events of the virtual machine: ``torch.Stream``, ``torch.cuda.Stream`` and so on."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, ClassVar

import torch

from streamsan.model.records import Misuse
from streamsan.virtual.devices import PRIORITIES
from streamsan.virtual.face import current
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.graph import Capture
from streamsan.virtual.streams import Stream as NativeStream

_HostStream, _HostEvent = torch.Stream, torch.Event


def _of_host(device: Any) -> bool:
    """Whether a device argument names another sort of device than the virtual machine's."""
    return device is not None and not isinstance(device, int) and torch.device(device).type == "cpu"


class DeviceStream:
    """``torch.Stream``. Objects of one native stream are equal; the 33rd of a pool is the first."""

    native: NativeStream
    _objects: ClassVar[dict[tuple[int, int], weakref.WeakValueDictionary[int, DeviceStream]]] = {}

    def __new__(
        cls,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
        **_: Any,
    ) -> Any:
        """A stream of the pool, or (by its id) the object of a known one."""
        if _of_host(device):
            return _HostStream(device=device)
        face = current.face()
        self = super().__new__(cls)
        if stream_id is not None:
            index = face.device_index(device_index)
            self.native = face.gpu.external_stream(index, stream_id)
        else:
            index = face.device_index(device)
            self.native = face.gpu.new_stream(index, priority)
            key = (index, self.native.handle)
            cls._objects.setdefault(key, weakref.WeakValueDictionary())[id(self)] = self
        return self

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @classmethod
    def of(cls, stream: NativeStream) -> Any:
        """The object of a native stream."""
        self = object.__new__(cls)
        self.native = stream
        return self

    @property
    def _gpu(self) -> Gpu:
        return current.face().gpu

    def used(self) -> None:
        """This object becomes current: say so where another object of its native stream lives."""
        if self.native.default:
            return
        self.__dict__["_used"] = True
        objects = self._objects.get((self.native.device, self.native.handle))
        for other in list(objects.values()) if objects is not None else ():
            if other is not self and other.__dict__.get("_used"):
                self._tell(other)

    def _tell(self, other: DeviceStream) -> None:
        """Say once that two objects in use are one stream."""
        if other.__dict__.get("_told"):
            return
        other.__dict__["_told"] = self.__dict__["_told"] = True
        observer = self._gpu.observer
        observer.emit(
            Misuse(
                "R17-STREAM-IDENTITY",
                "two stream objects are one native stream: a device has 32 pool streams of a"
                " priority, and further objects come round to the first again",
                observer.thread(),
                observer.stack(),
                self.native.timeline,
            )
        )

    @property
    def device(self) -> Any:
        """The device."""
        return current.face().device_of(self.native.device)

    @property
    def device_index(self) -> int:
        """Index of the device."""
        return self.native.device

    @property
    def device_type(self) -> int:
        """Torch's number for CUDA."""
        return 1

    @property
    def stream_id(self) -> int:
        """An id from which the stream can be found again."""
        return self.native.handle

    @property
    def cuda_stream(self) -> int:
        """The native handle."""
        return self.native.handle

    @property
    def native_handle(self) -> int:
        """The native handle."""
        return self.native.handle

    @property
    def priority(self) -> int:
        """0, or lower for more urgent."""
        return self.native.priority

    @property
    def _as_parameter_(self) -> Any:
        return ctypes.c_void_p(self.native.handle)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest priority."""
        return PRIORITIES

    def wait_event(self, event: DeviceEvent) -> None:
        """Later work of this stream comes after the event's latest record (E2)."""
        self._gpu.wait(self.native, event.native)

    def wait_stream(self, stream: DeviceStream) -> None:
        """Later work of this stream comes after all work `stream` has now."""
        event = self._gpu.new_event()
        self._gpu.record(event, stream.native)
        self._gpu.wait(self.native, event)

    def record_event(self, event: Any = None) -> Any:
        """Record an event on this stream (E1)."""
        event = self._event() if event is None else event
        event.record(self)
        return event

    def _event(self) -> Any:
        return DeviceEvent()

    def query(self) -> bool:
        """Whether all work is done (E4)."""
        return self._gpu.query_stream(self.native)

    def synchronize(self) -> None:
        """Wait for all work (H1)."""
        self._gpu.sync_stream(self.native)

    def is_capturing(self) -> bool:
        """Whether work goes into a graph."""
        return self.native.capture is not None

    def __enter__(self) -> DeviceStream:
        context = current.stream_context(self)
        context.__enter__()
        self.__dict__.setdefault("_contexts", []).append(context)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.__dict__["_contexts"].pop().__exit__(*exc_info)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceStream) and other.native is self.native

    def __hash__(self) -> int:
        return hash((self.native.device, self.native.handle))

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.native.handle)

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type=cuda, device_index={self.native.device},"
            f" stream_id={self.native.handle}"
        )


class Stream(DeviceStream):
    """``torch.cuda.Stream``."""

    def _event(self) -> Any:
        return Event()

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.native.handle:#x}>"


class ExternalStream(Stream):
    """A stream made elsewhere, by its native handle."""

    def __new__(cls, stream_ptr: int, device: Any = None, **_: Any) -> ExternalStream:
        """The stream of the handle."""
        face = current.face()
        self = object.__new__(cls)
        self.native = face.gpu.external_stream(face.device_index(device), int(stream_ptr))
        return self


class DeviceEvent:
    """``torch.Event``: an event object, recorded lazily on the device of its first stream."""

    def __new__(cls, device: Any = None, **_: Any) -> Any:
        """An event of the virtual machine, or of the host."""
        return _HostEvent(device) if _of_host(device) else super().__new__(cls)

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        if interprocess:
            raise NotImplementedError("the virtual GPU has no events that other processes share")
        self.native = current.face().gpu.new_event()
        self._timing = enable_timing
        self._external = False

    @classmethod
    def from_ipc_handle(cls, *_: Any) -> Any:
        """Not to be had."""
        raise NotImplementedError("the virtual GPU has no events that other processes share")

    def ipc_handle(self) -> Any:
        """Not to be had."""
        raise NotImplementedError("the virtual GPU has no events that other processes share")

    def record(self, stream: DeviceStream | None = None) -> None:
        """Stand for all work of `stream` (by default the current one) so far (E1)."""
        gpu = current.face().gpu
        chosen = stream.native if stream is not None else current.native_stream()
        known = self.native.stream
        if known is not None and known.device != chosen.device:
            raise RuntimeError(
                f"Event device {known.device} does not match recording stream's device"
                f" {chosen.device}."
            )
        capture = self._node_of(chosen)
        if capture is not None:
            capture.records.append(self.native)
        else:
            gpu.record(self.native, chosen)

    def wait(self, stream: DeviceStream | None = None) -> None:
        """Later work of `stream` comes after the latest record (E2)."""
        chosen = stream.native if stream is not None else current.native_stream()
        capture = self._node_of(chosen)
        if capture is not None:
            capture.waits.append(self.native)
        else:
            current.face().gpu.wait(chosen, self.native)

    def _node_of(self, stream: NativeStream) -> Capture | None:
        """The capture of a stream, where this is an external event: it becomes a node of its own,
        which does at each launch what was captured.
        """
        capture = stream.capture if self._external else None
        return capture if isinstance(capture, Capture) else None

    def query(self) -> bool:
        """Whether the latest record has been reached (E4)."""
        return current.face().gpu.query_event(self.native)

    def synchronize(self) -> None:
        """Wait for the latest record (E3)."""
        current.face().gpu.sync_event(self.native)

    def elapsed_time(self, end_event: DeviceEvent) -> float:
        """Milliseconds from this event to another, both recorded and reached."""
        captures = current.face().gpu.captures
        events = (self, end_event)
        if not all(event._timing for event in events):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not all(event.native.recorded for event in events):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self.device != end_event.device:
            raise captures.error("invalid resource handle")
        if not all(event.query() for event in events):
            raise captures.error("device not ready")
        return max(0.0, (end_event.native.time - self.native.time) * 1000.0)

    @property
    def event_id(self) -> int:
        """The native handle; 0 before the first record."""
        return 0x2000 + self.native.number if self.native.recorded else 0

    @property
    def device(self) -> Any:
        """The device of its stream, or None before the first record."""
        stream = self.native.stream
        return None if stream is None else current.face().device_of(stream.device)

    def __repr__(self) -> str:
        index = -1 if self.native.stream is None else self.native.stream.device
        return (
            f"torch.Event device_type=cuda, device_index={index},"
            f" event_flag={int(self._timing)}, event_id={self.event_id}"
        )


class Event(DeviceEvent):
    """``torch.cuda.Event``."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """An event of the virtual machine."""
        return object.__new__(cls)

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: Any = None,
    ) -> None:
        super().__init__(
            device, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )
        self._external = external

    @property
    def cuda_event(self) -> int:
        """The native handle; 0 before the first record."""
        return self.event_id

    @property
    def _as_parameter_(self) -> Any:
        return ctypes.c_void_p(self.event_id)

    def __repr__(self) -> str:
        state = f"{self.event_id:#x}" if self.native.recorded else "uninitialized"
        return f"<torch.cuda.Event {state}>"

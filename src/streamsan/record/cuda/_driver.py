"""The CUDA driver as our allocators see it on a real GPU: memory and events, through ctypes.

Calls go below torch, so that torch's GPU trace does not show them: what they mean for the order of
the program is told by `streamsan.record._arena_streams`. Each call lets other Python threads run.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, TypeVar

from streamsan.errors import UsageError
from streamsan.record._accounted import ACCOUNTED

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_ARGUMENTS = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDeviceTotalMem_v2": (_POINTER, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuCtxGetCurrent": (_POINTER,),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (_POINTER, _SIZE),
    "cuMemFree_v2": (_SIZE,),
    "cuMemsetD8Async": (_SIZE, ctypes.c_ubyte, _SIZE, _POINTER),
    "cuEventCreate": (_POINTER, ctypes.c_uint),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventQuery": (_POINTER,),
    "cuEventSynchronize": (_POINTER,),
    "cuStreamWaitEvent": (_POINTER, _POINTER, ctypes.c_uint),
    "cuGetErrorName": (_INT, _POINTER),
}


class DriverError(RuntimeError):
    """A call of the driver failed."""


@lru_cache(maxsize=1)
def library() -> Any:
    """The driver's library, or UsageError where there is none."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise UsageError(
            f"CUDA's driver cannot be loaded ({error}), which an allocator of StreamSan's needs"
        ) from None
    for name, kinds in _ARGUMENTS.items():
        getattr(found, name).argtypes = kinds
    return found


class Context:
    """The primary context of a device, which torch uses as well, and calls in it.

    ``with`` it, it is the calling thread's current one, which threads start without. Callers hold
    a lock, and do not nest.
    """

    def __init__(self, device: int) -> None:
        self._calls = library()
        self.call("cuInit", 0)
        number, handle, total = _INT(), ctypes.c_void_p(), ctypes.c_size_t()
        self.call("cuDeviceGet", ctypes.byref(number), device)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), number)
        self.total = total.value
        """Bytes of the device."""
        self._handle = handle.value
        self._current = ctypes.c_void_p()
        self._pushed = False

    def __enter__(self) -> None:
        self.call("cuCtxGetCurrent", ctypes.byref(self._current))
        self._pushed = self._current.value != self._handle
        if self._pushed:
            self.call("cuCtxPushCurrent_v2", self._handle)

    def __exit__(self, *exc_info: object) -> None:
        if self._pushed:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(self._current))

    def call(self, name: str, *arguments: Any, expected: int = 0) -> bool:
        """Make a call; False where it answers `expected`. Raises DriverError for other errors."""
        status = getattr(self._calls, name)(*arguments)
        if status not in (0, expected):
            text = ctypes.c_char_p()
            self._calls.cuGetErrorName(status, ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise DriverError(f"{name} failed: {reason} ({status})")
        return bool(status == 0)


class Token:
    """A point of a stream: the event recorded there, until it is known to be done."""

    __slots__ = ("_spare", "handle")

    def __init__(self, handle: int, spare: list[int]) -> None:
        self.handle: int | None = handle
        self._spare = spare

    def passed(self) -> None:
        """The stream has come past it: the native event may serve again."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._spare.append(handle)

    def __del__(self) -> None:
        self.passed()


AnyToken = TypeVar("AnyToken", bound=Token)


class Memory:
    """The driver's memory of one device. A `Driver` of our allocators."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def reserve(self, size: int) -> int | None:
        """Address of `size` fresh bytes, or None: there are no more."""
        address = ctypes.c_size_t()
        with self._context:
            if not self._context.call(
                "cuMemAlloc_v2", ctypes.byref(address), size, expected=_OUT_OF_MEMORY
            ):
                return None
        return address.value

    def release(self, address: int, size: int) -> None:
        """Give `size` bytes back, which joins the device (rule M3)."""
        with self._context:
            self._context.call("cuMemFree_v2", address)


class Points:
    """Points of a device's streams, and waits for them. Streams are native handles."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._spare: list[int] = []

    def record(self, stream: int) -> Token:
        """A token for all work of `stream` so far (rule E1)."""
        return self.recorded(Token, stream)

    def recorded(self, kind: type[AnyToken], stream: int) -> AnyToken:
        """A token of some kind for that."""
        with self._context:
            handle = self._spare.pop() if self._spare else self._new_event()
            token = kind(handle, self._spare)
            self._context.call("cuEventRecord", handle, stream)
        return token

    def _new_event(self) -> int:
        made = ctypes.c_size_t()
        self._context.call("cuEventCreate", ctypes.byref(made), _DISABLE_TIMING)
        return made.value

    def done(self, token: Token) -> bool:
        """Whether that work has finished."""
        if token.handle is None:
            return True
        done = self._context.call("cuEventQuery", token.handle, expected=_NOT_READY)
        if done:
            token.passed()
        return done

    def wait(self, token: Token) -> None:
        """Block until that work has finished."""
        if token.handle is not None:
            self._context.call("cuEventSynchronize", token.handle)
            token.passed()

    def order(self, stream: int, token: Token) -> None:
        """Later work of `stream` waits for that work on the device (rule E2)."""
        if token.handle is not None:
            with ACCOUNTED, self._context:
                self._context.call("cuStreamWaitEvent", stream, token.handle, 0)

    def join(self) -> None:
        """Block until the device has finished (rule H2)."""
        with ACCOUNTED, self._context:
            self._context.call("cuCtxSynchronize")

    def fill(self, stream: int, address: int, size: int) -> None:
        """Enqueue on `stream` that all bytes of a range become 0xFF."""
        with ACCOUNTED, self._context:
            self._context.call("cuMemsetD8Async", address, 0xFF, size, stream)

"""CUPTI, the profiling interface of CUDA: callbacks from inside of the driver's calls, by ctypes.

One subscriber per process gets them: a profiler that is at work keeps others out, and we give way
to one that starts (`Cupti.unsubscribe`). Functions are found by name, so that no number of a
callback is written down here. Only the end of a call is told, when it has been enqueued or waited
for; on x86-64 a few instructions in front of Python see to that, and to calls that come after the
interpreter's end. There too, some functions are only noted (`Ring`), for Python to read later.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from streamsan.errors import UsageError
from streamsan.record._accounted import ACCOUNTED
from streamsan.record._native_calls import NativeCalls
from streamsan.record._native_code import address_of, keep_forever, supported
from streamsan.record.cupti._ring import Ring

_DRIVER = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_EXIT = 1  # CUPTI_API_EXIT
_HELD = (8, 12, 39)
"""Results that say that another tool is the subscriber: MAX_LIMIT_REACHED (old releases),
HARDWARE_BUSY, and MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED."""

_POINTER, _UINT, _INT = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
_KINDS = (_POINTER, _INT, _UINT, _POINTER)
"""Arguments of a callback: user data, domain, number of the function, `CallbackData`."""


class CallbackData(ctypes.Structure):
    """``CUpti_CallbackData``, as far as it is needed."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
    )


class CuptiError(RuntimeError):
    """CUPTI is not to be had; the text says why."""


@lru_cache(maxsize=1)
def library() -> Any:
    """The library that goes with the process's CUDA. Raises CuptiError where there is none."""
    problem = "it is not installed"
    for path in _candidates():
        try:
            with ACCOUNTED:  # it is no extension of the program's, for whoever looks for those
                found = ctypes.CDLL(path)
        except OSError as error:
            problem = str(error)
            continue
        found.cuptiSubscribe.argtypes = (_POINTER, _POINTER, _POINTER)
        found.cuptiUnsubscribe.argtypes = (_POINTER,)
        found.cuptiEnableCallback.argtypes = (ctypes.c_uint32, _POINTER, _INT, _UINT)
        found.cuptiGetCallbackName.argtypes = (_INT, _UINT, _POINTER)
        found.cuptiGetDeviceId.argtypes = (_POINTER, _POINTER)
        return found
    raise CuptiError(f"CUPTI cannot be loaded ({problem})")


def _candidates() -> list[str]:
    """Where it may be: in the process already, beside torch's CUDA, or where the system looks."""
    loaded = _mapped()
    beside = [
        path
        for folder in sys.path
        for path in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libcupti.so*")))
    ]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    system = glob.glob(os.path.join(home, "extras", "CUPTI", "lib64", "libcupti.so"))
    return [*loaded, *beside, *system, "libcupti.so.13", "libcupti.so.12", "libcupti.so"]


def _mapped() -> list[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = [line.split(maxsplit=5)[-1].strip() for line in maps if "libcupti.so" in line]
    except OSError:
        return []
    return list(dict.fromkeys(paths))


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    """The driver's functions by name. They are numbered without big gaps."""
    found: dict[str, int] = {}
    name = ctypes.c_char_p()
    number = missing = 0
    while missing < 256:
        number += 1
        if library().cuptiGetCallbackName(_DRIVER, number, ctypes.byref(name)) or not name.value:
            missing += 1
            continue
        missing = 0
        found[name.value.decode()] = number
    return found


class Cupti:
    """The subscription: `function` is called with the address of each `CallbackData`.

    It gets the ends of calls only, may come from any thread, and must not raise. Calls of the
    functions `noted` are in `ring` instead, which is None where the process can have none.
    """

    def __init__(self, function: Callable[[int], None], noted: Sequence[str] = ()) -> None:
        """Does not subscribe yet. Raises CuptiError where there is no CUPTI."""
        self._library = library()
        self._handle = ctypes.c_void_p()
        self.names = {number: name for name, number in _numbers().items() if name in noted}
        """The functions that are noted, by number."""
        self._callback, self.ring = _entry(function, self.names)

    @property
    def subscribed(self) -> bool:
        """Whether callbacks come."""
        return self._handle.value is not None

    def subscribe(self, names: Iterable[str]) -> None:
        """Get the calls of these driver functions, as far as this driver has them.

        Raises CuptiError where another tool is the subscriber, or CUPTI refuses.
        """
        status = self._library.cuptiSubscribe(ctypes.byref(self._handle), self._callback, None)
        if status:
            self._handle = ctypes.c_void_p()
            if status in _HELD:
                raise CuptiError("another tool, such as a profiler, holds CUPTI's one subscription")
            raise CuptiError(f"CUPTI refuses a subscription (result {status})")
        numbers = _numbers()
        wanted = [numbers[name] for name in names if name in numbers]
        for number in [*wanted, *(self.names if self.ring is not None else ())]:
            self._library.cuptiEnableCallback(1, self._handle, _DRIVER, number)

    def unsubscribe(self) -> None:
        """Make room for another tool, or for the interpreter's end."""
        if self.subscribed:
            self._library.cuptiUnsubscribe(self._handle)
            self._handle = ctypes.c_void_p()

    def device(self, context: int | None) -> int:
        """The index of a context's device."""
        index = ctypes.c_uint32()
        self._library.cuptiGetDeviceId(context, ctypes.byref(index))
        return index.value


def problem() -> str:
    """Why there is no subscription to be had, or an empty string."""
    try:
        found = Cupti(lambda _: None)
        found.subscribe(())
        found.unsubscribe()
    except CuptiError as error:
        return str(error)
    return ""


def _entry(function: Callable[[int], None], noted: Iterable[int]) -> tuple[int, Ring | None]:
    """Address of a callback that calls `function` at the ends of calls, and the ring of the others.

    Where the process can have no code of its own, nothing is noted.
    """

    def call(_: int, __: int, ___: int, data: int) -> None:
        if ctypes.c_int.from_address(data).value == _EXIT:
            function(data)

    if supported():
        with suppress(UsageError):
            calls, ring = NativeCalls(), Ring(noted)
            keep_forever(calls)
            address = calls.notifying(call, *_KINDS, first=ring.code, addresses=ring.addresses)
            return address, ring
    made = ctypes.CFUNCTYPE(None, *_KINDS)(call)
    keep_forever(made)
    return address_of(made), None

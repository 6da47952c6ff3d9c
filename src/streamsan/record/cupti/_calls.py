"""Calls of CUDA's driver, told from the words of their parameters.

CUPTI gives the parameters as a structure in order of declaration, each at its natural alignment;
all of the functions here have them at multiples of eight bytes. Names that end in ``_ptsz`` and
``_ptds`` are the forms in which stream 0 means the calling thread's own (rule D2).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

LEGACY, PER_THREAD = 0, 2
_ALWAYS_LEGACY = 1  # CU_STREAM_LEGACY
HOST, DEVICE, UNKNOWN = 1, 2, 0
"""Kinds of memory: the driver's numbers, and 0 where the address has to tell."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel on a stream: its function, and where its parameters are.

    `pointers` is an array of addresses, one for each parameter; or `buffer` holds them all in
    `size` bytes.
    """

    function: int
    stream: int
    pointers: int = 0
    buffer: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a copy, or what a fill writes: `rows` of `width` bytes, `pitch` bytes apart."""

    address: int
    width: int
    kind: int = UNKNOWN
    rows: int = 1
    pitch: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy, or a fill where there is no `source`; `blocking` is the form that may block."""

    target: Place
    source: Place | None
    stream: int
    blocking: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream waits for an event (rule E2)."""

    stream: int
    event: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The calling thread waited for a stream (H1), or for a device, where `stream` is None (H2).

    `query`: it asked, and was told that the work is done (E4).
    """

    stream: int | None
    query: bool = False


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """An executable graph on a stream (rule G2)."""

    stream: int


Call = Launch | Transfer | Wait | Sync | GraphLaunch
Words = Callable[[int], int]
"""A parameter, by its number of words from the start."""

_BUFFER, _SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE


def words(address: int) -> Words:
    """The words at an address."""

    def word(number: int) -> int:
        return int(ctypes.c_uint64.from_address(address + 8 * number).value)

    return word


def _launch(word: Words) -> Call:
    """``f, 3 + 3 sizes and a number of bytes in 32 bits each, stream, parameters, extra``."""
    return _with_extra(word(0), word(5), word(6), word(7))


def _cooperative(word: Words) -> Call:
    return Launch(word(0), word(5), word(6))


def _launch_ex(word: Words) -> Call:
    """``configuration, f, parameters, extra``; the configuration has the stream."""
    return _with_extra(word(1), words(word(0))(4), word(2), word(3))


def _with_extra(function: int, stream: int, pointers: int, extra: int) -> Launch:
    """Parameters are given as pointers, or as one buffer in a list of keys and values."""
    buffer = size = 0
    if not pointers and extra:
        item = words(extra)
        for at in range(0, 8, 2):
            if item(at) == _BUFFER:
                buffer = item(at + 1)
            elif item(at) == _SIZE:
                size = words(item(at + 1))(0)
            else:
                break
    return Launch(function, stream, pointers, buffer, size)


def _copy(target: int, source: int, blocking: bool) -> Callable[[Words], Call]:
    """``target, source, bytes`` and the stream of the form that does not block."""

    def call(word: Words) -> Call:
        ends = Place(word(0), word(2), target), Place(word(1), word(2), source)
        return Transfer(*ends, LEGACY if blocking else word(3), blocking)

    return call


def _copy_2d(blocking: bool) -> Callable[[Words], Call]:
    """A pointer to ``CUDA_MEMCPY2D``, and the stream."""

    def call(word: Words) -> Call:
        part = words(word(0))

        def end(first: int) -> Place:
            kind = part(first + 2) & 0xFFFFFFFF
            base = part(first + (3 if kind == HOST else 4))
            pitch = part(first + 6)
            start = base + part(first + 1) * pitch + part(first)
            known = kind if kind in (HOST, DEVICE) else UNKNOWN
            return Place(start, part(14), known, part(15), pitch)

        return Transfer(end(7), end(0), LEGACY if blocking else word(1), blocking)

    return call


def _fill(size: int, blocking: bool) -> Callable[[Words], Call]:
    """``target, value, items`` of `size` bytes each, and the stream."""

    def call(word: Words) -> Call:
        return Transfer(
            Place(word(0), word(2) * size), None, LEGACY if blocking else word(3), blocking
        )

    return call


def _fill_2d(size: int, blocking: bool) -> Callable[[Words], Call]:
    """``target, pitch, value, items in a row, rows``, and the stream."""

    def call(word: Words) -> Call:
        place = Place(word(0), word(3) * size, UNKNOWN, word(4), word(1))
        return Transfer(place, None, LEGACY if blocking else word(5), blocking)

    return call


_PLAIN: dict[str, Callable[[Words], Call]] = {
    "cuLaunchKernel": _launch,
    "cuLaunchKernelEx": _launch_ex,
    "cuLaunchCooperativeKernel": _cooperative,
    "cuGraphLaunch": lambda word: GraphLaunch(word(1)),
    "cuStreamWaitEvent": lambda word: Wait(word(0), word(1)),
    "cuStreamSynchronize": lambda word: Sync(word(0)),
    "cuStreamQuery": lambda word: Sync(word(0), query=True),
    "cuCtxSynchronize": lambda word: Sync(None),
    "cuCtxSynchronize_v2": lambda word: Sync(None),
    "cuMemcpy": _copy(UNKNOWN, UNKNOWN, blocking=True),
    "cuMemcpyAsync": _copy(UNKNOWN, UNKNOWN, blocking=False),
    "cuMemcpy2D_v2": _copy_2d(blocking=True),
    "cuMemcpy2DUnaligned_v2": _copy_2d(blocking=True),
    "cuMemcpy2DAsync_v2": _copy_2d(blocking=False),
}
for _name, _target, _source in (
    ("HtoD", DEVICE, HOST),
    ("DtoH", HOST, DEVICE),
    ("DtoD", DEVICE, DEVICE),
):
    _PLAIN[f"cuMemcpy{_name}_v2"] = _copy(_target, _source, blocking=True)
    _PLAIN[f"cuMemcpy{_name}Async_v2"] = _copy(_target, _source, blocking=False)
for _bits in (8, 16, 32):
    _PLAIN[f"cuMemsetD{_bits}_v2"] = _fill(_bits // 8, blocking=True)
    _PLAIN[f"cuMemsetD{_bits}Async"] = _fill(_bits // 8, blocking=False)
    _PLAIN[f"cuMemsetD2D{_bits}_v2"] = _fill_2d(_bits // 8, blocking=True)
    _PLAIN[f"cuMemsetD2D{_bits}Async"] = _fill_2d(_bits // 8, blocking=False)

CALLS: dict[str, tuple[Callable[[Words], Call], bool]] = {
    name + ending: (decode, bool(ending))
    for name, decode in _PLAIN.items()
    for ending in ("", "_ptsz", "_ptds")
}
"""Functions that are watched: what tells a call, and whether stream 0 is the thread's own."""


RECORDS = tuple(
    name + ending
    for name in ("cuEventRecord", "cuEventRecordWithFlags")
    for ending in ("", "_ptsz")
)
"""Records of events: the event, the stream (rule E1)."""

FREES = ("cuMemFree_v2",)
"""Memory goes back to the driver, which joins the device (rule M3)."""

WAITS = ("cuEventSynchronize",)
"""The calling thread waits for an event (rule E3)."""


QUERIES = ("cuEventQuery",)
"""An event is done (rule E4), since a query that answers otherwise is not noted."""


def stream_of(handle: int, per_thread: bool) -> int:
    """The handle that a call means: 1 is the legacy stream, and 0 that or the thread's own."""
    if handle == LEGACY:
        return PER_THREAD if per_thread else LEGACY
    return LEGACY if handle == _ALWAYS_LEGACY else handle

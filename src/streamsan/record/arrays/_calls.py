"""What a call of NumPy or of a memoryview touched of pinned memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamsan.model import records as r
from streamsan.model.extent import Extent
from streamsan.record._observer import Observer
from streamsan.record.arrays._extents import taken, whole
from streamsan.record.arrays._functions import FUNCTIONS, MEMORYVIEW, METHODS, UFUNC_METHODS, Use
from streamsan.tracebacks import hide_our_frames

_READ, _WRITE, _BOTH = int(r.Mode.READ), int(r.Mode.WRITE), int(r.Mode.READ_WRITE)
_LIKELY, _POSSIBLE = int(r.Confidence.LIKELY), int(r.Confidence.POSSIBLE)
_HOST = int(r.OpKind.HOST)

_USES: dict[str, Use] = {
    **{f"ndarray.{name}": use for name, use in METHODS.items()},
    **{f"memoryview.{name}": use for name, use in MEMORYVIEW.items()},
    **{f"ufunc.{name}": use for name, use in UFUNC_METHODS.items()},
    **FUNCTIONS,
}

_WRITABLE = 1
_AT_ONCE = 0, 8, 0x11C
"""Flags of requests for a buffer: one that may be written; and those of functions that read it and
give it back, ``PyBUF_SIMPLE`` (whatever takes bytes-like objects, as files and sockets do),
``PyBUF_CONTIG_RO`` (``io.BytesIO``) and ``PyBUF_FULL_RO`` (``bytes``).
"""

Touch = tuple[Extent, int, str, int]
"""Bytes, how they are touched, through which argument, and how sure that is."""


class Calls:
    """Called with each call, after it: with its name, `self`, and the arguments."""

    def __init__(self, observer: Observer, is_pinned: Callable[[int], bool]) -> None:
        self._observer = observer
        self._is_pinned = is_pinned

    def __call__(self, name: str, owner: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        """Report what the call touched of pinned memory.

        Raises nothing but what the program's handlers of signals do meanwhile.
        """
        try:
            self._report(name, owner, args, kwargs or {})
        except BaseException as error:
            hide_our_frames(error)
            raise

    def _report(self, name: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        observer = self._observer
        if not observer.recording:
            return
        try:
            accesses = tuple(
                r.Access(r.HOST, *extent, mode, argument, confidence)
                for extent, mode, argument, confidence in _touches(name, owner, args, kwargs)
                if self._is_pinned(extent[0])
            )
            if accesses:
                shown = _shown(name, owner)
                observer.operation(_HOST, shown, observer.thread(), accesses)
        except Exception as error:
            observer.internal_error(error)


def _shown(name: str, owner: Any) -> str:
    """The name for the report, as in ``numpy.add.reduce`` and ``numpy.ndarray.tolist``."""
    if isinstance(owner, np.ufunc):
        name = owner.__name__ + name.removeprefix("ufunc")
    return name if name.startswith("memoryview") else f"numpy.{name}"


def _touches(
    name: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Touch]:
    """What a call has touched."""
    if name.endswith("__getitem__"):
        yield from _part(owner, args[0], _READ)
    elif name.endswith("__setitem__"):
        yield from _part(owner, args[0], _WRITE)
        yield from _all(args[1], _READ, "value", _LIKELY)
    elif name.endswith("__buffer__"):
        yield from _lent(owner, *args)
    elif name == "ufunc":
        yield from _computed(args, kwargs, Use(), owner.nargs - owner.nout)
    elif name.startswith(("ndarray.", "memoryview.")):
        yield from _computed((owner, *args), kwargs, _USES.get(name, Use()), first="self")
    elif not _USES[name].lends:
        yield from _computed(args, kwargs, _USES[name])


def _part(array: Any, key: Any, mode: int) -> Iterator[Touch]:
    for extent, exact in taken(array, key):
        yield extent, mode, "self", _LIKELY if exact else _POSSIBLE


def _lent(array: Any, flags: int, later: bool) -> Iterator[Touch]:
    """A buffer was asked for: whoever wants it for a moment reads it, of others that is a guess.

    What is written to a buffer shows in the bytes.
    """
    if not later and not flags & _WRITABLE:
        yield from _all(array, _READ, "self", _LIKELY if flags in _AT_ONCE else _POSSIBLE)


def _computed(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    use: Use,
    results: int | None = None,
    first: str = "argument 1",
) -> Iterator[Touch]:
    """The arguments of a function; those from position `results` on are written, if it is given."""
    masks = [args[use.where]] if use.where is not None and use.where < len(args) else []
    masks.append(kwargs.get("where"))
    sure = _POSSIBLE if any(isinstance(mask, np.ndarray) for mask in masks) else _LIKELY
    for position, value in enumerate(args):
        mode, confidence = _READ, sure
        if position == use.target:
            mode, confidence = _BOTH if use.kept else _WRITE, _POSSIBLE if use.partly else sure
        elif position == use.out or (results is not None and position >= results):
            mode = _WRITE
        argument = f"argument {position + 1}" if position else first
        yield from _all(value, mode, argument, confidence)
    for name, value in kwargs.items():
        yield from _all(value, _WRITE if name == "out" else _READ, name, sure)


def _all(value: Any, mode: int, argument: str, confidence: int) -> Iterator[Touch]:
    """All of an array, or of those in a list or tuple."""
    for array in value if isinstance(value, list | tuple) else (value,):
        if isinstance(array, np.ndarray | memoryview):
            extent = whole(array)
            if extent is not None:
                yield extent, mode, argument, confidence

"""The parts of the recorder that run for each operator: compiled, or in Python where they are not.

What stands here is the choice; `streamsan.record._portable` tells what the parts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any, Protocol

from streamsan.model.records import Access
from streamsan.record import _portable
from streamsan.record._built import fingerprint
from streamsan.virtual.memory import NOWHERE
from streamsan.virtual.monitor import Monitor

try:
    from streamsan.record import _compiled  # type: ignore[attr-defined]
except ImportError:
    _compiled = None

if _compiled is not None and fingerprint() not in (0, getattr(_compiled, "SOURCES", None)):
    _compiled = None  # built from other sources: `python hatch_build.py` builds it anew

_CUDA, _ROCM = 2, 10  # DLPack's types of devices


class Stacks(Protocol):
    """See `streamsan.record._portable.Stacks`."""

    def number(self) -> int:
        """Number of the calling thread's Python stack."""

    def clear(self) -> None:
        """Forget all stacks."""


class Accesses(Protocol):
    """See `streamsan.record._portable.Accesses`."""

    def touch(self, value: Any, mode: int, argument: str, accesses: list[Access]) -> int:
        """Append what tensors touch; their highest owner."""

    def arguments(
        self,
        places: Sequence[_portable.Place],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        accesses: list[Access],
        grad: bool,
    ) -> tuple[int, bool]:
        """Append what arguments touch; their highest owner, whether one wants a gradient."""


Work: Any = (_compiled or _portable).Work
Born: Any = (_compiled or _portable).Born
LiveBlocks: Any = (_compiled or _portable).LiveBlocks
Then: Any = (_compiled or _portable).Then
Packed: Any = (_compiled or _portable).Packed
Outlet: Any = _portable.Outlet

if _compiled is not None:

    class CompiledOutlet(_compiled.Outlet, Monitor):  # type: ignore[misc]
        """The compiled one, with what is rarely used."""

        @contextmanager
        def released(self) -> Iterator[None]:
            """Let other threads have the lock for a while, however often the caller took it."""
            depth = self.let_go()
            try:
                yield
            finally:
                self.take_back(depth)

    Outlet = CompiledOutlet


def compiled() -> bool:
    """Whether the compiled parts are there."""
    return _compiled is not None


def bridge() -> Any:
    """What the part inside of torch's dispatcher calls (``compiled/bridge.h``), or None."""
    return None if _compiled is None else _compiled.bridge


def arrays() -> Any:
    """What listens to functions of NumPy (``compiled/arrays.h``), or None."""
    return _compiled


def stacks(define: Callable[[FrameType | None], int]) -> Stacks:
    """Numbers of stacks."""
    made: Stacks = (_compiled or _portable).Stacks(define)
    return made


def accesses(
    touch: _portable.Touch,
    plain: tuple[type, ...],
    pinned: dict[int, Any],
    blocks: Any,
    seen: Callable[[Any, int], None],
    always_seen: bool,
) -> Accesses:
    """What tensors of torch touch.

    `touch` says it of any tensor, the compiled part only of those whose class is one of `plain`,
    and of no host tensor while blocks are `pinned`; `seen` is called for a device tensor if its
    block, of `LiveBlocks`, has no `number` yet, or always.
    """
    import torch

    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if _compiled is None or exchange is None:
        return _portable.Accesses(torch.Tensor, touch)
    device = _ROCM if torch.version.hip else _CUDA
    try:
        made: Accesses = _compiled.Accesses(
            Access, torch.Tensor, plain, touch, pinned, blocks, seen, exchange, always_seen,
            device, NOWHERE,
        )  # fmt: skip
    except ImportError:  # a later version of DLPack
        return _portable.Accesses(torch.Tensor, touch)
    return made


@dataclass(slots=True)
class Parts:
    """What a compiled `Recording` works with.

    The recorder's `observer`, `outlet`, `accesses` and `threads` (whose ``work`` is the calling
    thread's); the observer's `stacks`, and which are `user_stacks`; the `callers` of backward
    passes, graph `captures` under way, and live `blocks`; dictionaries that others keep: `known`
    timelines by device and handle, collectives `in_flight`, `notes` of nodes; functions of torch
    (`device`, `raw_stream`, `grad`, `node`, `sequence`), the classes of records (`operation`,
    `alloc`, `free`), and methods of the recorder for the rest. `allocator` has the name of torch's.
    """

    accesses: Any
    outlet: Any
    threads: Any
    observer: Any
    captures: list[Any]
    known: dict[tuple[int, int], int]
    current: Callable[[int], int]
    blocks: Any
    allocator: Any
    handed_out: Callable[[int, int, int], None]
    allocated: Callable[[int, int, int, int], Any]
    seen: Callable[[Any, int], None]
    in_flight: dict[int, Any]
    give_up: Callable[[Any, int, int], None]
    next_number: Callable[[], int]
    stacks: Any
    user_stacks: set[int]
    callers: list[tuple[int, int, int]]
    thread: Callable[[], int]
    error: Callable[[BaseException], None]
    node: Callable[[], Any]
    device: Callable[[], int]
    raw_stream: Callable[[int], int]
    grad: Callable[[], bool]
    notes: dict[int, tuple[int, Any]]
    sequence: Callable[[], int]
    note: Callable[[], None]
    emit: Callable[[Any], None]
    begin: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    synchronized: Callable[[int], None]
    partial: Any
    operation: Any
    alloc: Any
    free: Any


def recording(parts: Parts) -> Any:
    """The compiled recording, or None where there is none: its work is done in Python then."""
    if _compiled is None or not isinstance(parts.accesses, _compiled.Accesses):
        return None
    made = _compiled.Recording(parts)
    parts.accesses.seen = made.seen
    return made


@dataclass(slots=True)
class Operator:
    """An operator as the compiled core runs and reports it: see `Computation` and `Copy`.

    `updating` are the places of a call that updates statistics, which the argument at `training`
    tells. `kind`, `name` and `copy` are those of the operation; `result` is what the report calls
    its results; `copies`, how many tensors are the arguments of a copy. What is rare is left to
    methods of `reported`.
    """

    reported: Any
    places: list[_portable.Place]
    updating: list[_portable.Place]
    training: _portable.Place | None
    kind: int
    name: str
    copy: int
    result: str
    fresh: bool
    shares: bool
    synchronizes: bool
    uninitialized: bool
    copies: int


def operator(recording: Any, described: Operator) -> Any:
    """What runs an operator and reports it."""
    assert _compiled is not None
    values = (getattr(described, field.name) for field in fields(described))
    return _compiled.Operator(recording, *values)

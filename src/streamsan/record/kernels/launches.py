"""Reports launches of kernels that do not come through torch's dispatcher.

A pointer that came as a tensor stands for the bytes of that tensor, a tensor descriptor for those
it describes: which of them a kernel touches, and whether it goes beyond, its code alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.model.extent import Extent, canonical
from streamsan.record._accounted import ACCOUNTED
from streamsan.record.kernels.trials import Trials
from streamsan.record.kernels.uses import KernelUses
from streamsan.virtual.face.nodes import current_node
from streamsan.virtual.memory import NOWHERE, PINNED

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_Place = tuple[int, int]
"""Where a tensor lies: address space and address."""

_ADDRESSES = "memory that Triton kernels reach by addresses other than those of their tensors"


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address that came without its tensor. `whole` are the bytes that it may stand for, counted
    from it, and `sure` whether it stands for just those.
    """

    space: int
    address: int
    whole: Extent
    sure: bool


class Launches:
    """Tells a recorder of the launches in this process."""

    def __init__(self, recorder: CudaRecorder) -> None:
        self._recorder = recorder
        self.trials = Trials()

    def launch(
        self,
        launcher: object,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        tell: Callable[[tuple[Any, ...]], None],
    ) -> Any:
        """Launch a kernel by ``run(*args)``, then have it told, where that is wanted."""
        with ACCOUNTED:
            result = run(*args)
        if self._watched(launcher):
            self.guarded(lambda: tell(args))
        return result

    def _watched(self, launcher: object) -> bool:
        """Whether a launch by that launcher is to be reported."""
        recorder = self._recorder
        if not (recorder.enabled and recorder.observer.recording):
            return False
        return not self.trials.repeats(launcher)

    def guarded(self, work: Callable[[], None]) -> None:
        """Do `work` of ours: its errors are noted, and never reach the program."""
        self._recorder._guarded(work)

    def report(
        self,
        uses: KernelUses,
        grid_and_stream: Sequence[int],
        pointers: Sequence[Any],
        numbers: Sequence[object],
    ) -> None:
        """The calling thread launched a kernel on the current device: on a grid of three numbers,
        and a native stream, with these arguments.
        """
        x, y, z, stream = grid_and_stream
        recorder = self._recorder
        timeline = recorder.streams.define(torch.cuda.current_device(), stream)
        places: dict[int, _Place | None] = {}
        accesses: list[r.Access] = []
        for touch in uses.touches((x, y, z), numbers):
            pointer = touch.pointer
            if pointer not in places:
                places[pointer] = self._place(pointers[pointer], timeline)
            place = places[pointer]
            if place is None:
                continue
            space, address = place
            start, run, sizes, strides = touch.extent or _whole(pointers[pointer])
            if run:
                name, _, confidence = uses.parameters[pointer]
                if touch.extent is None and _is_guess(pointers[pointer]):
                    confidence = int(r.Confidence.POSSIBLE)
                extent = address + start, run, sizes, strides
                accesses.append(r.Access(space, *extent, touch.mode, name, confidence))
        if uses.elsewhere:
            recorder.observer.note_once("blind-spot", _ADDRESSES)
        self.emit(uses.name, timeline, accesses)

    def _place(self, value: Any, timeline: int) -> _Place | None:
        """Where what came as a pointer lies, its block made known; None for nothing known."""
        if isinstance(value, Pointer):
            return value.space, value.address
        tensor = _tensor(value)
        recorder = self._recorder
        if tensor is None:
            if value is not None:
                recorder.observer.note_once("blind-spot", _ADDRESSES)
            return None
        owner = recorder.owner(tensor)
        if owner == NOWHERE:
            return None
        recorder.blocks.seen(tensor, owner)
        if owner >= 0 and recorder.streams.several and current_node() is not None:
            recorder.blocks.engine_records(tensor, timeline)
        return r.HOST if owner == PINNED else owner, tensor.data_ptr()

    def emit(self, name: str, timeline: int, accesses: Sequence[r.Access]) -> None:
        """Report the operation: after the operator at work, where there is one (rule C7)."""
        recorder, kind = self._recorder, int(r.OpKind.KERNEL)
        stack, inside = recorder.stack(), recorder.local.inside
        if inside is None:
            recorder.operation(kind, name, timeline, accesses, stack=stack)
        else:
            inside.append(lambda: recorder.operation(kind, name, timeline, accesses, stack=stack))


def _tensor(value: Any) -> torch.Tensor | None:
    """The tensor that an argument of a kernel stands for.

    A tensor descriptor has ``base``, ``shape`` and ``strides``; Triton's reinterpreted tensor has a
    ``base`` and a type of its own, over the same bytes.
    """
    if isinstance(value, torch.Tensor):
        return value
    base = getattr(value, "base", None)
    return base if isinstance(base, torch.Tensor) else None


def _is_guess(value: Any) -> bool:
    return isinstance(value, Pointer) and not value.sure


def _whole(value: Any) -> Extent:
    """All bytes of what came as a pointer, counted from it; a run of 0 where it has none."""
    if isinstance(value, Pointer):
        return value.whole
    tensor = _tensor(value)
    assert tensor is not None
    sizes, strides = tuple(tensor.shape), tensor.stride()
    if tensor is not value and hasattr(value, "strides"):
        sizes, strides = tuple(value.shape), tuple(value.strides)
    return canonical(0, tensor.itemsize, sizes, strides) or (0, 0, (), ())

"""``torch.cuda.nccl`` on CUDA devices: collectives among the devices of one process.

They run on the stream given for each device, or on its current one, and order nothing else
(torch/csrc/cuda/nccl.cpp). The dispatcher does not see them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model.records import Mode, OpKind

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

Sides = Sequence["torch.Tensor | None"]
Touched = tuple[torch.Tensor, int, str]
"""A tensor, how it is accessed, and the argument it is."""


def install_raw(recorder: CudaRecorder) -> None:
    """Watch the calls, for the rest of the process. Nothing where torch was built without NCCL."""
    module: Any = torch._C
    for name, sides in _SIDES.items():
        original = getattr(module, f"_nccl_{name}", None)
        if original is not None:
            setattr(module, f"_nccl_{name}", _reported(recorder, name, original, sides))


def _reported(
    recorder: CudaRecorder,
    name: str,
    original: Callable[..., Any],
    sides: Callable[..., tuple[Sides, Sides, Any]],
) -> Callable[..., Any]:
    def report(args: tuple[Any, ...]) -> None:
        sources, targets, streams = sides(*args)
        for place, (source, target) in enumerate(zip(sources, targets)):
            stream = streams[place] if streams else None
            report_part(recorder, name, _touched(source, target), stream)

    @functools.wraps(original)
    def call(*args: Any) -> Any:
        result = original(*args)
        if recorder.enabled and recorder.observer.recording:
            recorder._guarded(lambda: report(args))
        return result

    return call


def _touched(source: torch.Tensor | None, target: torch.Tensor | None) -> list[Touched]:
    if source is not None and source is target:
        return [(source, int(Mode.READ_WRITE), "input")]
    both = ((source, int(Mode.READ), "input"), (target, int(Mode.WRITE), "output"))
    return [(tensor, mode, side) for tensor, mode, side in both if tensor is not None]


def report_part(
    recorder: CudaRecorder, name: str, touched: Sequence[Touched], given: Any = None
) -> None:
    """Report what one device has to do: on the stream `given`, or on its current one."""
    device = touched[0][0].get_device()
    handle = torch._C._cuda_getCurrentRawStream(device) if given is None else given.cuda_stream
    stream = recorder.streams.define(device, handle)
    accesses = recorder.accesses([(t, device, mode, side) for t, mode, side in touched])
    recorder.operation(int(OpKind.COLLECTIVE), f"nccl::{name}", stream, accesses)


def _all_reduce(
    inputs: Sides, outputs: Sides, op: int, streams: Any, comms: Any
) -> tuple[Sides, Sides, Any]:
    return inputs, outputs, streams


def _reduce(
    inputs: Sides, output: torch.Tensor, root: int, op: int, streams: Any, comms: Any
) -> tuple[Sides, Sides, Any]:
    return inputs, [output if n == root else None for n in range(len(inputs))], streams


def _broadcast(inputs: Sides, root: int, streams: Any, comms: Any) -> tuple[Sides, Sides, Any]:
    sources = [tensor if n == root else None for n, tensor in enumerate(inputs)]
    targets = [None if n == root else tensor for n, tensor in enumerate(inputs)]
    return sources, targets, streams


def _all_gather(
    inputs: Sides, outputs: Sides, streams: Any, comms: Any
) -> tuple[Sides, Sides, Any]:
    return inputs, outputs, streams


_SIDES: dict[str, Callable[..., tuple[Sides, Sides, Any]]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _all_reduce,
}
"""For each call what its arguments are: the inputs and outputs of each device, and the streams."""

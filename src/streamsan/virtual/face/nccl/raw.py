"""``torch.cuda.nccl``: collectives among the devices of one process, without communicator objects.

They run on the stream given for each device, or on its current one, and nothing else is done for
the caller: no order with another stream, no handle, and nothing keeps their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from streamsan.model.records import Mode, OpKind
from streamsan.virtual.face import current
from streamsan.virtual.face.below import Below
from streamsan.virtual.face.nccl.steps import reduce as reduced
from streamsan.virtual.face.schema import Operand
from streamsan.virtual.streams import Stream, Task, Work

VERSION = (2, 28, 9)
"""The release of NCCL whose interface this is."""

Tensors = Sequence[torch.Tensor]

_REDUCTIONS = ("SUM", "PRODUCT", "MAX", "MIN", "AVG")  # by the numbers of ncclRedOp_t


def version() -> int:
    """Major, minor and patch number, as torch packs them."""
    major, minor, patch = VERSION
    return major << 32 | minor << 16 | patch


def all_reduce(inputs: Tensors, outputs: Tensors, op: int, streams: Any, comms: Any) -> None:
    """Each output is the reduction of all inputs."""

    def work(inputs: Tensors, outputs: Tensors) -> None:
        value = _reduce(op, inputs)
        for output in outputs:
            output.copy_(value)

    _run("all_reduce", inputs, outputs, streams, work)


def reduce(
    inputs: Tensors, output: torch.Tensor, root: int, op: int, streams: Any, comms: Any
) -> None:
    """The output, on the root's device, is the reduction of all inputs."""

    def work(inputs: Tensors, outputs: Tensors) -> None:
        outputs[0].copy_(_reduce(op, inputs))

    outputs: list[Any] = [output if place == root else None for place in range(len(inputs))]
    _run("reduce", inputs, outputs, streams, work)


def broadcast(inputs: Tensors, root: int, streams: Any, comms: Any) -> None:
    """Each tensor becomes what the root's is."""

    def work(inputs: Tensors, outputs: Tensors) -> None:
        for output in outputs:
            output.copy_(inputs[0])

    sources: list[Any] = [value if place == root else None for place, value in enumerate(inputs)]
    targets: list[Any] = [None if place == root else value for place, value in enumerate(inputs)]
    _run("broadcast", sources, targets, streams, work)


def all_gather(inputs: Tensors, outputs: Tensors, streams: Any, comms: Any) -> None:
    """Each output is all inputs in a row."""

    def work(inputs: Tensors, outputs: Tensors) -> None:
        value = torch.cat([source.reshape(-1) for source in inputs])
        for output in outputs:
            output.view(-1).copy_(value)

    _run("all_gather", inputs, outputs, streams, work)


def reduce_scatter(inputs: Tensors, outputs: Tensors, op: int, streams: Any, comms: Any) -> None:
    """Each output is its part of the reduction of all inputs."""

    def work(inputs: Tensors, outputs: Tensors) -> None:
        value = _reduce(op, [source.reshape(-1) for source in inputs])
        for part, output in zip(value.chunk(len(outputs)), outputs):
            output.view(-1).copy_(part)

    _run("reduce_scatter", inputs, outputs, streams, work)


def _reduce(op: int, values: Tensors) -> torch.Tensor:
    kinds = torch.distributed.ReduceOp.RedOpType
    return reduced(getattr(kinds, _REDUCTIONS[op]), list(values))


def _run(
    name: str,
    inputs: Sequence[torch.Tensor | None],
    outputs: Sequence[torch.Tensor | None],
    streams: Sequence[Any] | None,
    work: Callable[[Tensors, Tensors], None],
) -> None:
    """Enqueue a collective on a stream of each device. It runs once all of them have come to it."""
    face = current.face()
    gpu, tensors = face.gpu, face.tensors
    owners = [
        tensors.owner(source if source is not None else target)  # type: ignore[arg-type]
        for source, target in zip(inputs, outputs)
    ]
    if any(owner < 0 for owner in owners):
        raise RuntimeError("input and output elements have to be cuda dense Tensors")
    if len(set(owners)) < len(owners):
        raise RuntimeError("inputs must be on unique devices")
    given = streams or [None] * len(owners)
    chosen = [
        current.native_stream(owner) if stream is None else stream.native
        for owner, stream in zip(owners, given)
    ]
    with gpu.monitor:
        sources = [tensors.spec(value) for value in inputs if value is not None]
        targets = [tensors.spec(value) for value in outputs if value is not None]

        def all_devices() -> None:
            with Below():
                work([tensors.view(s).clone() for s in sources], [tensors.view(t) for t in targets])

        _submit(chosen, all_devices)
        for stream, owner, source, target in zip(chosen, owners, inputs, outputs):
            found = _touched(source, target, owner)
            face.executor.report(int(OpKind.COLLECTIVE), f"nccl::{name}", stream, found, (), owner)


def _submit(streams: Sequence[Stream], work: Work) -> None:
    """Let `work` run once, after what all `streams` have so far and before what comes next."""
    gpu = current.face().gpu
    arrived: list[Task | None] = []
    for stream in streams:
        gpu.submit(stream, None)
        arrived.append(stream.tail)
    gpu.submit(streams[0], work, tuple(arrived))
    for stream in streams[1:]:
        gpu.submit(stream, None, (streams[0].tail,))


def _touched(source: torch.Tensor | None, target: torch.Tensor | None, owner: int) -> list[Operand]:
    if source is not None and source is target:
        return [(source, owner, int(Mode.READ_WRITE), "input")]
    sides = ((source, Mode.READ, "input"), (target, Mode.WRITE, "output"))
    return [(value, owner, int(mode), name) for value, mode, name in sides if value is not None]


def native() -> dict[str, Any]:
    """Names of ``torch._C`` and what stands for them."""
    return {
        "_nccl_version": version,
        "_nccl_version_suffix": lambda: b"",
        "_nccl_unique_id": lambda: bytes(128),
        "_nccl_init_rank": lambda ranks, unique, rank: object(),
        "_nccl_all_reduce": all_reduce,
        "_nccl_reduce": reduce,
        "_nccl_broadcast": broadcast,
        "_nccl_all_gather": all_gather,
        "_nccl_reduce_scatter": reduce_scatter,
    }

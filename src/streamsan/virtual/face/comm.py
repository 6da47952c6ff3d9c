"""Copies among devices as ``torch.nn.parallel`` makes them: broadcast, scatter and gather.

Broadcasts go by NCCL where they can, all else by copies (torch/csrc/cuda/comm.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.cuda import nccl

from streamsan.virtual.face.nccl import raw

Tensors = Sequence[torch.Tensor]


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """The tensor on each device: itself on its own, copies on the others."""
    own = tensor.get_device()
    others = [index for index in devices if index != own]
    copies = [torch.empty_like(tensor, device=torch.device("cuda", index)) for index in others]
    broadcast_out(tensor, copies)
    left = iter(copies)
    return [tensor if index == own else next(left) for index in devices]


def broadcast_out(tensor: torch.Tensor, out: Tensors) -> Tensors:
    """Write the tensor into each of `out`: by NCCL where all are on devices of their own, which
    orders the devices' current streams with nothing else, and by copies where they are not.
    """
    if out and nccl.is_available([tensor, *out]):
        raw.broadcast([tensor, *out], 0, None, None)
        return out
    for target in out:
        target.copy_(tensor, non_blocking=True)
    return out


def broadcast_coalesced(
    tensors: Tensors, devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """The tensors on each device: themselves on the first, which is theirs."""
    copies = [broadcast(tensor, devices) for tensor in tensors]
    return [[copied[place] for copied in copies] for place in range(len(devices))]


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None,
) -> list[torch.Tensor]:
    """Parts of the tensor, one a device, each copied on the stream given for it."""
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    chosen = streams or [None] * len(devices)
    result = []
    for part, index, stream in zip(parts, devices, chosen):
        with torch.cuda.stream(stream) if stream is not None else nullcontext():
            result.append(part.to(torch.device("cuda", index), non_blocking=True))
    return result


def scatter_out(
    tensor: torch.Tensor, out: Tensors, dim: int, streams: Sequence[Any] | None
) -> Tensors:
    """Copy parts of the tensor into `out`."""
    parts = tensor.split([target.size(dim) for target in out], dim)
    for part, target in zip(parts, out):
        target.copy_(part, non_blocking=True)
    return out


def gather(tensors: Tensors, dim: int, destination: int | None) -> torch.Tensor:
    """The tensors as one, on a device (by default the first's; -1 is the host)."""
    if destination is None:
        place = tensors[0].device
    else:
        place = torch.device("cuda", destination) if destination >= 0 else torch.device("cpu")
    there = place.type == "cuda"
    return torch.cat([tensor.to(place, non_blocking=there) for tensor in tensors], dim)


def gather_out(tensors: Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    """Copy the tensors into parts of `out`."""
    for part, source in zip(out.split([tensor.size(dim) for tensor in tensors], dim), tensors):
        part.copy_(source, non_blocking=True)
    return out


def native() -> dict[str, Any]:
    """Names of ``torch._C`` and what stands for them."""
    return {
        "_broadcast": broadcast, "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced, "_scatter": scatter,
        "_scatter_out": scatter_out, "_gather": gather, "_gather_out": gather_out,
    }  # fmt: skip

"""Reduce the gradients of a layered network among all GPUs while the backward pass goes on.

Each layer's gradient is reduced on a communication stream as soon as it is there, by the calls of
`torch.cuda.nccl`, and dropped: its memory is free for the gradient of the layer before. These calls
keep no memory alive, so the program tells the allocator that the communication stream uses the
block. PyTorch's allocator then waits for that stream. An arena that takes a free at once does not
care: it hands the block out, the next gradient is written into it, and the collective reduces that
one instead. So it was in TensorFlow (tensorflow/tensorflow#58022):

    streamsan run --device virtual --allocator bfc:async allreduce_bfc.py          # the race
    streamsan run --device virtual --allocator bfc:async --schedule hold:communication \
        allreduce_bfc.py                                                           # what it does
    streamsan run --device virtual --allocator bfc:event allreduce_bfc.py          # no race

Prints whether the reduced gradients are those that the host computes, and exits with 1 if not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

LAYERS, WIDTH, BATCH = 6, 64, 32


def gradients(weights: list[Tensor], data: Tensor, reduce: Callable[[int, Tensor], None]) -> None:
    """Backward through tanh layers by hand; `reduce` gets the gradient of each weight.

    `data` is (BATCH, WIDTH), each weight (WIDTH, WIDTH).
    """
    outputs = [data]
    for weight in weights:
        outputs.append(torch.tanh(outputs[-1] @ weight))
    error = outputs[-1] - data
    for layer in reversed(range(len(weights))):
        error = error * (1 - outputs[layer + 1] ** 2)
        gradient = outputs[layer].T @ error
        reduce(layer, gradient)
        del gradient
        error = error @ weights[layer].T


def main() -> int:
    """One step on every GPU of this machine; the exit status."""
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(LAYERS)]
    data = torch.randn(BATCH, WIDTH)
    expected: dict[int, Tensor] = {}
    gradients(weights, data, lambda layer, gradient: expected.update({layer: gradient}))

    communication = torch.cuda.Stream()
    reduced = [torch.zeros(WIDTH, WIDTH, device="cuda") for _ in range(LAYERS)]

    def reduce(layer: int, gradient: Tensor) -> None:
        communication.wait_stream(torch.cuda.current_stream())
        torch.cuda.nccl.all_reduce([gradient], [reduced[layer]], streams=[communication])
        gradient.record_stream(communication)

    gradients([weight.cuda() for weight in weights], data.cuda(), reduce)
    torch.cuda.current_stream().wait_stream(communication)

    wrong = [
        layer
        for layer in range(LAYERS)
        if not torch.allclose(reduced[layer].cpu(), expected[layer], rtol=1e-3, atol=1e-4)
    ]
    print(f"wrong gradients: layers {wrong}" if wrong else "all gradients are right")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

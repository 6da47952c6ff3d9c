"""A whole training step as one CUDA graph: static input, foreach SGD, replays.

On the CPU the same step runs operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from common import options, show, show_weights
from torch import Tensor
from transformer import batches, next_token_loss, sized


def captured(step: Callable[[], Tensor], reset: Callable[[], None]) -> Callable[[], Tensor]:
    """`step` as a graph, warmed up on a side stream; `reset` undoes the warm-up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    reset()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    cuda = args.device == "cuda"
    model = sized(args.small).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    data = batches(args.steps, args.small)
    tokens = torch.empty_like(data[0], device=args.device)
    tokens.copy_(data[0])
    before = [p.detach().clone() for p in model.parameters()]

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = next_token_loss(model, tokens)
        loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def reset() -> None:
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
        for state in optimizer.state.values():
            state["momentum_buffer"].zero_()

    run = captured(step, reset) if cuda else step
    losses = []
    for batch in data:
        tokens.copy_(batch.pin_memory() if cuda else batch, non_blocking=True)
        losses.append(run().clone())
    show("loss", torch.stack(losses).tolist())
    show_weights(model)


if __name__ == "__main__":
    main()

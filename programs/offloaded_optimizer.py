"""Adam on the host: gradients go down on a side stream as they appear, weights come up again.

What ZeRO-Offload does, in one file: pinned copies of gradients and weights, hooks that fire when a
gradient is complete, and an optimizer that works on the host's copies.
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from torch import Tensor, nn
from transformer import batches, next_token_loss, sized


class Offloaded:
    """An optimizer of the host for a model on a device."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.cuda = self.weights[0].is_cuda
        self.masters = [self._host(weight.detach()) for weight in self.weights]
        self.gradients = [torch.zeros_like(m, pin_memory=self.cuda) for m in self.masters]
        for master, gradient in zip(self.masters, self.gradients):
            master.grad = gradient
        self.optimizer = torch.optim.Adam(self.masters, lr=1e-3)
        if self.cuda:
            self.side = torch.cuda.Stream()
            for weight, gradient in zip(self.weights, self.gradients):
                weight.register_post_accumulate_grad_hook(self._download(gradient))

    def _host(self, weight: Tensor) -> Tensor:
        copy = torch.empty_like(weight, device="cpu", pin_memory=self.cuda)
        return copy.copy_(weight)

    def _download(self, target: Tensor):  # noqa: ANN202 -- a hook
        def hook(weight: Tensor) -> None:
            gradient = weight.grad
            assert gradient is not None
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                target.copy_(gradient, non_blocking=True)
            gradient.record_stream(self.side)
            weight.grad = None

        return hook

    def step(self) -> None:
        """Take a step on the host, and send the weights up."""
        if self.cuda:
            self.side.synchronize()
        else:
            for weight, gradient in zip(self.weights, self.gradients):
                assert weight.grad is not None
                gradient.copy_(weight.grad)
                weight.grad = None
        self.optimizer.step()
        with torch.no_grad():
            for weight, master in zip(self.weights, self.masters):
                weight.copy_(master, non_blocking=True)
        if self.cuda:  # the next step rewrites the pinned weights
            torch.cuda.current_stream().synchronize()


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    model = sized(args.small).to(args.device)
    optimizer = Offloaded(model)
    losses = []
    for tokens in batches(args.steps, args.small):
        loss = next_token_loss(model, tokens.to(args.device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()

"""Activations kept in pinned host memory: save_on_cpu(pin_memory=True), and hooks of one's own.

The hooks download on a side stream and upload on another, as activation offloading does in
training libraries.
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from transformer import batches, next_token_loss, sized


class Offloading(saved_tensors_hooks):
    """Large saved tensors go to pinned memory and come back, each way on a stream of its own."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.down, self.up = torch.cuda.Stream(), torch.cuda.Stream()
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: Tensor) -> Tensor | tuple[torch.device, Tensor, torch.cuda.Event]:
        """Start the download of `tensor`."""
        if tensor.numel() < self.least or not tensor.is_cuda:
            return tensor
        self.down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.down):
            kept = torch.empty_like(tensor, device="cpu", pin_memory=True)
            kept.copy_(tensor, non_blocking=True)
            tensor.record_stream(self.down)
            done = self.down.record_event()
        return tensor.device, kept, done

    def unpack(self, packed: Tensor | tuple[torch.device, Tensor, torch.cuda.Event]) -> Tensor:
        """Bring a tensor back for the backward pass."""
        if isinstance(packed, Tensor):
            return packed
        device, kept, done = packed
        current = torch.cuda.current_stream()
        with torch.cuda.stream(self.up):
            self.up.wait_event(done)
            tensor = kept.to(device, non_blocking=True)
        current.wait_stream(self.up)
        tensor.record_stream(current)
        return tensor


def main() -> None:
    """Train a few steps in each way."""
    args = options(__doc__, steps=4)
    cuda = args.device == "cuda"
    for way in ("save_on_cpu", "hooks"):
        torch.manual_seed(0)
        model = sized(args.small).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        losses = []
        for tokens in batches(args.steps, args.small):
            optimizer.zero_grad()
            hooks = save_on_cpu(pin_memory=cuda) if way == "save_on_cpu" or not cuda else None
            with hooks or Offloading(least=256):
                loss = next_token_loss(model, tokens.to(args.device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        show(way, losses)
        show_weights(model)


if __name__ == "__main__":
    main()

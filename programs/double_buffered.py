"""A loader of one's own: two pinned slots that the host refills, an upload stream, and events.

Each slot is filled again only after its last upload; each batch is used only after its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from common import options, show, show_weights
from torch import Tensor, nn


class Slot:
    """A pinned batch, its copy on the device, and the events of their hand-overs."""

    def __init__(self, rows: int, width: int) -> None:
        self.host = torch.empty(rows, width, pin_memory=True)
        self.batch = torch.empty(rows, width, device="cuda")
        self.uploaded = torch.cuda.Event()
        self.used = torch.cuda.current_stream().record_event()


def uploaded(steps: int, rows: int, width: int) -> Iterator[Tensor]:
    """Batches of float32 (rows, width), each valid until the next one is asked for."""
    slots = [Slot(rows, width) for _ in range(2)]
    side = torch.cuda.Stream()

    def begin(step: int) -> None:
        slot = slots[step % 2]
        slot.uploaded.synchronize()  # the host may write the pinned slot again
        slot.host.copy_(numbers(step, rows, width))
        with torch.cuda.stream(side):
            side.wait_event(slot.used)  # and the upload stream, the device's
            slot.batch.copy_(slot.host, non_blocking=True)
            slot.uploaded.record()

    begin(0)
    for step in range(steps):
        if step + 1 < steps:
            begin(step + 1)
        slot = slots[step % 2]
        torch.cuda.current_stream().wait_event(slot.uploaded)
        yield slot.batch
        slot.used.record()


def numbers(step: int, rows: int, width: int) -> Tensor:
    """The batch of a step, the same in every run."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(step))


def main() -> None:
    """Train an autoencoder."""
    args = options(__doc__, steps=20)
    rows, width = (32, 64) if args.small else (4096, 1024)
    layers = [nn.Linear(width, width // 2), nn.GELU(), nn.Linear(width // 2, width)]
    model = nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if args.device == "cuda":
        batches = uploaded(args.steps, rows, width)
    else:
        batches = (numbers(step, rows, width) for step in range(args.steps))
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    show("loss", torch.stack(losses).tolist())
    show_weights(model)


if __name__ == "__main__":
    main()

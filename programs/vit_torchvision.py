"""ViT-B/16 of torchvision: bfloat16 autocast, AdamW, gradient clipping, uploads on a side stream.

needs: torchvision
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from common import Pictures, options, show, show_weights
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.models import VisionTransformer, vit_b_16


def prefetched(
    loader: DataLoader[tuple[Tensor, int]], device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches on `device`, each uploaded on a stream of its own while the last one is used."""
    side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def upload(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.cuda.stream(side):
            images, labels = batch
            return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    batches = iter(loader)
    upcoming = upload(next(batches))
    while upcoming is not None:
        images, labels = upcoming
        if side is not None:
            torch.cuda.current_stream().wait_stream(side)
            images.record_stream(torch.cuda.current_stream())
            labels.record_stream(torch.cuda.current_stream())
        following = next(batches, None)
        upcoming = upload(following) if following is not None else None
        yield images, labels


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    device = torch.device(args.device)
    if args.small:
        batch, size = 4, 32
        model = VisionTransformer(size, 8, 2, 4, 64, 128, num_classes=10)
    else:
        batch, size = 32, 224
        model = vit_b_16(num_classes=10)
    torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    loader = DataLoader(
        Pictures(batch * args.steps, size), batch, num_workers=2, pin_memory=device.type == "cuda"
    )
    losses = []
    for images, labels in prefetched(loader, device):
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    show("loss", torch.stack(losses).tolist())
    show_weights(model)


if __name__ == "__main__":
    main()

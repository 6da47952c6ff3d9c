"""A timm model fed by timm's prefetching loader, which uploads on a side stream of its own.

Also timm's optimizer, schedule, label smoothing and moving average of the weights.

needs: timm, torchvision
"""

from __future__ import annotations

import timm
import torch
from common import options, show, show_weights
from PIL import Image
from timm.data import create_loader
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch.utils.data import Dataset


class Squares(Dataset[tuple[Image.Image, int]]):
    """Pictures of one colour, which the label sets; `transform` is what the loader puts there."""

    transform = None

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size = length, size

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        label = index % 10
        image = Image.new("RGB", (self.size, self.size), (25 * label, 128, 255 - 25 * label))
        return (self.transform(image) if self.transform else image), label


def main() -> None:
    """Train a few steps, then evaluate the averaged weights."""
    args = options(__doc__)
    device = torch.device(args.device)
    name, batch, size = ("test_vit", 4, 64) if args.small else ("efficientnet_b0", 32, 224)
    extra = {"img_size": size} if args.small else {}
    model = timm.create_model(name, num_classes=10, **extra).to(device)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, foreach=True)
    schedule = CosineLRScheduler(optimizer, t_initial=args.steps)
    average = ModelEmaV3(model, decay=0.9)
    criterion = LabelSmoothingCrossEntropy(0.1)
    loader = create_loader(
        Squares(batch * args.steps, size),
        input_size=(3, size, size),
        batch_size=batch,
        is_training=True,
        no_aug=True,
        use_prefetcher=True,
        num_workers=2,
        pin_memory=args.device == "cuda",
        device=device,
        persistent_workers=False,
    )
    model.train()
    losses = []
    for step, (images, labels) in enumerate(loader):
        with torch.autocast(device.type, torch.bfloat16):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model, step=step)
        schedule.step_update(step + 1)
        losses.append(loss.item())
    show("loss", losses)
    average.module.eval()
    with torch.inference_mode():
        for images, _ in loader:
            show("score", average.module(images).float().mean(1).tolist())
    show_weights(average.module)


if __name__ == "__main__":
    main()

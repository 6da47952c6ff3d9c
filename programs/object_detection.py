"""RetinaNet of torchvision: anchors, non-maximum suppression, boxes of many sizes, evaluation.

needs: torchvision
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from torch import Tensor
from torchvision.models.detection import retinanet_resnet50_fpn_v2


def pictures(step: int, rows: int, size: int) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Noise with bright squares: pictures (3, size, size), and where the squares are."""
    generator = torch.Generator().manual_seed(step)
    images, targets = [], []
    for row in range(rows):
        image = torch.rand(3, size, size, generator=generator)
        corners = torch.randint(0, size // 2, (1 + row % 3, 2), generator=generator)
        boxes = torch.cat([corners, corners + size // 4], dim=1)
        for left, top, right, bottom in boxes.tolist():
            image[:, top:bottom, left:right] = 1.0
        images.append(image)
        targets.append({"boxes": boxes.float(), "labels": torch.ones(len(boxes)).long()})
    return images, targets


def main() -> None:
    """Train a few steps, then detect."""
    args = options(__doc__, steps=4)
    cuda = args.device == "cuda"
    rows, size = (2, 64) if args.small else (4, 256)
    model = retinanet_resnet50_fpn_v2(
        weights=None, weights_backbone=None, num_classes=2, min_size=size, max_size=size
    ).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    totals = []
    for step in range(args.steps):
        images, targets = pictures(step, rows, size)
        if cuda:
            images = [image.pin_memory().to("cuda", non_blocking=True) for image in images]
        targets = [{key: value.to(args.device) for key, value in t.items()} for t in targets]
        losses = model.train()(images, targets)
        total = torch.stack(list(losses.values())).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    show("loss", totals)
    with torch.inference_mode():
        found = model.eval()([image.to(args.device) for image in pictures(99, 2, size)[0]])
    show("found", [float(len(boxes["scores"])) for boxes in found])
    show_weights(model)


if __name__ == "__main__":
    main()

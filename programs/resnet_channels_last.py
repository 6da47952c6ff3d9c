"""ResNet-50 of torchvision: channels_last, float16 autocast with loss scaling, pinned loader.

The learning rate follows a cosine, an average of the weights is kept (SWA), and the loop is timed
with CUDA events.

needs: torchvision
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import Pictures, options, show, show_weights
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn
from torch.utils.data import DataLoader
from torchvision.models import ResNet, resnet50
from torchvision.models.resnet import BasicBlock


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    device = torch.device(args.device)
    cuda = device.type == "cuda"
    if args.small:
        rows, size = 4, 32
        model: ResNet = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
    else:
        rows, size = 32, 224
        model = resnet50(num_classes=10)
    model = model.to(device, memory_format=torch.channels_last).train()
    average = AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    loader = DataLoader(
        Pictures(rows * args.steps, size),
        rows,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        num_workers=2,
        persistent_workers=True,
        pin_memory=cuda,
    )
    if cuda:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
    losses = []
    for batch in loader:
        images = batch[0].to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = batch[1].to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.float16):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        average.update_parameters(model)
        losses.append(loss.item())
    if cuda:
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) >= 0
    show("loss", losses)
    show("scale", [float(scaler.get_scale())])
    show_weights(average)


if __name__ == "__main__":
    main()

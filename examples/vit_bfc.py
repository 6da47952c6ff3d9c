"""Train a vision transformer whose uploads run ahead on a stream of their own.

Batches of uint8 images and their labels go from pinned memory to the device on a copy stream, a few
steps ahead; the training stream waits for each batch, normalises it on the device and trains. The
program is right where an allocator keeps memory by stream, as PyTorch's does. An arena that serves
all streams and takes a free at once, while the device still has to run, hands the memory of the
training stream's temporaries to the uploads, and the loss becomes NaN:

    python vit_bfc.py                          # ViT-B/16 on the GPU
    python vit_bfc.py --small --device cpu     # a small one without one
    streamsan run --device virtual --allocator bfc:async --schedule hold:default vit_bfc.py --small

``--images FOLDER`` takes images from a folder with one folder of files for each class.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]
"""Images (batch, 3, size, size) uint8 and labels (batch,) uint8 or int64."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a vision transformer and of its images, in pixels."""

    size: int
    patch: int
    width: int
    depth: int
    heads: int
    classes: int
    batch: int


VIT_B_16 = Shape(size=224, patch=16, width=768, depth=12, heads=12, classes=1000, batch=128)
SMALL = Shape(size=32, patch=8, width=48, depth=2, heads=4, classes=10, batch=16)


class Block(nn.Module):
    """A pre-norm transformer block over (batch, tokens, width)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, shape.heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and MLP to the residual stream."""
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches, class token, blocks and a linear head: images to logits (batch, classes)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        tokens = (shape.size // shape.patch) ** 2 + 1
        self.embed = nn.Conv2d(3, shape.width, kernel_size=shape.patch, stride=shape.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, shape.width))
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.depth)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Classify normalised images (batch, 3, size, size)."""
        patches = self.embed(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(len(images), -1, -1)
        x = torch.cat([class_token, patches], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def make_model(shape: Shape) -> nn.Module:
    """For that shape torchvision's ViT-B/16, if it is installed; else one of ours."""
    if shape == VIT_B_16:
        try:
            from torchvision.models import vit_b_16
        except ImportError:
            pass
        else:
            return vit_b_16()
    return VisionTransformer(shape)


def synthetic(shape: Shape, count: int, pin: bool) -> Iterator[Batch]:
    """Repeat `count` batches of noisy coloured blocks for ever; each class has its own blocks."""
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(40, 216, (shape.classes, 3, 4, 4), generator=generator).float()
    batches = []
    for _ in range(count):
        labels = torch.randint(shape.classes, (shape.batch,), generator=generator)
        images = F.interpolate(blocks[labels], size=(shape.size, shape.size))
        images += 20 * torch.randn(images.shape, generator=generator)
        batch = images.clamp_(0, 255).to(torch.uint8), labels
        batches.append((batch[0].pin_memory(), batch[1].pin_memory()) if pin else batch)
    return cycle(batches)


def from_folder(folder: Path, shape: Shape, pin: bool) -> Iterator[Batch]:
    """Read batches of the images in the folders of `folder`, in a shuffled order, for ever."""
    from PIL import Image  # pip install pillow
    from torchvision.transforms.functional import pil_to_tensor

    names = sorted(path.name for path in folder.iterdir() if path.is_dir())[: shape.classes]
    files = [(path, label) for label, n in enumerate(names) for path in (folder / n).iterdir()]
    generator = torch.Generator().manual_seed(0)
    while True:
        chosen = torch.randint(len(files), (shape.batch,), generator=generator).tolist()
        images = []
        for index in chosen:
            with Image.open(files[index][0]) as image:
                scaled = image.convert("RGB").resize((shape.size, shape.size))
                images.append(pil_to_tensor(scaled))
        batch = torch.stack(images), torch.tensor([files[index][1] for index in chosen])
        yield (batch[0].pin_memory(), batch[1].pin_memory()) if pin else batch


class Uploads:
    """Brings batches to the device, `ahead` of the training by that many, on a copy stream.

    On the CPU there are no streams, and batches pass through as they are.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device, ahead: int) -> None:
        self.batches = batches
        self.device = device
        self.ahead = ahead
        self.copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __iter__(self) -> Iterator[Batch]:
        waiting: deque[Batch] = deque()
        for batch in self.batches:
            waiting.append(self._upload(*batch))
            if len(waiting) > self.ahead:
                yield self._hand_over(*waiting.popleft())
        while waiting:
            yield self._hand_over(*waiting.popleft())

    def _upload(self, images: Tensor, labels: Tensor) -> Batch:
        with torch.cuda.stream(self.copy_stream):  # None: nothing to switch
            pixels = images.to(self.device, non_blocking=True)
            return pixels, labels.to(self.device, non_blocking=True)

    def _hand_over(self, images: Tensor, labels: Tensor) -> Batch:
        """Let the training stream use a batch: wait for it, and tell the allocator."""
        if self.copy_stream is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.copy_stream)
            images.record_stream(current)
            labels.record_stream(current)
        return images, labels


def loss_of(model: nn.Module, images: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Cross entropy of a batch, whose images are normalised here, with smoothed targets."""
    pixels = images.float().div_(127.5).sub_(1.0)
    hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return F.cross_entropy(model(pixels), hot.float(), label_smoothing=0.1)


def train(args: argparse.Namespace, shape: Shape) -> None:
    """Train for the given number of steps; end at a loss that is not finite, as trainers do."""
    torch.manual_seed(0)
    device = torch.device(args.device)
    model = make_model(shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False)
    pin = device.type == "cuda"
    found = from_folder(args.images, shape, pin) if args.images else synthetic(shape, 8, pin)
    for step, batch in enumerate(Uploads(islice(found, args.steps), device, args.ahead)):
        loss = loss_of(model, *batch, shape.classes)
        value = loss.item()
        print(f"step {step:3d}  loss {value:.9g}", flush=True)
        if not math.isfinite(value):
            print(f"the loss is {value} at step {step}: stopping")
            return
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"all {args.steps} losses are finite")


def main() -> None:
    """Run the command line."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description="Train a vision transformer.")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--small", action="store_true", help="a small model for small images")
    parser.add_argument("--images", type=Path, help="folder with one folder a class")
    parser.add_argument("--batch", type=int, help="images a step")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ahead", type=int, default=2, help="batches uploaded ahead of training")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    shape = SMALL if args.small else VIT_B_16
    if args.batch:
        shape = Shape(**{**vars(shape), "batch": args.batch})
    if args.images:
        check_images(args.images, parser)
    train(args, shape)


def check_images(folder: Path, parser: argparse.ArgumentParser) -> None:
    """Leave with a message where `from_folder` could not read images from there."""
    if not any(folder.glob("*/*")):
        parser.error(f"{folder} is not a folder with one folder of images for each class")
    try:
        import PIL  # noqa: F401
        import torchvision  # noqa: F401
    except ImportError:
        parser.error("--images needs two packages: pip install pillow torchvision")


if __name__ == "__main__":
    main()

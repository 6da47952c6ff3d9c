"""Train a small vision transformer on synthetic images, with batches prefetched on a side stream.

The images are made from their index, so nothing is downloaded and every run sees the same data.
On a GPU the `Prefetcher` uploads and normalises the next batch on its own stream while the
current one trains. ``--racy`` leaves out what orders the two streams: the training stream no
longer waits for the upload, and the allocator is not told that it uses the batch.

    python vit_train.py                  # cuda where there is one, else cpu
    python vit_train.py --device cpu --steps 10
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CHANNELS, CLASSES = 3, 10


class Gratings(Dataset[tuple[Tensor, Tensor]]):
    """Noisy gratings; the class sets angle and frequency. Image (3, size, size) uint8, label ()."""

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        axis = torch.arange(size, dtype=torch.float32) / size
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        angles = [math.pi * k / CLASSES for k in range(CLASSES)]
        self.patterns = torch.stack(
            [
                torch.sin(2 * math.pi * (2 + k % 3) * (x * math.cos(a) + y * math.sin(a)))
                for k, a in enumerate(angles)
            ]
        )

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        label = index % CLASSES
        pattern = self.patterns[label]
        noise = torch.randn(CHANNELS, *pattern.shape, generator=generator)
        pixels = 127.5 + 70 * pattern + 25 * noise
        return pixels.clamp(0, 255).to(torch.uint8), torch.tensor(label)


class Prefetcher:
    """Iterates over a loader one batch ahead: uploads and normalises on a stream of its own.

    Yields images (batch, 3, size, size) float32 in about -1 .. 1 and labels (batch,) int64, both
    on `device`. On the CPU there are no streams, and batches pass through in order.
    """

    def __init__(
        self,
        loader: DataLoader[tuple[Tensor, Tensor]],
        device: torch.device,
        ordered: bool = True,
    ) -> None:
        self.loader = loader
        self.device = device
        self.ordered = ordered
        self.copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        batches = iter(self.loader)
        upcoming = self._upload(batches)
        while upcoming is not None:
            batch = self._hand_over(*upcoming)
            upcoming = self._upload(batches)
            yield batch

    def _upload(self, batches: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor] | None:
        """Start the upload of the next batch on the copy stream; None at the end of the data."""
        batch = next(batches, None)
        if batch is None:
            return None
        images, labels = batch
        with torch.cuda.stream(self.copy_stream):  # None: nothing to switch
            pixels = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            return pixels.float().div_(127.5).sub_(1.0), labels

    def _hand_over(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Make the batch safe to use on the current stream."""
        if self.copy_stream is not None and self.ordered:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(
                self.copy_stream
            )  # no kernel of ours starts before the upload is done
            images.record_stream(current)  # no reuse of the memory before our kernels are done
            labels.record_stream(current)
        return images, labels


class Attention(nn.Module):
    """Multi-head self-attention over (batch, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from every token to all; the shape stays."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and MLP to the residual stream (batch, tokens, width)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patch embedding, class token, blocks, linear head: images to logits (batch, classes)."""

    def __init__(self, size: int, patch: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        tokens = (size // patch) ** 2 + 1
        self.embed = nn.Conv2d(CHANNELS, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (batch, 3, size, size)."""
        patches = self.embed(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(len(images), -1, -1)
        x = torch.cat([class_token, patches], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


@dataclass
class Training:
    """All that a training loop needs."""

    device: torch.device
    model: VisionTransformer
    optimizer: torch.optim.Optimizer
    batches: Prefetcher


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    cuda = torch.cuda.is_available()
    p = argparse.ArgumentParser(description="Train a small vision transformer.")
    p.add_argument("--device", default="cuda" if cuda else "cpu")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=0, help="loader processes")
    p.add_argument("--size", type=int, default=32, help="image side in pixels")
    p.add_argument("--patch", type=int, default=4, help="patch side in pixels")
    p.add_argument("--width", type=int, default=96)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--log-every", type=int, default=5, help="read losses back every N steps")
    p.add_argument("--racy", action="store_true", help="leave the two streams unordered")
    return p


def build(args: argparse.Namespace) -> Training:
    """Model, optimizer and data for the given command line; the same at every call."""
    torch.manual_seed(0)
    device = torch.device(args.device)
    model = VisionTransformer(args.size, args.patch, args.width, args.depth, args.heads)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    loader = DataLoader(
        Gratings(length=64 * args.batch, size=args.size),
        batch_size=args.batch,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    return Training(device, model, optimizer, Prefetcher(loader, device, ordered=not args.racy))


def train_step(training: Training, images: Tensor, labels: Tensor) -> Tensor:
    """One step of AdamW; returns the loss on the device, without waiting for it."""
    with torch.autocast(training.device.type, dtype=torch.bfloat16):
        loss = F.cross_entropy(training.model(images), labels)
    training.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(training.model.parameters(), max_norm=1.0)
    training.optimizer.step()
    return loss.detach()


def train(training: Training, steps: int, log_every: int) -> list[float]:
    """Train for `steps` steps and return their losses, printed as they are read back."""
    history: list[float] = []
    pending: list[Tensor] = []  # reading each loss at once would stall the host at every step
    while len(history) < steps:
        for images, labels in training.batches:
            pending.append(train_step(training, images, labels))
            done = len(history) + len(pending) == steps
            if done or len(pending) == log_every:
                for loss in torch.stack(pending).tolist():
                    print(f"step {len(history):4d}  loss {loss:.4f}")
                    history.append(loss)
                pending.clear()
            if done:
                break
    return history


def main() -> None:
    """Run the command line."""
    args = parser().parse_args()
    train(build(args), args.steps, args.log_every)


if __name__ == "__main__":
    main()

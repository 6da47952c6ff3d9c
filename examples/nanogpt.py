"""Train a character-level GPT: gradient accumulation, loss scaling, checkpoint, evaluation.

The text is written by a small grammar in this file, so nothing is downloaded. Half way the
script saves a checkpoint, builds everything anew, loads the checkpoint onto the device and
continues, as a job does that was interrupted. Batches are uploaded on a side stream;
``--racy`` leaves out the wait for it, and the call that tells the allocator.

    python nanogpt.py                  # cuda where there is one, else cpu
    python nanogpt.py --device cpu --steps 10
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,"


def write_text(length: int, seed: int = 0) -> str:
    """Short sentences about streams and kernels, `length` characters of them."""
    rng = random.Random(seed)
    subjects = ["a stream", "the kernel", "one event", "the host", "a copy", "the last block"]
    verbs = ["waits for", "runs before", "follows", "reads", "overtakes", "hands over to"]
    ends = [".\n", ".\n", ", and then stops.\n", ", as it should.\n"]
    parts: list[str] = []
    while sum(map(len, parts)) < length:
        sentence = f"{rng.choice(subjects)} {rng.choice(verbs)} {rng.choice(subjects)}"
        parts.append(sentence + rng.choice(ends))
    return "".join(parts)[:length]


class Corpus:
    """Random windows of the text, for training or (the last tenth) for evaluation."""

    def __init__(self, device: torch.device, context: int, batch: int, ordered: bool) -> None:
        codes = torch.tensor([ALPHABET.index(c) for c in write_text(20_000)])
        cut = len(codes) * 9 // 10
        self.splits = {"train": codes[:cut], "eval": codes[cut:]}
        self.device, self.context, self.batch = device, context, batch
        self.ordered = ordered
        self.copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def draw(self, split: str, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (batch, context) int64 on the device; the same for the same seed."""
        codes = self.splits[split]
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(codes) - self.context, (self.batch,), generator=generator)
        rows = torch.stack([codes[s : s + self.context + 1] for s in starts.tolist()])
        if self.copy_stream is None:
            return rows[:, :-1], rows[:, 1:]
        with torch.cuda.stream(self.copy_stream):
            rows = rows.pin_memory().to(self.device, non_blocking=True)
        if self.ordered:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.copy_stream)
            rows.record_stream(current)
        return rows[:, :-1], rows[:, 1:]


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and MLP to the residual stream (batch, context, width)."""
        batch, context, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Token and position embedding, blocks, and a head that shares the token embedding."""

    def __init__(self, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(ALPHABET), bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, codes: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy, a scalar, of predicting `targets` from `codes` (batch, context)."""
        places = torch.arange(codes.shape[1], device=codes.device)
        x = self.blocks(self.token(codes) + self.position(places))
        logits: Tensor = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclass
class Training:
    """All that a training loop needs; `step` counts the steps done."""

    device: torch.device
    corpus: Corpus
    model: GPT
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    scaler: torch.amp.GradScaler
    step: int = 0


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    cuda = torch.cuda.is_available()
    p = argparse.ArgumentParser(description="Train a small character-level GPT.")
    p.add_argument("--device", default="cuda" if cuda else "cpu")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--accumulate", type=int, default=2, help="micro-batches a step")
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--width", type=int, default=96)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--half", action=argparse.BooleanOptionalAction, default=True, help="use fp16")
    p.add_argument("--racy", action="store_true", help="do not wait for the upload of a batch")
    return p


def learning_rate(step: int, steps: int, warmup: int = 3) -> float:
    """Factor on the learning rate: linear warm-up, then a cosine down to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


def build(args: argparse.Namespace) -> Training:
    """Model, optimizer, schedule and data for the command line; the same at every call."""
    torch.manual_seed(0)
    device = torch.device(args.device)
    model = GPT(args.context, args.width, args.depth, args.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, args.steps)
    )
    scaler = torch.amp.GradScaler(device.type, enabled=args.half)
    corpus = Corpus(device, args.context, args.batch, ordered=not args.racy)
    return Training(device, corpus, model, optimizer, scheduler, scaler)


def train_step(training: Training, accumulate: int) -> Tensor:
    """One optimizer step over `accumulate` micro-batches; returns their mean loss on the device."""
    t = training
    total = torch.zeros((), device=t.device)
    for micro in range(accumulate):
        codes, targets = t.corpus.draw("train", seed=1 + t.step * accumulate + micro)
        with torch.autocast(t.device.type, torch.float16, enabled=t.scaler.is_enabled()):
            loss = t.model(codes, targets) / accumulate
        t.scaler.scale(loss).backward()
        total += loss.detach()
    t.scaler.unscale_(t.optimizer)
    nn.utils.clip_grad_norm_(t.model.parameters(), max_norm=1.0)
    t.scaler.step(t.optimizer)
    t.scaler.update()
    t.optimizer.zero_grad(set_to_none=True)
    t.scheduler.step()
    t.step += 1
    return total


@torch.no_grad()
def evaluate(training: Training, batches: int = 4) -> float:
    """Mean loss over the text kept aside."""
    training.model.eval()
    draws = [training.corpus.draw("eval", seed=n) for n in range(batches)]
    losses = [training.model(codes, targets) for codes, targets in draws]
    training.model.train()
    return float(torch.stack(losses).mean())


def save(training: Training, path: Path) -> None:
    """Write a checkpoint."""
    t = training
    state = {
        "model": t.model.state_dict(),
        "optimizer": t.optimizer.state_dict(),
        "scheduler": t.scheduler.state_dict(),
        "scaler": t.scaler.state_dict(),
        "step": t.step,
    }
    torch.save(state, path)


def load(training: Training, path: Path) -> None:
    """Continue from a checkpoint."""
    t = training
    state = torch.load(path, map_location=t.device)
    t.model.load_state_dict(state["model"])
    t.optimizer.load_state_dict(state["optimizer"])
    t.scheduler.load_state_dict(state["scheduler"])
    t.scaler.load_state_dict(state["scaler"])
    t.step = state["step"]


def train(training: Training, until: int, accumulate: int) -> list[float]:
    """Train until step `until`; returns and prints the loss of each step."""
    losses: list[float] = []
    while training.step < until:
        loss = train_step(training, accumulate).item()
        print(f"step {training.step - 1:4d}  loss {loss:.4f}")
        losses.append(loss)
    return losses


def main() -> None:
    """Train the first half, restart from the checkpoint, train the rest."""
    args = parser().parse_args()
    training = build(args)
    train(training, args.steps // 2, args.accumulate)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        save(training, path)
        training = build(args)
        load(training, path)
    print(f"continued from step {training.step}, eval loss {evaluate(training):.4f}")
    train(training, args.steps, args.accumulate)
    print(f"eval loss {evaluate(training):.4f}")


if __name__ == "__main__":
    main()

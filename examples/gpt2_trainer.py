"""Train a small GPT-2 of the `transformers` library with its `Trainer`, on synthetic tokens.

Only the configuration is used, so nothing is downloaded. Each sequence counts upwards by a step
of its own, which the model can learn. Batches are pinned and uploaded by the trainer.
``--racy`` adds a callback that keeps a smoothed copy of the weights up to date on a side
stream, which does not wait for the optimizer.

    python gpt2_trainer.py                  # cuda where there is one, else cpu
    python gpt2_trainer.py --device cpu --steps 4
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)


class Counting(Dataset[dict[str, Tensor]]):
    """Sequences start, start + k, start + 2k, ... modulo the vocabulary: int64 (length,)."""

    def __init__(self, sequences: int, length: int, vocabulary: int) -> None:
        self.sequences, self.length, self.vocabulary = sequences, length, vocabulary

    def __len__(self) -> int:
        return self.sequences

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        start, step = 7 * index, 1 + index % 3
        tokens = (start + step * torch.arange(self.length)) % self.vocabulary
        return {"input_ids": tokens, "labels": tokens.clone()}


class SmoothedWeights(TrainerCallback):  # type: ignore[misc]  # the base is untyped
    """Keeps an exponential average of the weights, brought up to date on a side stream."""

    def __init__(self, model: nn.Module, ordered: bool, decay: float = 0.9) -> None:
        self.model, self.ordered, self.decay = model, ordered, decay
        self.side_stream: torch.cuda.Stream | None = None
        self.average: list[Tensor] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Copy the weights, which are on their device by now."""
        self.average = [p.detach().clone() for p in self.model.parameters()]
        if self.average[0].is_cuda:
            self.side_stream = torch.cuda.Stream(self.average[0].device)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Average in the new weights, beside the training stream."""
        if self.side_stream is not None and self.ordered:
            self.side_stream.wait_stream(
                torch.cuda.current_stream()
            )  # the optimizer wrote the weights
        with torch.cuda.stream(self.side_stream), torch.no_grad():
            for average, weight in zip(self.average, self.model.parameters(), strict=True):
                average.lerp_(weight, 1 - self.decay)
        if self.side_stream is not None and self.ordered:
            torch.cuda.current_stream().wait_stream(
                self.side_stream
            )  # the next step writes them again


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    cuda = torch.cuda.is_available()
    p = argparse.ArgumentParser(description="Train a small GPT-2 with transformers.Trainer.")
    p.add_argument("--device", default="cuda" if cuda else "cpu", choices=("cuda", "cpu"))
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--vocabulary", type=int, default=128)
    p.add_argument("--width", type=int, default=96)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--racy", action="store_true", help="leave the two streams unordered")
    return p


def build(args: argparse.Namespace, folder: str) -> Trainer:
    """The trainer for the command line; `folder` takes what it may want to write."""
    set_seed(0)
    config = GPT2Config(
        vocab_size=args.vocabulary,
        n_positions=args.context,
        n_embd=args.width,
        n_layer=args.depth,
        n_head=args.heads,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=args.batch,
        max_steps=args.steps,
        learning_rate=2e-3,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=True,
        use_cpu=args.device == "cpu",
    )
    data = Counting(args.batch * args.steps, args.context, args.vocabulary)
    smoothed = SmoothedWeights(model, ordered=not args.racy)
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=[smoothed])


def main() -> None:
    """Run the command line."""
    args = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = build(args, folder).train()
    print(f"mean loss {result.training_loss:.4f} over {result.global_step} steps")


if __name__ == "__main__":
    main()

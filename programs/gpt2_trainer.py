"""GPT-2 with `transformers.Trainer`: bfloat16, gradient accumulation and checkpointing, evaluation.

needs: transformers, accelerate
"""

from __future__ import annotations

import tempfile

import torch
from common import options, show, show_weights
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Counting(Dataset[dict[str, Tensor]]):
    """Sequences start, start + k, start + 2k, ... modulo the vocabulary: int64 (length,)."""

    def __init__(self, sequences: int, length: int, vocabulary: int) -> None:
        self.sequences, self.length, self.vocabulary = sequences, length, vocabulary

    def __len__(self) -> int:
        return self.sequences

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (7 * index + (1 + index % 3) * torch.arange(self.length)) % self.vocabulary
        return {"input_ids": tokens, "labels": tokens.clone()}


def main() -> None:
    """Train a few steps, with an evaluation half way."""
    args = options(__doc__)
    set_seed(0)
    layers, width, length, batch = (2, 64, 32, 2) if args.small else (12, 768, 256, 8)
    config = GPT2Config(
        vocab_size=128,
        n_positions=length,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=batch,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            max_steps=args.steps,
            learning_rate=2e-3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=max(1, args.steps // 2),
            save_strategy="steps",
            save_steps=args.steps,
            report_to=[],
            disable_tqdm=True,
            bf16=True,
            optim="adamw_torch",
            dataloader_pin_memory=args.device == "cuda",
            use_cpu=args.device == "cpu",
        )
        trainer = Trainer(
            model=model,
            args=settings,
            train_dataset=Counting(2 * batch * args.steps, length, 128),
            eval_dataset=Counting(2 * batch, length, 128),
        )
        trainer.train()
    history = trainer.state.log_history
    for name in ("loss", "grad_norm", "eval_loss"):
        show(name, [float(entry[name]) for entry in history if name in entry])
    show_weights(model)


if __name__ == "__main__":
    main()

"""A BERT classifier tuned with low-rank adapters (peft), in a loop of `accelerate`.

needs: transformers, accelerate, peft
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from common import options, show, show_weights
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification


def main() -> None:
    """Train the adapters a few steps, accumulating gradients over two batches."""
    args = options(__doc__, steps=8)
    layers, width, batch = (2, 64, 4) if args.small else (12, 768, 16)
    config = BertConfig(
        vocab_size=512,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    adapters = LoraConfig(r=4, target_modules=["query", "value"], modules_to_save=["classifier"])
    model = get_peft_model(BertForSequenceClassification(config), adapters)
    tokens = torch.arange(batch * args.steps * 16).reshape(-1, 16) * 13 % 512
    data = TensorDataset(tokens, tokens.sum(1) % 2)
    loader = DataLoader(data, batch, pin_memory=args.device == "cuda")
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    accelerator = Accelerator(
        cpu=args.device == "cpu", gradient_accumulation_steps=2, mixed_precision="bf16"
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for ids, labels in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=labels).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    show("loss", losses)
    show_weights(accelerator.unwrap_model(model))


if __name__ == "__main__":
    main()

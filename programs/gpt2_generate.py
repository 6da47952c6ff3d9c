"""Inference with transformers: greedy and beam search of a GPT-2 with a key-value cache.

The weights are random, so nothing is downloaded; the tokens it says are the result.

needs: transformers
"""

from __future__ import annotations

import torch
from common import options, show, show_text
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Generate tokens in three ways."""
    args = options(__doc__, steps=12)
    layers, width = (2, 64) if args.small else (12, 768)
    config = GPT2Config(
        vocab_size=512,
        n_positions=128,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    model = GPT2LMHeadModel(config).to(args.device).eval()
    prompt = (7 * torch.arange(8)).reshape(2, 4).to(args.device)
    mask = torch.ones_like(prompt)
    ways = {
        "greedy": {"do_sample": False},
        "beams": {"do_sample": False, "num_beams": 3},
        "static": {"do_sample": False, "cache_implementation": "static", "disable_compile": True},
    }
    for name, way in ways.items():
        tokens = model.generate(prompt, attention_mask=mask, max_new_tokens=args.steps, **way)
        show_text(name, str(tokens.tolist()))
    with torch.inference_mode():
        show("logit", model(prompt, attention_mask=mask).logits[:, -1, :4].flatten().tolist())


if __name__ == "__main__":
    main()

"""An expert is evicted from its cache while a side stream still multiplies by it.

rule: M1, H1
kind: R03-ALLOC-REUSE
verdict: latent
source: torch notes, CUDA semantics (memory management)
twin: m1_expert_evict_clean
why: nothing tells the owner stream or the allocator about the read when the entry is popped.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(SIZE, device="cuda")
    routed = torch.empty(SIZE, device="cuda")
    experts = {name: torch.full((SIZE,), 0.5, device="cuda") for name in ("code", "prose")}
    expert_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(expert_stream):
        torch.mul(tokens, experts["code"], out=routed)  # LATENT a
    experts.pop("code")  # LATENT a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

"""An expert is evicted from its cache after the host has seen its last use.

rule: M1, H1
kind: R03-ALLOC-REUSE
verdict: clean
source: torch notes, CUDA semantics (memory management)
twin: m1_expert_evict_latent
why: the host waits for the side stream before the entry is popped.
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
        torch.mul(tokens, experts["code"], out=routed)
    expert_stream.synchronize()
    experts.pop("code")

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

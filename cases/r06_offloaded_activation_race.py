"""A saved activation comes back on a side stream that backward does not wait for.

rule: A1, M1, C3
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: r06_offloaded_activation_clean
why: unpack uploads on fetch, and the multiplication's backward reads it on the default stream (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    slot = torch.zeros(SIZE, device="cuda")
    fetch = torch.cuda.Stream()
    torch.cuda.synchronize()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu().pin_memory() if tensor.numel() == SIZE else tensor

    def unpack(packed: torch.Tensor) -> torch.Tensor:
        if packed.is_cuda:
            return packed
        with torch.cuda.stream(fetch):
            slot.copy_(packed, non_blocking=True)  # RACE a
        return slot

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = torch.square(weight).sum()
    loss.backward()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

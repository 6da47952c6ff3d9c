"""A consumer marks its ring slot as free after it has read the slot.

rule: E1, E2
kind: R05-EVENT-MISUSE
verdict: clean
source: torch notes, CUDA semantics (events)
twin: e1_slot_release_race
why: each upload waits for the mark of the slot's last reader, each reader for its upload.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    host_batches = [torch.randn(SIZE).pin_memory() for _ in range(4)]
    slots = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
    total = torch.zeros(SIZE, device="cuda")
    free = [torch.cuda.Event() for _ in slots]
    ready = [torch.cuda.Event() for _ in slots]
    compute_stream = torch.cuda.current_stream()
    copy_stream = torch.cuda.Stream()
    for event in free:
        event.record()
    torch.cuda.synchronize()

    for step, host_batch in enumerate(host_batches):
        index = step % len(slots)
        copy_stream.wait_event(free[index])
        with torch.cuda.stream(copy_stream):
            slots[index].copy_(host_batch, non_blocking=True)
            ready[index].record()
        compute_stream.wait_event(ready[index])
        total.add_(slots[index])
        free[index].record()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

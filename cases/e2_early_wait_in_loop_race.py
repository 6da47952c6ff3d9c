"""A consumer waits for an event before its producer records it anew.

rule: E2
kind: R05-EVENT-MISUSE
verdict: race
source: own
twin: e2_early_wait_in_loop_clean
why: the wait takes the version of the step before, so each product reads what is being written (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    slots = torch.zeros(3, SIZE, device="cuda")
    outputs = torch.zeros(3, SIZE, device="cuda")
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    ready = torch.cuda.Event()
    ready.record(producer)
    torch.cuda.synchronize()

    for step in range(3):
        consumer.wait_event(ready)
        with torch.cuda.stream(producer):
            slots[step].fill_(float(step))  # RACE a
            ready.record()
        with torch.cuda.stream(consumer):
            torch.mul(slots[step], 2.0, out=outputs[step])  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

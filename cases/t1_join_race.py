"""A checkpoint thread is joined that never waited for its download.

rule: T1, H1
kind: R08-D2H-HOST-READ
verdict: race
source: Python documentation, threading (Thread.join)
twin: t1_join_clean
why: joining the thread hands over its host order only, and it had none with its stream.
"""

import threading

import torch

SIZE = 1 << 16


def save(weights: torch.Tensor, host_weights: torch.Tensor) -> None:
    save_stream = torch.cuda.Stream()
    with torch.cuda.stream(save_stream):
        host_weights.copy_(weights, non_blocking=True)  # RACE a


def main() -> None:
    torch.manual_seed(0)
    weights = torch.rand(SIZE, device="cuda")
    host_weights = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize()

    saver = threading.Thread(target=save, args=(weights, host_weights))
    saver.start()
    saver.join()
    checksum = float(host_weights.sum())  # RACE a

    torch.cuda.synchronize()
    print(checksum >= 0.0)


if __name__ == "__main__":
    main()

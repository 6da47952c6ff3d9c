"""A logging thread is woken before the training thread synchronizes the download.

rule: H3, H1, T1
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, cudaStreamSynchronize
twin: h3_signal_then_sync_clean
why: only the training thread gains order from its synchronize; the logger reads in flight.
"""

import threading

import torch

SIZE = 1 << 16


def log(losses: torch.Tensor, ready: threading.Event, lines: list[str]) -> None:
    ready.wait()
    lines.append(f"{float(losses.mean()):.2f}")  # RACE a


def main() -> None:
    torch.manual_seed(0)
    losses = torch.rand(SIZE, device="cuda")
    host_losses = torch.zeros(SIZE, pin_memory=True)
    ready = threading.Event()
    lines: list[str] = []
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    logger = threading.Thread(target=log, args=(host_losses, ready, lines))
    logger.start()
    with torch.cuda.stream(copy_stream):
        host_losses.copy_(losses, non_blocking=True)  # RACE a
    ready.set()
    copy_stream.synchronize()
    logger.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

"""A watcher thread waits for the load while the main thread goes on without it.

rule: H3, T1
kind: R01-PROD-CONS
verdict: race
source: CUDA Runtime API, cudaStreamSynchronize
twin: h3_watcher_thread_clean
why: the watcher gains the order, and the main thread joins it only after the multiply.
"""

import threading

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    host_weights = torch.randn(SIZE).pin_memory()
    weights = torch.zeros(SIZE, device="cuda")
    activations = torch.randn(SIZE, device="cuda")
    output = torch.empty(SIZE, device="cuda")
    load_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(load_stream):
        weights.copy_(host_weights, non_blocking=True)  # RACE a
    watcher = threading.Thread(target=load_stream.synchronize)
    watcher.start()
    torch.mul(activations, weights, out=output)  # RACE a
    watcher.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

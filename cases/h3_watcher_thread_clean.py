"""The main thread joins the watcher of the load before it uses the weights.

rule: H3, T1
kind: R01-PROD-CONS
verdict: clean
source: CUDA Runtime API, cudaStreamSynchronize
twin: h3_watcher_thread_race
why: joining the watcher hands its order with the load stream to the main thread.
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
        weights.copy_(host_weights, non_blocking=True)
    watcher = threading.Thread(target=load_stream.synchronize)
    watcher.start()
    watcher.join()
    torch.mul(activations, weights, out=output)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

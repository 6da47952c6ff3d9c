"""An evaluation thread is started after the host waited for the stream that makes its weights.

rule: T1, H1, S3
kind: R01-PROD-CONS
verdict: clean
source: Python documentation, threading (Thread.start)
twin: t1_start_race
why: the start hands the order with the averaging stream to the thread and its operation.
"""

import threading

import torch

SIZE = 1 << 18


def evaluate(weights: torch.Tensor, scores: torch.Tensor) -> None:
    torch.mul(scores, weights, out=scores)


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(SIZE, device="cuda")
    average = torch.zeros(SIZE, device="cuda")
    scores = torch.ones(SIZE, device="cuda")
    average_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    evaluator = threading.Thread(target=evaluate, args=(average, scores))
    with torch.cuda.stream(average_stream):
        average.lerp_(weights, 0.1)
    average_stream.synchronize()
    evaluator.start()
    evaluator.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

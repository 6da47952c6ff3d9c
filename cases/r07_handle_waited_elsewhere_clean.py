"""The handle of a gradient reduction is waited for on the stream of the optimizer.

rule: E2, S1
kind: R07-COLL-INFLIGHT
verdict: clean
source: own; handle of an asynchronous reduction
twin: r07_handle_waited_elsewhere_race
why: the optimizer's stream comes after the reduction of the bucket.
"""

import torch

SIZE = 1 << 18


class Handle:
    """What an asynchronous collective returns."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self.event)


def reduce_bucket(bucket: torch.Tensor, reduce_stream: torch.cuda.Stream) -> Handle:
    reduce_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(reduce_stream):
        bucket.div_(8.0)
        return Handle(reduce_stream.record_event())


def main() -> None:
    torch.manual_seed(0)
    bucket = torch.randn(SIZE, device="cuda")
    momentum = torch.zeros(SIZE, device="cuda")
    reduce_stream, log_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    bucket.clamp_(-1.0, 1.0)
    handle = reduce_bucket(bucket, reduce_stream)
    handle.wait()
    momentum.lerp_(bucket, 0.1)

    torch.cuda.synchronize()
    print(log_stream.query())


if __name__ == "__main__":
    main()

"""The result of an asynchronous reduction is used before its handle was waited for.

rule: E2, E1
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: r07_work_handle_clean
why: the optimizer-like update reads bucket on the default stream (RAW).
"""

import torch

SIZE = 1 << 18


class Work:
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.done = stream.record_event()

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self.done)


def all_reduce(tensor: torch.Tensor, stream: torch.cuda.Stream) -> Work:
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        tensor.mul_(0.5)  # RACE a
    return Work(stream)


def main() -> None:
    bucket = torch.ones(SIZE, device="cuda")
    weight = torch.zeros(SIZE, device="cuda")
    communication = torch.cuda.Stream()
    torch.cuda.synchronize()

    handle = all_reduce(bucket, communication)
    weight.sub_(bucket, alpha=0.1)  # RACE a
    handle.wait()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

"""A helper sets the current stream and sets it back.

rule: S1, E2
kind: R11-WRONG-STREAM
verdict: clean
source: torch API, torch.cuda.set_stream
twin: r11_stream_left_set_race
why: the projection lands on the default stream, which the reader waits for.
"""

import torch

SIZE = 1 << 18


def warm_up(scratch: torch.Tensor, stream: torch.cuda.Stream) -> None:
    previous = torch.cuda.current_stream()
    torch.cuda.set_stream(stream)
    scratch.zero_()
    torch.cuda.set_stream(previous)


def main() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(SIZE, device="cuda")
    scratch = torch.empty(SIZE, device="cuda")
    projected = torch.zeros(SIZE, device="cuda")
    sampled = torch.empty(SIZE, device="cuda")
    warm_up_stream, reader_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    warm_up(scratch, warm_up_stream)
    torch.mul(hidden, 0.5, out=projected)
    reader_stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(reader_stream):
        torch.sigmoid(projected, out=sampled)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

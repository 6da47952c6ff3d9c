"""A pipeline hands the gradient from its second stage to its first by hand.

rule: A3, A2
kind: R06-AUTOGRAD-STREAM
verdict: race
source: torch notes, stream semantics of backward passes
twin: a3_pipeline_split_clean
why: the boundary gradient is made on the decode stream and read as a root on the encode stream.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    encoder = torch.randn(SIZE, device="cuda", requires_grad=True)
    decoder = torch.randn(SIZE, device="cuda")
    inputs = torch.randn(SIZE, device="cuda")
    encode_stream, decode_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(encode_stream):
        hidden = encoder * inputs
    decode_stream.wait_stream(encode_stream)
    with torch.cuda.stream(decode_stream):
        boundary = hidden.detach().requires_grad_()
        decoded = boundary * decoder
        loss = decoded.sum()
        loss.backward()  # RACE a
    with torch.cuda.stream(encode_stream):
        hidden.backward(boundary.grad)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

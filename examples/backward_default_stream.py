"""Call backward() under a side stream, and use the gradient on the default stream.

The mirror of backward_other_stream.py. torch 1.6 to 1.9 let the default stream wait for the
gradients of every backward pass; since 1.10 only the stream that calls backward() waits, and this
program lacks a wait.

    streamsan run --device virtual --schedule late examples/backward_default_stream.py
"""

import torch


def main() -> None:
    """The gradient of sum(weight * data) is data: all ones here, so their mean is 1."""
    side = torch.cuda.Stream()
    weight = torch.full((1 << 20,), 3.0, device="cuda", requires_grad=True)
    data = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        loss = (weight * data).sum()
        loss.backward()

    mean = weight.grad.mean()
    print(f"mean of the gradient: {mean.item()} (right: 1.0)")


if __name__ == "__main__":
    main()

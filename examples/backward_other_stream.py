"""Call backward() under another stream than the forward pass, and use the gradient there.

The first report's program. Today's torch lets the stream that calls backward() wait for the
gradients, and the result is right. torch 1.6 let the default stream wait instead: the caller's own
stream read the gradient while it was still to come.

    streamsan run --device virtual --engine torch-1.6 examples/backward_other_stream.py
"""

import torch


def main() -> None:
    """The gradient of sum(weight * data) is data: all ones here, so their mean is 1."""
    side = torch.cuda.Stream()
    ambient = torch.cuda.Stream()
    weight = torch.full((1 << 20,), 3.0, device="cuda", requires_grad=True)
    data = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        loss = (weight * data).sum()

    with torch.cuda.stream(ambient):
        loss.backward()
        mean = weight.grad.mean()
        print(f"mean of the gradient: {mean.item()} (right: 1.0)")


if __name__ == "__main__":
    main()

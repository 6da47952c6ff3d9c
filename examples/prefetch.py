"""Add up batches that are uploaded on a side stream. The example of docs/tutorial.md: it races."""

import torch


def main() -> None:
    """Upload four batches of the values 1 to 4, scale each by a half, add up their means."""
    copy_stream = torch.cuda.Stream()
    scale = torch.full((256, 256), 0.5, device="cuda")
    total = torch.zeros((), device="cuda")
    host_batches = [torch.full((256, 256), float(n)).pin_memory() for n in range(1, 5)]

    for host_batch in host_batches:
        with torch.cuda.stream(copy_stream):
            batch = host_batch.to("cuda", non_blocking=True)
        total += (batch * scale).mean()

    print(f"total: {total.item()}")


if __name__ == "__main__":
    main()

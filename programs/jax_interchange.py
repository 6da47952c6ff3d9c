"""JAX and torch on the same memory, handed over by DLPack in both directions.

needs: jax
device: cuda
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import torch
from common import options, show


@jax.jit
def smoothed(values: jax.Array) -> jax.Array:
    """A jitted function of JAX."""
    return jnp.sqrt(values) * 0.5 + jnp.roll(values, 1) * 0.25


def main() -> None:
    """Hand an array back and forth."""
    args = options(__doc__, steps=6)
    size = 1 << 12 if args.small else 1 << 22
    side = torch.cuda.Stream()
    values = torch.linspace(0, 1, size, device="cuda")
    sums = []
    for _ in range(args.steps):
        result = torch.from_dlpack(smoothed(jax.dlpack.from_dlpack(values)))
        side.wait_stream(torch.cuda.current_stream())
        values.record_stream(side)
        with torch.cuda.stream(side):
            values = result * 0.9 + values
        torch.cuda.current_stream().wait_stream(side)
        values.record_stream(torch.cuda.current_stream())
        result.record_stream(side)
        sums.append(values.double().sum().item())
    show("sum", sums)


if __name__ == "__main__":
    main()

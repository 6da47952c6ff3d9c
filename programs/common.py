"""What the programs of this folder share: options, synthetic pictures, exact printing."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


def options(description: str | None, steps: int = 6) -> argparse.Namespace:
    """Read the command line and seed all random numbers.

    The result has `device` (``cuda`` or ``cpu``), `steps`, and `small`, which asks for sizes that
    a CPU handles in seconds.
    """
    p = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    p.add_argument("--device", default=default, choices=("cuda", "cpu"))
    p.add_argument("--steps", type=int, default=steps)
    p.add_argument("--small", action="store_true", help="sizes for a CPU")
    p.add_argument("--deterministic", action="store_true", help="the same figures in every run")
    args = p.parse_args()
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    random.seed(0)
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    return args


def show(name: str, values: Iterable[float]) -> None:
    """Print numbers exactly, one a line: ``= name hexadecimal (decimal)``."""
    for value in values:
        show_text(name, f"{value.hex()} ({value:.6g})")


def show_text(name: str, text: str) -> None:
    """Print a result that every run of the program must repeat; such lines begin with ``=``."""
    print(f"= {name} {text}")


def show_digest(name: str, tensors: Iterable[Tensor]) -> None:
    """Print the SHA-256 of all bytes of `tensors`, downloaded to the host."""
    digest = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    show_text(name, digest.hexdigest())


def show_weights(model: nn.Module) -> None:
    """Print the digest of all weights and buffers of `model`."""
    show_digest("weights", model.state_dict().values())


class Pictures(Dataset[tuple[Tensor, int]]):
    """Noise around a brightness that is the label: float32 (3, size, size), and a class."""

    def __init__(self, length: int, size: int, classes: int = 10) -> None:
        self.length, self.size, self.classes = length, size, classes

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        label = index % self.classes
        noise = torch.randn(3, self.size, self.size, generator=generator)
        return noise + label / self.classes, label

"""Whether the streaming engine gives torch's gradients bit for bit on a real GPU.

    python benchmarks/engine_equality.py [--output FILE]

The programs are those of ``tests/virtual/engine_programs.py``, which the tests run on the virtual
GPU and on plain tensors. Each runs once with torch's own engine and once under each policy.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # reproducible on several streams
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import streamsan
from streamsan.autograd import POLICIES
from tests.virtual.agree import differences
from tests.virtual.engine_programs import PROGRAMS, Calls


def run(program: Callable[[str, Calls], Any], policy: str | None) -> Any:
    """The result of a program under a policy, or with torch's own engine."""
    result = program("cuda", Calls(policy))
    torch.cuda.synchronize()
    return on_cpu(result)


def on_cpu(value: Any) -> Any:
    """A result with its tensors on the host, once the device is done with them."""
    if isinstance(value, (list, tuple)):
        return type(value)([on_cpu(item) for item in value])
    return value.cpu() if isinstance(value, torch.Tensor) else value


def table() -> Iterator[str]:
    """The verdicts, as lines of Markdown."""
    yield "| program | " + " | ".join(f"`{policy}`" for policy in POLICIES) + " |"
    yield "|---|" + "---|" * len(POLICIES)
    expected = [run(program, None) for program in PROGRAMS]
    for program, result in zip(PROGRAMS, expected):
        cells = []
        for policy in POLICIES:
            got = run(program, policy)
            found = list(differences(result, got))
            cells.append("equal" if not found else f"{len(found)} differ")
            for line in found[:3]:
                print(f"{program.__name__}, {policy}: {line}", file=sys.stderr)
        yield f"| {program.__name__} | " + " | ".join(cells) + " |"


def main() -> None:
    """Compare, and print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    where = f"{torch.cuda.get_device_name(0)}; {versions}, StreamSan {streamsan.__version__}."
    text = "\n".join([where, "", *table()]) + "\n"
    print(text, end="")
    if given.output is not None:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

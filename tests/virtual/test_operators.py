"""Operators of torch's test database give on the virtual GPU what they give on the CPU.

These are a few of them, of many sorts; ``tools/operators.py --device virtual`` compares all.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = (
    "add", "addmm", "argsort", "cat", "cumsum", "fft.rfft", "gather", "index_put", "istft",
    "linalg.svd", "masked_select", "nn.functional.conv2d", "nn.functional.dropout",
    "nn.functional.linear_cross_entropy", "nn.functional.pad", "nonzero", "quantile", "scatter_add",
    "sgn", "split", "std_mean", "take_along_dim", "unique", "var", "where",
)  # fmt: skip


def run(*names: str) -> subprocess.CompletedProcess[str]:
    """Compare operators by their names."""
    command = [sys.executable, "tools/operators.py", "--device", "virtual", "--jobs", "2"]
    return subprocess.run(
        [*command, "--shares", "1", *names], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_they_do_the_same() -> None:
    pytest.importorskip("expecttest")
    done = run(*OPERATORS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "- nothing differs" in done.stdout.splitlines()
    assert int(done.stdout.split(" operators, by type")[0].split()[-1]) > 3 * len(OPERATORS)


def test_a_name_that_there_is_not_is_said() -> None:
    pytest.importorskip("expecttest")
    done = run("no_such_operator")
    assert done.returncode == 1
    assert "no operator of that name" in done.stdout

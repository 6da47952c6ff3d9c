"""Try many new programs on each property of tests/exact, on several processes.

Hypothesis runs a property in one process. Here each is divided into shares: a share is a pytest run
of that property alone, with a seed of its own, so that all shares try different programs. Told at
the end, and while it goes on for each share: how many programs passed, by Hypothesis's own count.
A share that fails is told whole, with the command that runs it again. Exit status 1 if one failed.

    python tools/exact.py
    python tools/exact.py --processes 16 --examples 100000 races latent
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SHARE = 2500
"""Programs of a share, at most; not much fewer, since small programs come first in each."""


class Share(NamedTuple):
    """A property, and how many programs to try on it from which seed."""

    test: str
    examples: int
    seed: int


class Told(NamedTuple):
    """What a share gave: programs that passed, seconds, and pytest's output if it failed."""

    share: Share
    passed: int
    seconds: float
    failure: str


def pytest(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the repository."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )


def properties(words: list[str]) -> list[str]:
    """The ids of the properties whose names hold one of the words; of all, if there are none."""
    listed = pytest("--collect-only", "-q", "-m", "hypothesis", "tests/exact").stdout
    tests = re.findall(r"^\S+::\S+$", listed, re.MULTILINE)
    chosen = [test for test in tests if not words or any(word in test for word in words)]
    if not chosen:
        raise SystemExit(f"tests/exact has no property of that name; there are:\n{listed}")
    return chosen


def shares(tests: list[str], examples: int) -> list[Share]:
    """All shares, the first of each property first, so that none waits for the end."""
    number = -(-examples // SHARE)
    first = random.randrange(1 << 32)
    return [
        Share(test, examples // number + (part < examples % number), first + part)
        for part in range(number)
        for test in tests
    ]


def run(share: Share) -> Told:
    """Try a share."""
    begin = time.monotonic()
    done = pytest(
        "-q",
        "--hypothesis-show-statistics",
        f"--hypothesis-seed={share.seed}",
        share.test,
        HYPOTHESIS_PROFILE="long",
        EXACT_EXAMPLES=str(share.examples),
    )
    passed = sum(map(int, re.findall(r"(\d+) passing\b", done.stdout)))
    failure = done.stdout + done.stderr if done.returncode else ""
    return Told(share, passed, time.monotonic() - begin, failure)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    p = argparse.ArgumentParser(description="Try many new programs on each property.")
    p.add_argument("words", nargs="*", metavar="WORD", help="only properties named with one")
    p.add_argument("--examples", type=int, default=20_000, help="programs for each property")
    p.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return p


def main() -> int:
    """Run the command line."""
    args = parser().parse_args()
    begin = time.monotonic()
    todo = shares(properties(args.words), args.examples)
    passed: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    failed = 0
    with ThreadPoolExecutor(args.processes) as pool:
        for told in pool.map(run, todo):
            test, examples, seed = told.share
            passed[test] += told.passed
            spent[test] += round(told.seconds)
            print(f"{test}: {told.passed} of {examples}, {told.seconds:.0f} s", flush=True)
            if told.failure:
                failed += 1
                print(told.failure)
                print(
                    f"again: HYPOTHESIS_PROFILE=long EXACT_EXAMPLES={examples}"
                    f" python -m pytest --hypothesis-seed={seed} {test}",
                    flush=True,
                )
    print(f"\n{len(todo)} shares, {failed} failed, {time.monotonic() - begin:.0f} s:")
    for test in passed:
        print(f"{passed[test]:10,} programs passed, {spent[test]:6,} s  {test}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

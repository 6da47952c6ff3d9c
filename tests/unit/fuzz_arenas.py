"""Run the allocators against their model for as long as one likes.

``python -m tests.unit.fuzz_arenas --runs 20000`` makes that many random programs for each
allocator; a failure names the seed, and ``--seed`` starts there.
"""

from __future__ import annotations

import argparse
import random

from streamsan.allocator import NAMES
from tests.unit.arena_model import OPERATIONS, World


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Fuzz the allocators.")
    parser.add_argument("--runs", type=int, default=2000, help="programs for each allocator")
    parser.add_argument("--steps", type=int, default=120, help="steps of a program")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--allocator", choices=NAMES, action="append")
    given = parser.parse_args()
    for name in given.allocator or NAMES:
        for seed in range(given.seed, given.seed + given.runs):
            chance = random.Random(seed)
            steps = [
                (chance.choice(OPERATIONS), chance.getrandbits(12), chance.getrandbits(12))
                for _ in range(given.steps)
            ]
            try:
                World(name).run(steps)
            except Exception:
                print(f"{name}: seed {seed} fails")
                raise
        print(f"{name}: {given.runs} programs of {given.steps} steps", flush=True)


if __name__ == "__main__":
    main()

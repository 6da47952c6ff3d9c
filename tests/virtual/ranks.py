"""Programs of several processes under ``torchrun``, each process under ``streamsan run``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.virtual.programs import ENVIRONMENT

SECONDS = 240


@dataclass
class Ranks:
    """A program that has ended: the launcher's status, what all printed, and each report."""

    status: int
    output: str
    reports: list[dict[str, Any]]

    @property
    def clean(self) -> bool:
        """Whether no process has anything to report."""
        return all(
            not (r["races"] or r["latent"] or r["misuse"] or r["summary"]["internal_errors"])
            for r in self.reports
        )

    def lines(self, rank: int) -> list[tuple[int, int]]:
        """The line pairs of the races of one process."""
        races = self.reports[rank]["races"]
        return [(r["first"]["site"]["line"], r["second"]["site"]["line"]) for r in races]


def launch(
    path: str, *words: str, folder: Path, ranks: int = 2, schedule: str = "program"
) -> Ranks:
    """Run a script on several virtual GPUs, one for each process."""
    for stale in folder.glob("rank*.json"):
        stale.unlink()
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
    command += ["--nproc-per-node", str(ranks), "--standalone", "-m", "streamsan", "run"]
    command += ["--device", "virtual", "--schedule", schedule, "--format", "json"]
    command += ["-o", str(folder / "rank{rank}.json"), path, *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    reports = [folder / f"rank{rank}.json" for rank in range(ranks)]
    found = [json.loads(file.read_text()) for file in reports if file.exists()]
    return Ranks(done.returncode, done.stdout, found)

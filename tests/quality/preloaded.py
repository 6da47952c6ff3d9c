"""Runs ``streamsan run --device virtual`` on programs without paying for an import of torch each.

A fork server imports torch once; every program then has a fresh process forked from it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

from tools.labels import Case
from tools.score import Outcome

SECONDS = 120
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "streamsan.commands", "streamsan.virtual.face"])


def run_case(case: Case, trace: Path | None = None) -> Outcome:
    """Run StreamSan on one program; what the program prints is kept for the error only.

    With `trace`, the trace of the run is kept there.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, output = Path(folder) / "report.json", Path(folder) / "output.txt"
        arguments = ["run", "--device", "virtual", "--devices", str(case.devices)]
        arguments += ["--format", "json", "--output", str(report)]
        if trace is not None:
            arguments += ["--trace", str(trace)]
        arguments.append(str(case.path))
        process = _CONTEXT.Process(target=_command, args=(arguments, str(output)))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            return Outcome(-1, None, f"no end within {SECONDS} s")
        if not report.exists():
            return Outcome(process.exitcode, None, output.read_text(encoding="utf-8")[-2000:])
        return Outcome(process.exitcode, json.loads(report.read_text(encoding="utf-8")))


def _command(arguments: list[str], output: str) -> None:
    """The command in the forked process, its output in a file.

    The report is written by an exit handler, and a process of multiprocessing calls none: it ends
    through ``os._exit``, which the command replaces.
    """
    from streamsan.commands import main

    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.exit(main(arguments))

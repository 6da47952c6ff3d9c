"""Runs a program under the sanitizer in torch, with a report that ``tools/score.py`` can judge.

    python tools/torch_sanitizer.py --format json --output OUT PROGRAM

``torch.cuda._sanitizer`` raises at its first finding, and the program ends there. Here the program
goes on, so that the sanitizer is judged by all it would find, one error after the other repaired.
It is switched on before the program's first line, as ``TORCH_CUDA_SANITIZER=1`` does, and sees
what that shows it: the main thread and the backward passes. Exit status 66 where it found
something, as with StreamSan, else the program's own.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RACES_STATUS = 66


def watch() -> list[Any]:
    """Switch the sanitizer on; its findings (``UnsynchronizedAccessError``) are added to the list.

    Needs a CUDA device.
    """
    from torch.cuda import _sanitizer

    found: list[Any] = []
    handler: Any = _sanitizer.cuda_sanitizer.dispatch.event_handler
    launch = handler._handle_kernel_launch

    def keep(*arguments: Any) -> list[Any]:
        found.extend(launch(*arguments))
        return []

    handler._handle_kernel_launch = keep
    _sanitizer.enable_cuda_sanitizer()
    return found


def report(found: Sequence[Any], program: Path) -> dict[str, Any]:
    """The findings as far as the scorer reads them: a pair of sites in `program` for each."""
    races = [
        {
            "first": {"site": _site(error.previous_access, program)},
            "second": {"site": _site(error.current_access, program)},
        }
        for error in found
    ]
    return {"races": races, "latent": []}


def _site(access: Any, program: Path) -> dict[str, Any] | None:
    """Where the program enqueued an access; None where the stack shows no line of it."""
    for frame in reversed(access.stack_trace):
        if Path(frame.filename) == program:
            return {"file": frame.filename, "line": frame.lineno}
    return None


def run(program: Path, output: Path) -> int:
    """Run `program`, write the report to `output`, and return the exit status."""
    sys.argv[:] = [str(program)]
    sys.path.insert(0, str(program.parent))
    status = 0
    found = watch()
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    output.write_text(json.dumps(report(found, program)), encoding="utf-8")
    return status or (RACES_STATUS if found else 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", choices=["json"], default="json")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("program", type=Path)
    options = parser.parse_args(arguments)
    return run(options.program.resolve(), options.output.resolve())


if __name__ == "__main__":
    sys.exit(main())

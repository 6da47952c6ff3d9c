"""``streamsan doctor``: what works here, what does not, and what would help."""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from streamsan import __version__
from streamsan.commands._outcome import say
from streamsan.errors import EXIT_CLEAN, EXIT_RACES, EXIT_USAGE
from streamsan.record import core_is_compiled

_OLDEST_TORCH = (2, 11)
_TIMEOUT = 180.0

_ASK_TORCH = """
import json, torch
found = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if found else []
print(json.dumps({"version": torch.__version__, "build": torch.version.cuda, "devices": names}))
"""

_RACY_PROGRAM = """
import torch
side = torch.cuda.Stream()
data = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    data.add_(1)
data.mul_(2)
"""


@dataclass(frozen=True)
class Finding:
    """A line of the table. `state` is ``ok``, ``no`` (an absence that is no fault) or ``bad``."""

    state: str
    name: str
    text: str


class DoctorCommand:
    """Examine the environment."""

    verb = "doctor"
    summary = "show what works here: Python, torch, CUDA, the virtual GPU"
    synopsis = ""
    examples = (("streamsan doctor", "a table to paste into a bug report"),)
    details = (
        "It runs a small racy program on each device there is, and expects the race to be found.\n"
        "The exit status is 2 where no program can be run.\n"
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """It has no options."""

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """There is no program: all words are the command's."""
        return words, []

    def run(self, given: argparse.Namespace) -> int:
        """Print the table as it comes, and what it amounts to."""
        del given
        say(f"streamsan {__version__} on {platform.platform()}\n\n")
        findings = []
        for finding in _examine():
            findings.append(finding)
            say(f"  {finding.state:<4} {finding.name:<12} {finding.text}\n")
        say("\n" + _conclusion({f.name for f in findings if f.state == "ok"}) + "\n")
        return EXIT_USAGE if any(f.state == "bad" for f in findings) else EXIT_CLEAN


def _examine() -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding("ok", "Python", f"{version}, {sys.executable}")
    for name in ("msgspec", "zstandard"):
        yield Finding("ok", name, metadata.version(name))
    yield _judge_core()
    torch = _ask_torch()
    if torch is None:
        yield Finding(
            "bad",
            "torch",
            "not there, or it fails to import: pip install "
            "'streamsan[torch]' brings run and watch; check and report do without",
        )
        return
    yield _judge_torch(torch["version"])
    if torch["devices"]:
        yield _try_device("cuda", "CUDA", f"{torch['build']}, {', '.join(torch['devices'])}; ")
        yield _ask_dispatcher()
        yield _ask_cupti()
    else:
        build = f"built for CUDA {torch['build']}" if torch["build"] else "a CPU build"
        yield Finding("no", "CUDA", f"torch ({build}) finds no GPU; the virtual one needs none")
    yield _try_device("virtual", "virtual GPU", "")


def _judge_core() -> Finding:
    if core_is_compiled():
        return Finding("ok", "core", "compiled")
    return Finding("no", "core", "in Python, as no C compiler was there: slower on a GPU")


def _ask_torch() -> dict[str, Any] | None:
    """What torch says of itself, in a process of its own since a broken one may take it down."""
    done = _python("-c", _ASK_TORCH)
    if done is None or done.returncode:
        return None
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _problem(function: str) -> str:
    """What a function of `streamsan.record` says, asked in a process of its own."""
    done = _python("-c", f"from streamsan.record import {function}; print({function}())")
    return done.stdout.strip() if done is not None and not done.returncode else "it fails"


def _ask_dispatcher() -> Finding:
    """Whether operators can be seen from inside of torch's dispatcher."""
    problem = _problem("dispatcher_problem")
    if problem:
        return Finding("no", "dispatcher", f"operators are seen from Python, slower: {problem}")
    return Finding("ok", "dispatcher", "operators are seen from inside, compiled for this torch")


def _ask_cupti() -> Finding:
    """Whether the driver's calls can be watched."""
    problem = _problem("driver_problem")
    if problem:
        return Finding("no", "CUPTI", f"kernels launched outside of torch go unseen: {problem}")
    return Finding("ok", "CUPTI", "kernels launched outside of torch can be seen: --driver")


def _judge_torch(version: str) -> Finding:
    oldest = ".".join(map(str, _OLDEST_TORCH))
    match = re.match(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) >= _OLDEST_TORCH:
        return Finding("ok", "torch", version)
    return Finding("bad", "torch", f"{version} is too old: install {oldest} or newer")


def _try_device(device: str, name: str, prefix: str) -> Finding:
    """Whether the race of a small program is found on `device`."""
    start = time.monotonic()
    done = _python("-m", "streamsan", "run", "--device", device, "-c", _RACY_PROGRAM)
    seconds = f"{time.monotonic() - start:.1f} s"
    if done is None:
        return Finding("bad", name, f"{prefix}a test program did not end in {_TIMEOUT:.0f} s")
    if done.returncode == EXIT_RACES:
        return Finding("ok", name, f"{prefix}the race of a test program was found in {seconds}")
    lines = done.stderr.strip().splitlines() or ["no message"]
    return Finding("bad", name, f"{prefix}a test program ended with {done.returncode}: {lines[-1]}")


def _python(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def _conclusion(working: set[str]) -> str:
    if "CUDA" in working:
        return "Programs can be run on the GPU and, with --device virtual, on the virtual one."
    if "virtual GPU" in working:
        return "Programs can be run on the virtual GPU: streamsan run SCRIPT."
    return "No program can be run here; traces from elsewhere can be checked."

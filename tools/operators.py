"""Runs the operators of torch's own test database bare and watched, and compares what came of them.

    python tools/operators.py --device virtual [--jobs N] [OPERATOR ...]
    python tools/operators.py --device cuda [--jobs N] [--output FILE]

For ``cuda`` a bare run on the GPU is compared with a watched one; for ``virtual``, a run on the
CPU with one on the virtual GPU. What came of the calls, as ``tools/operator_digests.py`` says it,
has to be the same, but for what changes from one bare run to the next, and for random values of
the virtual GPU, which are not the CPU's. StreamSan has to find no race and no fault of its own.
What the virtual GPU says that it does not cover is listed. Exit status 0 when nothing differs,
else 1.

The database needs ``expecttest``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from tools.programs import machine  # noqa: E402

_NOT_COVERED = "NotCoveredError"

_ROUNDED = "torch computes it in another way where a dispatch mode is on, which rounds otherwise"
_LAID_OUT = "a result that is given without a size is laid out by rows"
_DETERMINISTIC = "on a GPU torch has another algorithm for it that is deterministic"
_RESIZED = "a result that is given without a size is refused on the CPU"
_AS_IT_WAS = "it leaves memory as it was in a result that is given"

KNOWN = {
    "addbmm": "written in place, it gives a smaller tensor the size of the result",
    "linalg.cond": _ROUNDED,
    "linalg.ldl_solve": _LAID_OUT,
    "linalg.lu_solve": _LAID_OUT,
    "linalg.matrix_norm": _ROUNDED,
    "linalg.matrix_rank": _AS_IT_WAS,
    "linalg.matrix_rank hermitian": _AS_IT_WAS,
    "linalg.pinv": _ROUNDED,
    "linalg.pinv singular": _ROUNDED,
    "lu": _LAID_OUT,
    "lu_solve": _LAID_OUT,
    "nn.functional.interpolate bilinear": _DETERMINISTIC,
    "nn.functional.interpolate trilinear": _DETERMINISTIC,
    "nn.functional.upsample_bilinear": _DETERMINISTIC,
    "norm nuc": _ROUNDED,
    "normal": _RESIZED,
    "normal number_mean": _RESIZED,
    "pinverse": _ROUNDED,
}
"""Where the virtual GPU is not like the CPU, and why that is left so."""


@dataclass(frozen=True)
class Call:
    """What came of a call, as `tools.operator_digests` says it: hashes of layouts and values, the
    magnitude of gradients, and the kind of its exception.
    """

    layout: str
    values: str
    magnitude: float
    error: str


@dataclass(frozen=True)
class Operator:
    """The calls of an operator by number and form, and whether it draws random numbers."""

    random: bool
    calls: dict[str, Call]

    @property
    def covered(self) -> bool:
        """Whether the virtual GPU covers all of its calls."""
        return not any(call.error == _NOT_COVERED for call in self.calls.values())


@dataclass
class Run:
    """The operators of one way to run them; `faults` are what StreamSan found or did wrong."""

    came: dict[str, Operator] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def start(way: Sequence[str], share: str, only: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process with a share of the operators."""
    words = [sys.executable, "-W", "ignore", "-m", "tools.operator_digests", *way]
    words += ["--share", share, *(["--only", *only] if only else [])]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "0",  # the database goes through sets
    }
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(way: Sequence[str], share: str, only: Sequence[str]) -> Run:
    """Run a share of the operators one way."""
    process = start(way, share, only)
    printed, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(way)}, share {share}: {errors.strip()[-2000:]}")
    found = Run()
    for line in printed.splitlines():
        words = json.loads(line)
        if isinstance(words[-1], list):
            name, drawn, calls = words
            found.came[name] = Operator(drawn, {label: Call(*rest) for label, *rest in calls})
        elif words != ["clean"]:
            found.faults.append(f"verdict: {', internal error: '.join(words)}")
    return found


def ways(device: str) -> dict[str, list[str]]:
    """How the operators are run: bare, on a GPU once more, and watched."""
    if device == "virtual":
        return {"bare": ["cpu"], "watched": ["cuda", "virtual"]}
    return {"bare": ["cuda"], "again": ["cuda"], "watched": ["cuda", "cuda"]}


def differences(bare: Run, again: Run | None, watched: Run) -> Iterator[str]:
    """What differs, a call of each operator. Without `again`, random values may."""
    for name in sorted({*bare.came, *watched.came}):
        if again is None and name.rpartition(" ")[0] in KNOWN:
            continue
        theirs, ours = bare.came.get(name), watched.came.get(name)
        if ours is not None and not ours.covered:
            continue
        if theirs is None or ours is None or theirs.calls.keys() != ours.calls.keys():
            yield f"{name}: not the same calls"
            continue
        once_more = again.came[name].calls if again is not None else None
        for label, call in ours.calls.items():
            found = _difference(theirs.calls[label], call)
            varies = once_more and _difference(theirs.calls[label], once_more[label]) == found
            drawn = again is None and theirs.random and found != "layouts"
            if found and not varies and not drawn:
                yield f"{name}, call {label}: other {found}"
                break


def _difference(theirs: Call, ours: Call) -> str:
    """What differs in two calls, or nothing."""
    if ours.error != theirs.error:
        return f"exceptions, {ours.error or 'none'} instead of {theirs.error or 'none'}"
    if ours.layout != theirs.layout:
        return "layouts"
    if ours.values != theirs.values:
        return "values"
    alike = math.isclose(ours.magnitude, theirs.magnitude, rel_tol=1e-2)
    return "" if alike else "gradients"


def merged(parts: Sequence[Run]) -> Run:
    """The runs of all shares as one."""
    whole = Run()
    for part in parts:
        whole.came.update(part.came)
        whole.faults += part.faults
    return whole


def document(device: str, runs: dict[str, Run], found: Sequence[str]) -> Iterator[str]:
    """The lines of the page."""
    bare, watched, again = runs["bare"], runs["watched"], runs.get("again")
    if again is not None:
        varying = sum(came != again.came[name] for name, came in bare.came.items())
    else:
        varying = sum(came.random for came in bare.came.values())
    missing = [name for name, came in watched.came.items() if not came.covered]
    yield "# Torch's operators, bare and watched"
    yield ""
    yield f"Made with `python tools/operators.py --device {device}` on: {machine(device)}."
    yield ""
    yield (
        f"{len(bare.came):,} operators, by type of elements; the values of {varying}"
        f" {'change from one bare run to the next' if again else 'are random'}."
    )
    yield ""
    yield from (f"- {line}" for line in [*found, *watched.faults] or ["nothing differs"])
    if device == "virtual":
        yield ""
        yield "Known to be otherwise on the virtual GPU:"
        yield ""
        yield from (f"- `{name}`: {why}" for name, why in KNOWN.items())
    if missing:
        yield ""
        yield f"Not covered by the virtual GPU: {', '.join(f'`{name}`' for name in missing)}."


def main() -> int:
    """Run the command line; its exit status."""
    parser = argparse.ArgumentParser(description="Compare torch's operators, bare and watched.")
    parser.add_argument("only", nargs="*", metavar="OPERATOR", help="by the database's names")
    parser.add_argument("--device", choices=["virtual", "cuda"], required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--shares", type=int, default=3, help="parts of the database")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    args = parser.parse_args()
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = {
            name: [
                pool.submit(run, way, f"{share}/{args.shares}", args.only)
                for share in range(args.shares)
            ]
            for name, way in ways(args.device).items()
        }
        runs = {name: merged([f.result() for f in parts]) for name, parts in futures.items()}
    found = list(differences(runs["bare"], runs.get("again"), runs["watched"]))
    if not runs["bare"].came:
        found.append("the database has no operator of that name")
    lines = list(document(args.device, runs, found))
    print("\n".join(lines))
    if args.output is not None:
        args.output.write_text("\n".join(lines) + "\n")
    return int(bool(found or runs["watched"].faults))


if __name__ == "__main__":
    sys.exit(main())

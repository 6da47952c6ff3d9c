"""Measure the checker alone: records, operations and accesses per second of `Checker.feed`.

Without arguments it checks a synthetic training run: a copy stream uploads each batch, the
training stream waits for it and runs kernels that read a weight and an activation and write the
next activation, whose blocks come and go as a caching allocator hands them out. With
``--trace FILE`` it checks a recorded trace instead.

    python benchmarks/check.py
    python benchmarks/check.py --trace run.streamsan --repeats 3
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from streamsan.detect import Checker
from streamsan.model.findings import Report
from streamsan.model.records import (
    NONE,
    Access,
    Alloc,
    AnyRecord,
    CopyKind,
    End,
    EventRecord,
    EventWait,
    Free,
    Header,
    Mode,
    Operation,
    OpKind,
    RecordStream,
    SiteDef,
    StackDef,
    StreamDef,
    StreamSync,
    ThreadDef,
)
from streamsan.trace import read

THREAD, TRAINING, UPLOAD = 0, 1, 2
"""The timelines of the synthetic run."""

KERNELS = 200
"""Kernels of one synthetic step, about a third of a small transformer's."""

SIZE = 1 << 20
"""Bytes of each block."""

SITES = 40


def dense(block: int, mode: Mode) -> Access:
    """An access to all of a block; block `n` lies at ``(n + 1) * SIZE`` on device 0."""
    return Access(0, (block + 1) * SIZE, SIZE, (), (), int(mode), "self")


def alloc(block: int, slot: int, stream: int) -> Alloc:
    """Block number `block`, handed out at the address of `slot`."""
    return Alloc(block, 0, (slot + 1) * SIZE, SIZE, stream, THREAD, 0, "caching")


def opening() -> Iterator[AnyRecord]:
    """Sites, timelines, and the weights: one block a kernel, in slots 2 and up."""
    yield Header("virtual", {}, (), {})
    for site in range(SITES):
        yield SiteDef(site, "train.py", 10 + site, "step", True, "x = layer(x)", "x")
        yield StackDef(site, (site,))
    yield ThreadDef(THREAD, "MainThread", NONE, NONE)
    yield StreamDef(TRAINING, 0, 0, True, True, "", NONE)
    yield StreamDef(UPLOAD, 0, 1, False, False, "", 0)
    for kernel in range(KERNELS):
        yield alloc(kernel, 2 + kernel, TRAINING)


def step(number: int) -> Iterator[AnyRecord]:
    """One step: upload, hand-over, kernels, frees. Two activations are alive at any time."""
    first = KERNELS + number * (KERNELS + 1)  # the batch's block; the activations' follow
    sequence = number * (KERNELS + 1)
    event = number
    low = 2 + KERNELS  # slots of activations; the batch uses slots 0 and 1 in turn
    batch = number % 2
    yield alloc(first, batch, UPLOAD)
    yield Operation(
        sequence, OpKind.COPY, "copy_", UPLOAD, THREAD, 0, (dense(batch, Mode.WRITE),),
        copy=int(CopyKind.HOST_TO_DEVICE),
    )  # fmt: skip
    yield EventRecord(event, UPLOAD, THREAD, 1)
    yield EventWait(event, TRAINING, THREAD, 1)
    yield RecordStream(first, TRAINING, THREAD, 2)
    source = batch
    for kernel in range(KERNELS):
        target = low + kernel % 2
        yield alloc(first + 1 + kernel, target, TRAINING)
        yield Operation(
            sequence + 1 + kernel, OpKind.KERNEL, "aten::mm", TRAINING, THREAD, kernel % SITES,
            (
                dense(2 + kernel, Mode.READ),
                dense(source, Mode.READ),
                dense(target, Mode.WRITE),
            ),
        )  # fmt: skip
        yield Free(first + kernel, THREAD, kernel % SITES)  # the source: used for the last time
        source = target
    yield Free(first + KERNELS, THREAD, 3)
    if number % 10 == 9:
        yield StreamSync(TRAINING, THREAD, 4)


def synthetic(steps: int) -> list[AnyRecord]:
    """All records of the synthetic run."""
    records = list(opening())
    for number in range(steps):
        records.extend(step(number))
    records.append(End(0, 0.0))
    return records


def check(records: list[AnyRecord]) -> tuple[float, Report]:
    """Seconds that a new checker needs for the records, its report included; and the report."""
    checker = Checker()
    begin = time.perf_counter()
    for record in records:
        checker.feed(record)
    report = checker.report()
    return time.perf_counter() - begin, report


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    p = argparse.ArgumentParser(description="Measure the checker.")
    p.add_argument("--trace", type=Path, help="a recorded trace instead of the synthetic run")
    p.add_argument("--steps", type=int, default=50, help="steps of the synthetic run")
    p.add_argument("--repeats", type=int, default=5)
    return p


def main() -> None:
    """Run the command line."""
    args = parser().parse_args()
    records = list(read(args.trace)) if args.trace else synthetic(args.steps)
    runs = [check(records) for _ in range(args.repeats)]
    seconds = statistics.median(duration for duration, _ in runs)
    report = runs[0][1]
    if args.trace is None and report.verdict != "clean":
        raise SystemExit("the synthetic run is clean by construction, and a race was reported")
    summary = report.summary
    print(f"{args.trace or 'synthetic run'}: {len(records):,} records, verdict {report.verdict}")
    print(f"median of {args.repeats}: {seconds:.3f} s")
    for what, count in (
        ("records", len(records)),
        ("operations", summary.operations),
        ("accesses", summary.accesses),
    ):
        each = 1e6 * seconds / max(count, 1)
        print(f"  {count / seconds:>12,.0f} {what} per second, {each:.1f} us each")


if __name__ == "__main__":
    main()

"""Measure the checker alone: operations and accesses per second, and the memory it grows by.

Three programs, each as long as asked for:

- ``training``: a vision transformer's training, recorded on the virtual GPU, its steady state
  repeated (needs torch to record; ``--trace FILE`` takes a recorded one);
- ``streams``: 64 streams that hand buffers to one another through events;
- ``ranges``: many small ranges of large buffers, dense and strided, written on one stream and read
  on another, in order.

A tenth at a time, so that it shows whether the cost stays flat. Only `Checker.feed` is timed, in
seconds of this process on its core, so that other work on the machine does not count. With
``--beside`` the checker runs in a process beside this one: what handing over the records costs this
process, and what the other one does with them (decode, check, write a trace or none), which is
timed in here.

    python benchmarks/check.py
    python benchmarks/check.py training --operations 10000000
    python benchmarks/check.py --beside
    python benchmarks/check.py training --operations 60000 --write run.streamsan
    streamsan check --jobs 2 run.streamsan
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from benchmarks.vit_trace import LongRun, record  # noqa: E402
from streamsan.detect import Checker  # noqa: E402
from streamsan.model.records import (  # noqa: E402
    NONE,
    Access,
    Alloc,
    AnyRecord,
    End,
    EventDestroy,
    EventRecord,
    EventWait,
    Free,
    Header,
    Mode,
    Operation,
    OpKind,
    SiteDef,
    StackDef,
    StreamDef,
    StreamSync,
    ThreadDef,
)
from streamsan.session._beside import BesideChecker  # noqa: E402
from streamsan.session._local import LocalChecker  # noqa: E402
from streamsan.trace import Writer, decode, encode  # noqa: E402

THREAD, STREAMS, SIZE, SITES = 0, 64, 1 << 20, 40
BUFFER = 8 << 20
TENTHS = 10


def opening(streams: int) -> Iterator[AnyRecord]:
    """One host thread, number 0, some sites, and `streams` streams from number 1 on."""
    yield Header("virtual", {}, (), {})
    for site in range(SITES):
        yield SiteDef(site, "train.py", 10 + site, "step", True, "x = layer(x)", "x")
        yield StackDef(site, (site,))
    yield ThreadDef(THREAD, "MainThread", NONE, NONE)
    for stream in range(1, streams + 1):
        yield StreamDef(stream, 0, stream, False, stream == 1, "", NONE)


def kernel(seq: int, stream: int, *accesses: Access) -> Operation:
    """A kernel."""
    return Operation(seq, OpKind.KERNEL, "kernel", stream, THREAD, seq % SITES, accesses)


def dense(address: int, size: int, mode: Mode) -> Access:
    """An access to all bytes from `address` on."""
    return Access(0, address, size, (), (), int(mode), "self")


def streams() -> Iterator[list[AnyRecord]]:
    """Each stream fills a fresh block and hands it to the next one, which reads it; by events."""
    yield list(opening(STREAMS))
    for step in count():
        records: list[AnyRecord] = []
        for stream in range(1, STREAMS + 1):
            number = step * STREAMS + stream
            other, slot = stream % STREAMS + 1, number % (2 * STREAMS) * SIZE
            records += [
                Alloc(number, 0, slot, SIZE, stream, THREAD, 0, "caching"),
                kernel(2 * number, stream, dense(slot, SIZE, Mode.WRITE)),
                EventRecord(2 * number, stream, THREAD, 1),
                EventWait(2 * number, other, THREAD, 1),
                kernel(2 * number + 1, other, dense(slot, SIZE, Mode.READ)),
                EventRecord(2 * number + 1, other, THREAD, 2),
                EventWait(2 * number + 1, stream, THREAD, 2),
                EventDestroy(2 * number, THREAD),
                EventDestroy(2 * number + 1, THREAD),
                Free(number, THREAD, 3),
            ]
        records.append(StreamSync(1 + step % STREAMS, THREAD, 4))
        yield records


def ranges() -> Iterator[list[AnyRecord]]:
    """Rows, columns and slices of eight buffers: written on one stream, then read on another."""
    yield list(opening(2))
    yield [Alloc(n, 0, n * BUFFER, BUFFER, 1, THREAD, 0, "caching") for n in range(8)]
    for step in count():
        base = step % 8 * BUFFER
        written = [_range(base, part, Mode.WRITE) for part in range(256)]
        read = [_range(base, part, Mode.READ) for part in range(0, 256, 4)]
        first = step * 512
        yield [
            *(kernel(first + part, 1, access) for part, access in enumerate(written)),
            EventRecord(1, 1, THREAD, 1),
            EventWait(1, 2, THREAD, 1),
            *(kernel(first + 256 + part, 2, access) for part, access in enumerate(read)),
            EventRecord(2, 2, THREAD, 2),
            EventWait(2, 1, THREAD, 2),
            *([StreamSync(2, THREAD, 3)] if step % 10 == 9 else []),
        ]


def _range(base: int, part: int, mode: Mode) -> Access:
    """A slice of 1 KiB, or one of a few columns of a matrix of 1 KiB rows."""
    if part % 8:
        return dense(base + part * 1024, 1024, mode)
    column = base + (4 << 20) + part
    return Access(0, column, 4, (1024,), (1024,), int(mode), "self")


def training(trace: Path | None, operations: int) -> Iterator[list[AnyRecord]]:
    """The vision transformer's training, recorded now unless there is a `trace`."""
    with tempfile.TemporaryDirectory() as folder:
        path = trace or Path(folder) / "vit.streamsan"
        if trace is None:
            record(path)
        run = LongRun(path)
    return run.steps(operations)


def measure(name: str, program: Iterator[list[AnyRecord]], operations: int) -> None:
    """Check `operations` of a program and print what each tenth, and all of it, cost."""
    checker = Checker()
    feed, spent, done, mark = checker.feed, 0.0, (0, 0, 0.0), 1
    counts = [0, 0]
    before = memory()
    print(f"{name}: {operations:,} operations")
    for records in program:
        gc.collect(0)
        begin = time.process_time()
        for item in records:
            feed(item)
        spent += time.process_time() - begin
        ops = [item for item in records if type(item) is Operation]
        counts[0] += len(ops)
        counts[1] += sum(len(op.accesses) for op in ops)
        if counts[0] >= operations * mark // TENTHS:
            seconds = spent - done[2]
            print(
                f"  {counts[0]:>12,}: {(counts[0] - done[0]) / seconds:>10,.0f} operations,"
                f" {(counts[1] - done[1]) / seconds:>10,.0f} accesses per second,"
                f" {(memory() - before) >> 20:>4} MiB more",
                flush=True,
            )
            done, mark = (counts[0], counts[1], spent), mark + 1
        if counts[0] >= operations:
            break
    report = checker.report()
    if report.verdict != "clean":
        raise SystemExit(f"{name} is clean by construction, and a race was reported")
    print(
        f"  in all {counts[0] / spent:,.0f} operations, {counts[1] / spent:,.0f} accesses a second"
    )
    for text in report.summary.blind_spots:
        print(f"  {text}")


def measure_beside(name: str, program: Iterator[list[AnyRecord]], operations: int) -> None:
    """Hand `operations` of a program to a checker beside this process; do as that one does, too."""
    records: list[AnyRecord] = []
    ops: list[Operation] = []
    for some in program:
        records += some
        ops += [item for item in some if type(item) is Operation]
        if len(ops) >= operations:
            break
    accesses = sum(len(op.accesses) for op in ops)
    gc.freeze()
    print(f"{name}: {len(records):,} records, {len(ops):,} operations, {accesses:,} accesses")
    beside = BesideChecker()
    feed, spent = beside.feed, time.process_time()
    for item in records:
        feed(item)
    spent = (time.process_time() - spent) * 1e6
    beside.close()
    print(
        f"  in the program: {spent / len(records):.2f} us a record,"
        f" {spent / len(ops):.2f} us an operation with all that belongs to it"
    )
    told = beside.report()
    arrays = [raw for at in range(0, len(records), 1024) for raw in encode(records[at : at + 1024])]
    with tempfile.TemporaryDirectory() as folder:
        for path in (None, Path(folder) / "run.streamsan"):
            local = LocalChecker(path)
            spent = time.process_time()
            for raw in arrays:
                local.feed_all(decode(raw))
            local.close()
            spent = time.process_time() - spent
            if not local.report() == told or told.summary.internal_errors:
                raise SystemExit(f"{name} has two reports: {local.report()}, {told}")
            kind = "with a trace" if path else "no trace"
            print(f"  beside it, {kind}: {accesses / spent:,.0f} accesses a second")


def write(path: Path, program: Iterator[list[AnyRecord]], operations: int) -> None:
    """Write `operations` of a program to a new trace."""
    writer, done = Writer(path), 0
    for records in program:
        for item in records:
            writer.write(item)
            done += type(item) is Operation
        if done >= operations:
            break
    writer.write(End(0, 0.0))
    writer.close()


def memory() -> int:
    """The most memory that this process has used so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    p = argparse.ArgumentParser(description="Measure the checker.")
    p.add_argument("programs", nargs="*", metavar="PROGRAM", help="training, streams, ranges")
    p.add_argument("--operations", type=int, default=200_000)
    p.add_argument("--beside", action="store_true", help="check in a process beside this one")
    p.add_argument("--write", type=Path, metavar="FILE", help="write a trace, and check nothing")
    p.add_argument("--trace", type=Path, help="a recorded training instead of one made now")
    return p


def main() -> None:
    """Run the command line."""
    args = parser().parse_args()
    programs: dict[str, Callable[[], Iterator[list[AnyRecord]]]] = {
        "training": lambda: training(args.trace, args.operations),
        "streams": streams,
        "ranges": ranges,
    }
    for name in args.programs or programs:
        if name not in programs:
            raise SystemExit(f"there is no program {name}: choose from {', '.join(programs)}")
        if args.write:
            write(args.write, programs[name](), args.operations)
            return
        (measure_beside if args.beside else measure)(name, programs[name](), args.operations)


if __name__ == "__main__":
    main()

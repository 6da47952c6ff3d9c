"""A training run of any length: the steady state of a recorded one, over and over.

`record` runs ``examples/vit_train.py`` on the virtual GPU and keeps its trace. `LongRun` yields the
records of that trace up to a step of its steady state, and then that step again and again: with
operations, blocks and events numbered on, and every block where the caching allocator puts it now,
so that blocks are split, merged and reused as in a real run of that length.
"""

from __future__ import annotations

import os
import subprocess
import sys
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from streamsan.allocator import CachingAllocator
from streamsan.allocator.contract import Block
from streamsan.model.records import (
    Access,
    Alloc,
    AnyRecord,
    EventDestroy,
    EventRecord,
    EventWait,
    Free,
    Operation,
    RecordStream,
)
from streamsan.trace import read

ROOT = Path(__file__).resolve().parents[1]
STEPS = 12
"""Steps recorded; the last whole one is repeated."""


def record(path: Path, *arguments: str) -> None:
    """Record the vision transformer's training on the virtual GPU into a new trace at `path`."""
    program = [str(ROOT / "examples" / "vit_train.py"), "--device", "cuda", "--log-every", "1"]
    command = [sys.executable, "-m", "streamsan", "run", "--device", "virtual", "--trace"]
    command += [str(path), *program, "--steps", str(STEPS), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)


class _Memory:
    """Segments from an endless address space, and events that are done at once."""

    def __init__(self, base: int) -> None:
        self._next = base

    def reserve(self, size: int) -> int:
        self._next += size
        return self._next - size

    def release(self, address: int, size: int) -> None:
        pass

    def record(self, stream: int) -> int:
        return stream

    def done(self, token: int) -> bool:
        return token >= 0

    def wait(self, token: int) -> None:
        pass


Homes = tuple["int | None", ...]
"""The block that each access of an operation lies in; None: in none."""


class LongRun:
    """The records of a trace, and after them those of its last whole step, as often as asked.

    Raises ValueError if the trace has no steady state.
    """

    def __init__(self, path: Path) -> None:
        """Read the trace at `path`."""
        records = list(read(path))
        marks = [i for i, record in enumerate(records) if isinstance(record, EventRecord)]
        if len(marks) < 3:
            raise ValueError(f"{path} has fewer than three steps")
        start, end = marks[-2:]
        self._records, self._body = records[:end], slice(start, end)
        before, after = _live(records[:start]), _live(records[:end])
        if [_shape(block) for block in before] != [_shape(block) for block in after]:
            raise ValueError(f"{path}: the last step leaves other blocks than the one before")
        self._roles = {old.block: new.block for old, new in zip(before, after)}
        self._homes = _homes(self._records)
        self._bases = {
            record.block: record.address for record in records if isinstance(record, Alloc)
        }
        self._allocators: dict[int, CachingAllocator] = {}
        self._placed: dict[int, tuple[int, Block]] = {}
        self._numbers = self._sequence = 0

    def steps(self, operations: int) -> Iterator[list[AnyRecord]]:
        """Lists of records, first all that was recorded, then a step each, up to `operations`."""
        names: dict[int, int] = {}
        records, homes = self._records, self._homes
        while self._sequence < operations:
            yield [self._renew(record, home, names) for record, home in zip(records, homes)]
            records, homes = self._records[self._body], self._homes[self._body]
            names = {old: names[new] for old, new in self._roles.items()}

    def _renew(self, record: AnyRecord, homes: Homes, names: dict[int, int]) -> AnyRecord:
        """The record with numbers and addresses of now; `names` maps those of the trace."""
        if isinstance(record, Operation):
            self._sequence += 1
            moved = [self._move(a, home, names) for a, home in zip(record.accesses, homes)]
            return replace(record, seq=self._sequence, accesses=tuple(moved))
        if isinstance(record, Alloc):
            return self._alloc(record, names)
        if isinstance(record, Free):
            space, block = self._placed.pop(names[record.block])
            self._allocators[space].free(block)
            return replace(record, block=names[record.block])
        if isinstance(record, RecordStream):
            space, block = self._placed[names[record.block]]
            self._allocators[space].record_stream(block, record.stream)
            return replace(record, block=names[record.block])
        if isinstance(record, EventRecord):
            self._numbers += 1
            names[record.event] = self._numbers
            return replace(record, event=self._numbers)
        if isinstance(record, (EventWait, EventDestroy)) and record.event in names:
            return replace(record, event=names[record.event])
        return record

    def _alloc(self, record: Alloc, names: dict[int, int]) -> Alloc:
        allocator = self._allocators.get(record.space)
        if allocator is None:
            memory = _Memory((record.space + 2) << 44)
            allocator = self._allocators[record.space] = CachingAllocator(memory, memory, 1 << 43)
        block = allocator.allocate(record.size, record.stream)
        self._numbers += 1
        names[record.block] = self._numbers
        self._placed[self._numbers] = (record.space, block)
        return replace(record, block=self._numbers, address=block.address)

    def _move(self, access: Access, home: int | None, names: dict[int, int]) -> Access:
        if home is None:
            return access
        base = self._placed[names[home]][1].address
        return replace(access, address=base + access.address - self._bases[home])


def _live(records: list[AnyRecord]) -> list[Alloc]:
    """The blocks that live after `records`, in order of their allocation."""
    live: dict[int, Alloc] = {}
    for record in records:
        if isinstance(record, Alloc):
            live[record.block] = record
        elif isinstance(record, Free):
            live.pop(record.block, None)
    return list(live.values())


def _shape(block: Alloc) -> tuple[int, int, int]:
    return block.space, block.size, block.stream


def _homes(records: list[AnyRecord]) -> list[Homes]:
    """For each record, the blocks that its accesses lie in."""
    at: dict[tuple[int, int], Alloc] = {}
    starts: dict[int, list[int]] = defaultdict(list)
    live: dict[int, Alloc] = {}
    found: list[Homes] = []
    for record in records:
        homes: list[int | None] = []
        if isinstance(record, Alloc):
            live[record.block] = at[record.space, record.address] = record
            insort(starts[record.space], record.address)
        elif isinstance(record, Free) and record.block in live:
            block = live.pop(record.block)
            starts[block.space].remove(block.address)
        elif isinstance(record, Operation):
            for access in record.accesses:
                known = starts[access.space]
                index = bisect_right(known, access.address) - 1
                home = at[access.space, known[index]] if index >= 0 else None
                inside = home is not None and access.address < home.address + home.size
                homes.append(home.block if home is not None and inside else None)
        found.append(tuple(homes))
    return found

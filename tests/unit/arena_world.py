"""An arena with a recorder over a driver of Python objects, and what was recorded."""

from __future__ import annotations

from collections.abc import Callable

from streamsan.model import records as r
from streamsan.record._arena import Arena
from streamsan.record._observer import Observer
from streamsan.record.cuda._recorder import CudaRecorder
from tests.unit.fake_cuda import FakeContext

MAIN, SIDE = 0, 0x55


class World:
    """An arena whose device 0 has `context` for a driver; the records are in `seen`."""

    def __init__(self, name: str) -> None:
        self.seen: list[r.AnyRecord] = []
        self.observer = Observer()
        self.context = FakeContext(0)
        self.arena = Arena(self.observer, name, lambda _: self.context)
        self.recorder = CudaRecorder(self.observer, self.arena)
        self.observer.begin(self.seen.append, r.Header("cuda", {}, (), {}), ())

    def malloc(self, size: int, stream: int = MAIN) -> int:
        return self.arena.malloc(size, 0, stream)

    def free(self, address: int) -> None:
        self.arena.release(address, 0, 0, 0)

    def report(self, address: int, size: int) -> int:
        """What the recorder does when a tensor shows a block: number of the block."""
        born = self.recorder.blocks.by_address.get(address)
        assert born is not None
        born.number = self.observer.next_number()
        self.observer.emit(
            r.Alloc(
                born.number, 0, address, size, born.owner, born.thread, born.stack, self.arena.name
            )
        )
        return born.number

    def inside(self, *operands: int) -> list[Callable[[], None]]:
        """Be inside of an operator from here on; what it holds back."""
        held: list[Callable[[], None]] = []
        self.recorder.local.inside = held
        self.recorder.local.operands = frozenset(operands)
        return held

    def kinds(self) -> list[str]:
        """Names of the records of order and lifetime, but for the ends of events."""
        names = (r.Alloc, r.Free, r.EventRecord, r.EventWait, r.DeviceSync)
        return [type(record).__name__ for record in self.seen if isinstance(record, names)]

    def errors(self) -> list[str]:
        return [x.text for x in self.seen if isinstance(x, r.Note) and x.topic == "internal-error"]

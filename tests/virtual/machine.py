"""The virtual machine alone, without torch: streams that note what ran."""

from __future__ import annotations

from streamsan.model.records import AnyRecord
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.observer import Nobody
from streamsan.virtual.schedule import parse
from streamsan.virtual.streams import Event, Stream


class Listener(Nobody):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[AnyRecord] = []

    def emit(self, record: AnyRecord) -> None:
        """Keep the record."""
        self.told.append(record)


class Machine(Gpu):
    """A small machine; `ran` lists the names of the work that has run, in order."""

    def __init__(
        self,
        schedule: str = "late",
        devices: int = 1,
        memory: int = 64 << 20,
        allocator: str = "caching",
    ) -> None:
        super().__init__(Listener(), parse(schedule), devices, memory, allocator)
        self.ran: list[str] = []

    @property
    def told(self) -> list[AnyRecord]:
        """What it has reported."""
        assert isinstance(self.observer, Listener)
        return self.observer.told

    def put(self, stream: Stream, *names: str) -> None:
        """Enqueue work that notes its name."""
        for name in names:
            self.submit(stream, lambda name=name: self.ran.append(name))  # type: ignore[misc]

    def event(self, stream: Stream) -> Event:
        """An event recorded on `stream` now."""
        event = self.new_event()
        self.record(event, stream)
        return event

    def named(self, name: str, device: int = 0) -> Stream:
        """A fresh pool stream of a name, as a program's variable would give it."""
        stream = self.new_stream(device)
        stream.name = name
        return stream

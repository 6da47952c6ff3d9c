"""A CUDA recorder without a GPU, for the collectives that a test issues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.cuda import _gpu_trace as trace

from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._nccl_groups import Groups
from streamsan.record.cuda._nccl_handles import Handles
from streamsan.record.cuda._recorder import CudaRecorder
from tests.unit.fake_collectives import (
    ASYNC,
    END,
    NATIVE,
    Group,
    Handle,
    Operator,
    fire,
    restored_callbacks,
)

SIZE = 1 << 10
GROUP = Group()


class Machine:
    """A recorder whose device tensors are host tensors, and the records that come out of it."""

    def __init__(self, recorder: CudaRecorder, records: list[r.AnyRecord]) -> None:
        self.recorder = recorder
        self.records = records
        self.handles = Handles(recorder, recorder.collectives)
        self.groups = Groups(recorder, recorder.collectives, self.handles)

    def tensor(self) -> torch.Tensor:
        """A tensor in a block of its own that the default stream owns."""
        tensor = torch.ones(SIZE)
        blocks = self.recorder.blocks
        blocks.allocated(tensor.data_ptr(), self.recorder.streams.define(0, 0), 0, r.NONE)
        return tensor

    def kernel(self, name: str, tensor: torch.Tensor, mode: r.Mode, stream: int = 0) -> None:
        """A kernel on a stream, by its native handle."""
        accesses = self.recorder.accesses([(tensor, 0, int(mode), "self")])
        timeline = self.recorder.streams.define(0, stream)
        self.recorder.operation(int(r.OpKind.KERNEL), name, timeline, accesses)

    def issue(self, operator: Operator, *args: Any) -> Handle:
        """Issue a collective from Python; its handle."""
        issue = self.groups._issuing(self._run)
        return issue(operator, args)  # type: ignore[no-any-return]

    def _run(self, operator: Operator, args: tuple[Any, ...]) -> Handle:
        assert self.recorder.collectives.run(operator, args, {}) == "result"
        return Handle()

    def all_reduce(
        self, tensor: torch.Tensor, happens: tuple[tuple[str, int, int], ...] = ASYNC
    ) -> Handle:
        """Issue an all-reduce."""
        return self.issue(Operator("allreduce_", happens), [tensor], GROUP, None, None)

    def waited(self, handle: Handle, event: int = END, stream: int = 0) -> None:
        """The program waits for a handle while a stream is current."""
        self.handles._waiting(lambda _: fire(("wait", event, stream)))(handle)

    def free(self, tensor: torch.Tensor) -> None:
        """The block of a tensor goes back to the allocator."""
        born = self.recorder.blocks.take(tensor.data_ptr())
        assert born is not None
        self.recorder.blocks.give_up(born, self.recorder.observer.thread(), r.NONE)

    def of(self, kind: type[r.Record]) -> list[Any]:
        """The records of a kind."""
        return [record for record in self.records if isinstance(record, kind)]

    def collectives(self) -> list[r.Operation]:
        """The collectives that were reported."""
        return [op for op in self.of(r.Operation) if op.kind == r.OpKind.COLLECTIVE]

    def races(self) -> list[tuple[str, str, str]]:
        """Kind and operations of each race."""
        self.recorder.observer.end(0)
        checker = Checker()
        for record in self.records:
            checker.feed(record)
        report = checker.report()
        assert report.summary.internal_errors == []
        return [(race.kind, race.first.op, race.second.op) for race in report.races]


def held_back(
    recorder: CudaRecorder, tell: Callable[[int, int], None]
) -> Callable[[int, int], None]:
    """A callback for torch's GPU trace: what happens inside of an operator is told after it."""

    def callback(event: int, stream: int) -> None:
        inside = recorder.local.inside
        if inside is None:
            tell(event, stream)
        else:
            inside.append(lambda: tell(event, stream))

    return callback


@contextmanager
def machine_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine; nothing may have been noted in the end."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for name, answer in NATIVE.items():
        monkeypatch.setattr(torch._C, name, answer, raising=False)
    records: list[r.AnyRecord] = []
    observer = Observer()
    observer.begin(records.append, r.Header("cuda", {}, (), {}), ())
    recorder = CudaRecorder(observer)
    known = recorder.streams.of_handle
    monkeypatch.setattr(recorder, "owner", lambda _: 0)
    streams = recorder.streams
    with restored_callbacks():
        trace.register_callback_for_event_record(
            held_back(recorder, lambda event, on: streams.record(event, known(on), 0, r.NONE))
        )
        trace.register_callback_for_event_wait(
            held_back(recorder, lambda event, on: streams.wait(event, known(on), 0, r.NONE))
        )
        yield Machine(recorder, records)
    observer.end(0)
    assert [note.text for note in records if isinstance(note, r.Note)] == []

"""What ``torch.cuda.comm`` sends by NCCL, seen by the CUDA recorder: tensors of devices made up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record.cuda._nccl_comm import install_comm
from tests.unit.collective_machine import Machine, machine_of

READ, WRITE = int(r.Mode.READ), int(r.Mode.WRITE)


class OnDevice(torch.Tensor):
    """A host tensor that says it is on a device of its own."""

    number: int

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Its device."""
        return torch.device("cuda", self.number)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """Whether it is on a device."""
        return True

    def get_device(self) -> int:
        """Its device's index."""
        return self.number


def on(number: int, *sizes: int) -> Any:
    """A tensor on a device."""
    tensor = torch.zeros(sizes or (8,)).as_subclass(OnDevice)
    tensor.number = number
    return tensor


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(torch._C, "_nccl_all_reduce", None, raising=False)
    monkeypatch.setattr(torch._C, "_nccl_broadcast", None, raising=False)
    for name in ("_broadcast", "_broadcast_out", "_broadcast_coalesced"):
        monkeypatch.setattr(torch._C, name, lambda result, *_: result, raising=False)
    with machine_of(monkeypatch) as made:
        monkeypatch.setattr(made.recorder, "owner", lambda tensor: tensor.get_device())
        yield made


def call(machine: Machine, name: str, result: Any, *args: Any) -> None:
    """Call a function of torch that gives `result`."""
    native: Any = torch._C

    def function(*given: Any) -> Any:
        assert given == args
        return result

    setattr(native, name, function)
    install_comm(machine.recorder)
    assert getattr(native, name)(*args) is result


def called(machine: Machine, name: str, result: Any, *args: Any) -> list[Any]:
    """What is reported of a call: device and modes of each part."""
    call(machine, name, result, *args)
    assert {op.name for op in machine.collectives()} <= {"nccl::broadcast"}
    assert machine.collectives() == machine.of(r.Operation)
    streams = {stream.timeline: stream.device for stream in machine.of(r.StreamDef)}
    return [
        (streams[op.timeline], [access.mode for access in op.accesses])
        for op in machine.collectives()
    ]


def test_broadcast_reads_on_one_device_and_writes_on_the_others(machine: Machine) -> None:
    x, y, z = on(0), on(1), on(2)
    found = called(machine, "_broadcast", [x, y, z], x, [0, 1, 2])
    assert found == [(0, [READ]), (1, [WRITE]), (2, [WRITE])]


def test_broadcast_to_given_tensors(machine: Machine) -> None:
    x, y = on(0), on(1)
    assert called(machine, "_broadcast_out", [y], x, [y]) == [(0, [READ]), (1, [WRITE])]


def test_coalesced_broadcast_is_one_part_a_device(machine: Machine) -> None:
    sources, copies = [on(1), on(1)], [on(0), on(0)]
    result = [copies, sources]
    found = called(machine, "_broadcast_coalesced", result, sources, [0, 1], 1 << 20)
    assert found == [(1, [READ, READ]), (0, [WRITE, WRITE])]


X, Y = on(0), on(0)


@pytest.mark.parametrize(
    ("name", "result", "args"),
    [
        ("_broadcast", [X], (X, [0])),  # NCCL has nothing to do
        ("_broadcast", [X, X], (X, [0, 0])),
        ("_broadcast_out", [Y], (X, [Y])),  # on one device: by an operator, which is seen
        ("_broadcast_coalesced", [[X, Y]], ([X, Y], [0], 1 << 20)),
        ("_broadcast_coalesced", [], ([], [0], 1 << 20)),
        ("_broadcast_out", [on(1)], (on(0, 8, 8).t(), [on(1)])),  # not contiguous: the same
        ("_broadcast", [on(0), on(1)], (torch.ones(8), [0, 1])),  # from the host: the same
    ],
)
def test_what_nccl_does_not_send_is_not_reported(
    machine: Machine, name: str, result: Any, args: tuple[Any, ...]
) -> None:
    assert called(machine, name, result, *args) == []


def test_race_with_a_stream_of_the_source_s_device(machine: Machine) -> None:
    x, y = on(0), on(1)
    machine.kernel("load", x, r.Mode.WRITE, stream=0x77)
    call(machine, "_broadcast", [x, y], x, [0, 1])
    assert machine.races() == [("R07-COLL-INFLIGHT", "load", "nccl::broadcast")]

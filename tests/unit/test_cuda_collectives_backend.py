"""Collectives called on a backend object, on a group made by hand, and among devices by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record.cuda._nccl_groups import _key_of_backend, _key_of_every, _key_of_group
from tests.unit.collective_machine import GROUP, Machine, machine_of
from tests.unit.fake_collectives import (
    ASYNC,
    BLOCKING,
    COALESCED,
    END,
    NCCL,
    Backend,
    Handle,
    Operator,
    fire,
)

BACKEND = Backend("nccl")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with machine_of(monkeypatch) as made:
        yield made


def method(
    machine: Machine, name: str, happens: tuple[tuple[str, int, int], ...] = ASYNC
) -> Callable[..., Handle]:
    """A method of a backend that does nothing but what happens on a real GPU."""

    def native(*_: Any, **__: Any) -> Handle:
        fire(*happens)
        return Handle()

    return machine.groups._calling(name, native)


def test_n1_collective_is_on_the_stream_that_was_made_to_wait(machine: Machine) -> None:
    x = machine.tensor()
    method(machine, "allreduce")(BACKEND, [x])
    (op,) = machine.collectives()
    (stream,) = [found for found in machine.of(r.StreamDef) if found.handle == NCCL]
    assert (op.name, op.timeline, stream.name) == ("nccl::all_reduce", stream.timeline, "nccl 7")
    assert [access.mode for access in op.accesses] == [r.Mode.READ_WRITE]
    wanted = (r.EventRecord, r.EventWait, r.Operation)
    kinds = [type(record) for record in machine.records if isinstance(record, wanted)]
    assert kinds == [r.EventRecord, r.EventWait, r.Operation, r.EventRecord, r.EventRecord]


@pytest.mark.parametrize("waited", [False, True])
def test_n2_result_is_ready_behind_the_wait(machine: Machine, waited: bool) -> None:
    x = machine.tensor()
    machine.kernel("make", x, r.Mode.WRITE)
    handle = method(machine, "allreduce")(BACKEND, x)
    if waited:
        machine.waited(handle)
    machine.kernel("use", x, r.Mode.READ)
    race = ("R07-COLL-INFLIGHT", "nccl::all_reduce", "use")
    assert machine.races() == ([] if waited else [race])


def test_n1_work_of_another_stream_is_not_waited_for(machine: Machine) -> None:
    x = machine.tensor()
    machine.kernel("make", x, r.Mode.WRITE, stream=0x77)
    machine.waited(method(machine, "broadcast")(BACKEND, x, root=0))
    assert machine.races() == [("R07-COLL-INFLIGHT", "make", "nccl::broadcast")]


@pytest.mark.parametrize(("root", "mode"), [(0, r.Mode.READ), (1, r.Mode.WRITE)])
def test_root_reads_and_others_write(machine: Machine, root: int, mode: r.Mode) -> None:
    method(machine, "broadcast")(BACKEND, machine.tensor(), root)
    (op,) = machine.collectives()
    assert [access.mode for access in op.accesses] == [mode]


def test_blocking_form_is_on_the_current_stream(machine: Machine) -> None:
    x = machine.tensor()
    method(machine, "allreduce", BLOCKING)(BACKEND, [x])
    (op,) = machine.collectives()
    assert op.timeline == machine.recorder.streams.define(0, 0)


def test_wait_for_a_barrier_orders_the_host(machine: Machine) -> None:
    machine.waited(method(machine, "barrier")(BACKEND))
    (op,) = machine.collectives()
    assert (op.name, op.accesses) == ("nccl::barrier", ())
    assert len(machine.of(r.EventSync)) == 1


def test_messages_have_a_stream_for_each_peer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.recorder.blocks, "record_stream", lambda *_, **__: None)
    method(machine, "send")(BACKEND, [machine.tensor()], 1, 0)
    (stream,) = [found for found in machine.of(r.StreamDef) if found.handle == NCCL]
    assert stream.name == "nccl 7 rank 1"


def test_coalesced_calls_are_one_operation_where_the_region_ends(machine: Machine) -> None:
    x, y = machine.tensor(), machine.tensor()
    machine.groups._starting(_key_of_backend, lambda _: None)(BACKEND)
    for tensor in (x, y):
        method(machine, "allreduce", COALESCED)(BACKEND, [tensor])
    assert machine.collectives() == []

    def launch(_: Any) -> Handle:
        fire(("record", END, NCCL))
        return Handle()

    handle = machine.groups._ending(_key_of_backend, launch)(BACKEND)
    (op,) = machine.collectives()
    assert len(op.accesses) == 2
    machine.waited(handle)
    machine.kernel("use", y, r.Mode.READ)
    assert machine.races() == []


def test_regions_of_two_communicators_are_apart(machine: Machine) -> None:
    """Each ends where its own is ended, whichever was started first; others run at once."""
    other, third = Backend("nccl"), Backend("nccl")
    other.uid, third.uid = 8, 9
    start = machine.groups._starting(_key_of_backend, lambda _: None)
    end = machine.groups._ending(_key_of_backend, lambda _: fire(("record", END, NCCL)))
    start(BACKEND)
    start(other)
    for backend in (BACKEND, other, third):
        method(machine, "allreduce", COALESCED)(backend, [machine.tensor()])
    assert len(machine.collectives()) == 1
    end(BACKEND)
    assert len(machine.collectives()) == 2
    end(other)
    assert len(machine.collectives()) == 3


def test_nothing_runs_where_a_time_is_estimated(machine: Machine) -> None:
    machine.groups._starting(_key_of_every, lambda _: None)(BACKEND)
    method(machine, "allreduce")(BACKEND, [machine.tensor()])
    assert machine.groups._dropping(_key_of_every, lambda _: 1.5)(BACKEND) == 1.5
    assert machine.of(r.Operation) == []
    machine.all_reduce(machine.tensor())
    assert len(machine.collectives()) == 1


def test_call_from_inside_of_a_collective_is_a_part_of_it(machine: Machine) -> None:
    """A group that is written in Python calls the backend that it is made of."""
    x = machine.tensor()
    inner = method(machine, "allreduce")
    outer = machine.groups._calling("allreduce", inner)
    outer(BACKEND, [x])
    assert len(machine.collectives()) == 1

    class Calling(Operator):
        def __call__(self, *args: Any) -> str:
            inner(BACKEND, args[0])
            return "result"

    machine.issue(Calling("allreduce_"), [x], GROUP, None, None)
    assert len(machine.collectives()) == 2


def test_failing_call_is_not_reported(machine: Machine) -> None:
    def fail(*_: Any) -> Handle:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        machine.groups._calling("allreduce", fail)(BACKEND, [machine.tensor()])
    assert machine.collectives() == []
    assert machine.recorder.local.inside is None


def test_call_that_torch_refuses_is_no_error_of_ours(machine: Machine) -> None:
    """The machine checks that nothing was noted."""
    distributed: Any = torch._C._distributed_c10d
    native = distributed.Backend.allreduce
    with pytest.raises(TypeError, match="incompatible function arguments"):
        machine.groups._calling("allreduce", native)(BACKEND, 3)
    assert machine.of(r.Operation) == []


def test_backend_of_a_group_is_the_same_communicator(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {GROUP.group_name: GROUP}
    native = torch._C._distributed_c10d
    monkeypatch.setattr(native, "_resolve_process_group", names.__getitem__)
    backend = Backend("nccl")
    backend.options = SimpleNamespace(group_name=GROUP.group_name)
    assert _key_of_backend(backend) == _key_of_group(GROUP)
    machine.groups._starting(_key_of_group, lambda _: None)(GROUP)
    method(machine, "allreduce", COALESCED)(backend, [machine.tensor()])
    (stream,) = [found for found in machine.of(r.StreamDef) if found.handle == NCCL]
    assert stream.name == "nccl default_pg"
    assert machine.collectives() == []


def test_shutdown_waits_for_what_is_under_way(machine: Machine) -> None:
    x = machine.tensor()
    method(machine, "allreduce")(BACKEND, [x])
    machine.groups._shutting_down(_key_of_backend, lambda _: None)(BACKEND)
    machine.kernel("use", x, r.Mode.READ)
    assert machine.races() == []

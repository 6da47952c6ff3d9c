"""The CUDA recorder's view of collectives, from what a real GPU showed: order, memory, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record.cuda._nccl_groups import _key_of_group
from streamsan.virtual.face.collective_ops import FORMS
from streamsan.virtual.memory import PINNED
from tests.unit.collective_machine import GROUP, Machine, machine_of
from tests.unit.fake_collectives import (
    ASYNC,
    BLOCKING,
    COALESCED,
    END,
    FUTURE,
    NCCL,
    Group,
    Handle,
    Operator,
    fire,
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with machine_of(monkeypatch) as made:
        yield made


def test_n1_collective_is_on_the_stream_that_was_made_to_wait(machine: Machine) -> None:
    x = machine.tensor()
    machine.all_reduce(x)
    (op,) = machine.collectives()
    (stream,) = [found for found in machine.of(r.StreamDef) if found.handle == NCCL]
    assert (op.name, op.timeline) == ("nccl::all_reduce", stream.timeline)
    assert stream.name == "nccl default_pg"
    wanted = (r.EventRecord, r.EventWait, r.Operation)
    kinds = [type(record) for record in machine.records if isinstance(record, wanted)]
    assert kinds == [r.EventRecord, r.EventWait, r.Operation, r.EventRecord, r.EventRecord]


def test_blocking_form_is_on_the_current_stream(machine: Machine) -> None:
    x = machine.tensor()
    machine.all_reduce(x, BLOCKING)
    machine.kernel("use", x, r.Mode.READ)
    (op,) = machine.collectives()
    assert op.timeline == machine.recorder.streams.define(0, 0)
    assert machine.races() == []


def test_n2_result_before_the_wait_races(machine: Machine) -> None:
    x = machine.tensor()
    machine.kernel("make", x, r.Mode.WRITE)
    handle = machine.all_reduce(x)
    machine.kernel("use", x, r.Mode.READ)
    machine.waited(handle)
    machine.kernel("use later", x, r.Mode.READ)
    assert machine.races() == [("R07-COLL-INFLIGHT", "nccl::all_reduce", "use")]


@pytest.mark.parametrize("event", [END, FUTURE])
def test_n2_wait_orders_the_stream_that_is_current_then(machine: Machine, event: int) -> None:
    x = machine.tensor()
    handle = machine.all_reduce(x)
    machine.waited(handle, event, stream=0x77)
    machine.kernel("side", x, r.Mode.READ, stream=0x77)
    machine.kernel("use", x, r.Mode.READ)
    assert machine.races() == [("R07-COLL-INFLIGHT", "nccl::all_reduce", "use")]


def test_n1_work_of_another_stream_is_not_waited_for(machine: Machine) -> None:
    x = machine.tensor()
    machine.kernel("make", x, r.Mode.WRITE, stream=0x77)
    machine.waited(machine.all_reduce(x))
    assert machine.races()[0] == ("R07-COLL-INFLIGHT", "make", "nccl::all_reduce")


def test_coalesced_collectives_are_one_operation_where_the_region_ends(machine: Machine) -> None:
    x, y = machine.tensor(), machine.tensor()
    start = machine.groups._starting(_key_of_group, lambda _: None)

    def launch(_: Any) -> Handle:
        fire(("record", END, NCCL))
        return Handle()

    end = machine.groups._ending(_key_of_group, launch)
    start(GROUP)
    for tensor in (x, y):
        machine.all_reduce(tensor, COALESCED)
    assert machine.collectives() == []
    handle = end(GROUP)
    (op,) = machine.collectives()
    assert (op.name, len(op.accesses)) == ("nccl::all_reduce", 2)
    machine.waited(handle)
    machine.kernel("use", y, r.Mode.READ)
    assert machine.races() == []


def test_coalesced_collectives_in_the_blocking_form_are_on_the_current_stream(
    machine: Machine,
) -> None:
    """The region's end is recorded on the group's stream even so."""
    x, y = machine.tensor(), machine.tensor()
    machine.groups._starting(_key_of_group, lambda _: None)(GROUP)
    machine.all_reduce(x, BLOCKING[1:])
    machine.issue(Operator("broadcast_", BLOCKING[1:]), [y], GROUP, 0, 0)
    machine.groups._ending(_key_of_group, lambda _: fire(("record", END, NCCL)))(GROUP)
    (op,) = machine.collectives()
    assert op.timeline == machine.recorder.streams.define(0, 0)
    assert op.name == "nccl::coalesced"
    machine.kernel("use", x, r.Mode.READ)
    assert machine.races() == []


def test_region_without_collectives_is_nothing(machine: Machine) -> None:
    machine.groups._starting(_key_of_group, lambda _: None)(GROUP)
    assert machine.groups._ending(_key_of_group, lambda _: None)(GROUP) is None
    assert machine.of(r.Operation) == []


def test_failing_collective_is_not_reported(machine: Machine) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    operator = Operator("allreduce_")
    operator.__class__ = type("Failing", (Operator,), {"__call__": fail})
    with pytest.raises(RuntimeError, match="no"):
        machine.recorder.collectives.run(operator, ([machine.tensor()], GROUP, None, None), {})
    assert machine.collectives() == []
    assert machine.recorder.local.inside is None


def test_e4_completed_handle_orders_the_host(machine: Machine) -> None:
    x = machine.tensor()
    handle = machine.all_reduce(x)
    assert machine.handles._asking(lambda _: False)(handle) is False
    assert machine.of(r.EventSync) == []
    assert machine.handles._asking(lambda _: True)(handle) is True
    machine.kernel("use", x, r.Mode.READ)
    (sync,) = machine.of(r.EventSync)
    assert sync.query
    assert machine.races() == []


def test_wait_for_a_barrier_orders_the_host(machine: Machine) -> None:
    x = machine.tensor()
    work = machine.all_reduce(x)
    barrier = machine.issue(Operator("barrier"), _OnDevice(), GROUP, [])
    machine.waited(barrier)
    assert len(machine.of(r.EventSync)) == 1
    machine.waited(work)
    assert len(machine.of(r.EventSync)) == 1


@pytest.mark.parametrize(("timeout", "syncs"), [((), 0), ((30.0,), 1)])
def test_wait_with_a_timeout_orders_the_host(
    machine: Machine, timeout: tuple[float, ...], syncs: int
) -> None:
    handle = machine.all_reduce(machine.tensor())
    machine.handles._waiting(lambda _, *__: fire(("wait", END, 0)))(handle, *timeout)
    assert len(machine.of(r.EventSync)) == syncs


def test_blocking_wait_of_the_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")
    machine.waited(machine.all_reduce(machine.tensor()))
    assert len(machine.of(r.EventSync)) == 1


def test_shutdown_waits_for_what_is_under_way(machine: Machine) -> None:
    x = machine.tensor()
    machine.all_reduce(x)
    machine.groups._shutting_down(_key_of_group, lambda _: None)(GROUP)
    machine.kernel("use", x, r.Mode.READ)
    assert machine.races() == []


# -- memory -------------------------------------------------------------------------------------


def reuse(machine: Machine, tensor: torch.Tensor) -> None:
    """Free a tensor's block and hand it out again, to the default stream."""
    machine.free(tensor)
    machine.recorder.blocks.allocated(
        tensor.data_ptr(), machine.recorder.streams.define(0, 0), 0, r.NONE
    )
    machine.kernel("next owner", tensor, r.Mode.WRITE)


def test_memory_of_a_dropped_handle_is_free_of_its_collective(machine: Machine) -> None:
    x = machine.tensor()
    machine.all_reduce(x)
    reuse(machine, x)
    (recorded,) = machine.of(r.RecordStream)
    assert not recorded.explicit
    assert machine.races() == []


def test_memory_goes_back_at_the_wait_of_another_stream(machine: Machine) -> None:
    x = machine.tensor()
    handle = machine.all_reduce(x)
    machine.waited(handle, stream=0x77)
    reuse(machine, x)
    assert machine.of(r.RecordStream) == []
    assert machine.races() == [("R07-COLL-INFLIGHT", "nccl::all_reduce", "next owner")]


def test_event_recorded_again_says_nothing_of_the_collective(machine: Machine) -> None:
    x = machine.tensor()
    handle = machine.all_reduce(x)
    fire(("record", FUTURE, 0), ("record", END, 0))
    machine.waited(handle, FUTURE, stream=0x77)
    machine.waited(handle, END, stream=0x77)
    assert machine.of(r.RecordStream) == []
    reuse(machine, x)
    assert len(machine.of(r.RecordStream)) == 1


def test_wait_for_the_future_leaves_memory_with_the_group(machine: Machine) -> None:
    x = machine.tensor()
    handle = machine.all_reduce(x)
    machine.waited(handle, FUTURE, stream=0x77)
    machine.kernel("side", x, r.Mode.READ, stream=0x77)
    reuse(machine, x)
    streams = [machine.recorder.streams.define(0, handle) for handle in (0x77, NCCL)]
    assert [record.stream for record in machine.of(r.RecordStream)] == streams
    assert machine.races() == []


@pytest.fixture
def recorded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The streams recorded on tensors."""
    calls: list[tuple[Any, ...]] = []

    def record(tensor: torch.Tensor, stream: int, explicit: bool) -> None:
        calls.append((tensor.data_ptr(), stream, explicit))

    monkeypatch.setattr(machine.recorder.blocks, "record_stream", record)
    return calls


def test_m2_messages_are_recorded_on_their_stream(
    machine: Machine, recorded: list[tuple[Any, ...]]
) -> None:
    x = machine.tensor()
    machine.waited(machine.issue(Operator("send"), [x], GROUP, 1, 0))
    (stream,) = [found for found in machine.of(r.StreamDef) if found.handle == NCCL]
    assert stream.name == "nccl default_pg rank 1"
    assert recorded == [(x.data_ptr(), stream.timeline, False)]


def test_m2_future_records_the_stream_that_waits(
    machine: Machine, recorded: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = machine.tensor()
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    waits = (x.data_ptr(), machine.recorder.streams.define(0, 0), False)

    class Done:
        def value(self) -> list[torch.Tensor]:
            return [x]

    assert machine.handles._using(lambda _: [x])(None) == [x]
    assert recorded == [waits]
    then: Callable[..., Any] = machine.handles._calling_back(lambda future, call: call(future))
    assert then(Done(), lambda _: "called") == "called"
    assert recorded == [waits, waits]


# -- what each collective touches ---------------------------------------------------------------


def test_there_is_a_form_for_every_collective_of_torch() -> None:
    names = {name.name for name in torch._C._jit_get_all_schemas() if name.name[:6] == "c10d::"}
    assert names - {"c10d::check_for_nan"} == {f"c10d::{name}" for name in FORMS}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_form_names_arguments_that_there_are(name: str) -> None:
    schema = getattr(torch.ops.c10d, name).default._schema
    tensors = {argument.name for argument in schema.arguments if "Tensor" in str(argument.type)}
    form = FORMS[name]
    assert set(form.modes) <= tensors
    assert form.others is None or set(form.others) == set(form.modes)


@pytest.mark.parametrize(
    ("rank", "name", "args", "modes"),
    [
        (0, "broadcast_", (["x"], "group", 0, 0), [1]),
        (1, "broadcast_", (["x"], "group", 0, 0), [2]),
        (0, "reduce_", (["x"], "group", None, 0, 0), [3]),
        (1, "reduce_", (["x"], "group", None, 0, 0), [1]),
        (0, "allgather_", ([["y"]], ["x"], "group"), [2, 1]),
        (0, "_reduce_scatter_base_", ("y", "x", "group", None), [2, 1]),
        (1, "gather_", ([], ["x"], "group", 0), [1]),
        (0, "scatter_", (["y"], [["x"]], "group", 0), [2, 1]),
        (0, "alltoall_base_", ("y", "x", "group", [], []), [2, 1]),
        (0, "recv_", (["y"], "group", 1, 0), [2]),
    ],
)
def test_accesses(
    machine: Machine, rank: int, name: str, args: tuple[Any, ...], modes: list[int]
) -> None:
    values = {"x": machine.tensor(), "y": machine.tensor(), "group": Group(rank=rank)}

    def filled_in(arguments: Any) -> Any:
        if isinstance(arguments, (list, tuple)):
            return [filled_in(argument) for argument in arguments]
        return values[arguments] if isinstance(arguments, str) else arguments

    machine.issue(Operator(name), *filled_in(args))
    (op,) = machine.collectives()
    assert [access.mode for access in op.accesses] == modes
    assert op.name == f"nccl::{FORMS[name].name}"


def test_pinned_tensors_are_accesses_of_the_host(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.recorder, "owner", lambda _: PINNED)
    x = torch.ones(4)
    machine.issue(Operator("allreduce_", ()), [x], GROUP, None, None)
    (op,) = machine.of(r.Operation)
    assert (op.kind, op.name) == (int(r.OpKind.HOST), "gloo::all_reduce")
    assert op.accesses[0].space == r.HOST


def test_handle_whose_event_another_thread_records(machine: Machine) -> None:
    """The backend gloo records the end of a collective of device tensors in a thread of its own."""
    x = machine.tensor()
    handle = machine.issue(Operator("allreduce_", ASYNC[:2]), [x], Group("gloo"), None, None)
    machine.handles._waiting(lambda _: None)(handle)
    machine.kernel("use", x, r.Mode.READ)
    assert machine.races() == []


class _OnDevice:
    """The tensor that torch makes to find the kernel of a barrier."""

    is_cuda = True

    def get_device(self) -> int:
        """Its device's index."""
        return 0

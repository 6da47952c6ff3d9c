"""Operators, allocations and frees on a device that host memory stands for: what is reported, by
the compiled core and without it.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record import _core, _portable
from streamsan.record._observer import Observer
from streamsan.record.cuda._mode import CudaMode
from streamsan.record.cuda._operators import run
from streamsan.record.cuda._recorder import CudaRecorder
from streamsan.record.cuda._streams import GraphCapture
from streamsan.record.cuda._trace import memory_callbacks

HOST_MEMORY = 1  # DLPack's type of the device that stands for a GPU here
HEADER = r.Header("cuda", {}, (), {})
KINDS = ("compiled", "portable")

needs_compiled = pytest.mark.skipif(not _core.compiled(), reason="the core is not compiled here")


def pretend(patch: pytest.MonkeyPatch, kind: str) -> None:
    """Host tensors are those of device 0, whose current stream is the default one."""
    base: Any = torch._C.TensorBase
    patch.setattr(torch.Tensor, "is_cuda", base.is_cpu, raising=False)
    patch.setattr(torch.Tensor, "get_device", base.sparse_dim, raising=False)  # 0
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    for name, answer in (("CurrentRawStream", 0), ("Device", 0)):
        patch.setattr(torch._C, f"_cuda_get{name}", lambda *_, a=answer: a, raising=False)
    patch.setattr(torch._C, "_cuda_memoryStats", lambda _: {}, raising=False)
    patch.setattr(_core, "_CUDA", HOST_MEMORY)
    if kind == "portable":
        patch.setattr(_core, "_compiled", None)
        for part in ("Work", "Born", "LiveBlocks", "Outlet"):
            patch.setattr(_core, part, getattr(_portable, part))


class World:
    """A recorder at work, and what it has told."""

    def __init__(self) -> None:
        self.records: list[r.AnyRecord] = []
        self.observer = Observer()
        self.observer.begin(self.records.append, HEADER, (__file__,))
        self.recorder = CudaRecorder(self.observer)
        self.allocated, self.freed = memory_callbacks(self.recorder)
        self.recorder.streams.define(0, 0)
        self.kept: list[Any] = []

    def tensor(self, *shape: int, **options: Any) -> torch.Tensor:
        """A tensor in a block of its own."""
        self.recorder.enabled = False
        made = torch.ones(*shape, **options)
        self.recorder.enabled = True
        self.allocated(made.untyped_storage().data_ptr())
        self.kept.append(made)
        return made

    def inside(self, op: Any, happens: Callable[[], None], *args: Any) -> Any:
        """As if an operator ran in place, and something happened inside of it."""
        _, reported, handle, _ = self.recorder.routes.find(op)

        def running(*given: Any) -> Any:
            happens()
            return given[0]

        begin: Any = handle or partial(run, self.recorder, reported)  # type: ignore[arg-type]
        return begin(running, args, {})

    def told(self) -> list[tuple[Any, ...]]:
        """All records but definitions: stacks as their lines, addresses by kept tensors.

        A program has to keep its tensors: the memory of one that is dropped may be another's next.
        """
        sites = {s.site: (s.line, s.function) for s in self.of(r.SiteDef) if s.user}
        stacks = {
            s.stack: tuple(sites[n] for n in s.sites if n in sites) for s in self.of(r.StackDef)
        }
        stacks[r.NONE] = ()
        kept = [value for value in self.kept if isinstance(value, torch.Tensor)]
        known = {tensor.data_ptr(): place for place, tensor in enumerate(kept)}

        def plain(record: Any) -> tuple[Any, ...]:
            found: list[Any] = [type(record).__name__]
            for name in record.__struct_fields__:
                value = getattr(record, name)
                if name in ("stack", "forward"):
                    value = stacks[value]
                elif name == "address":
                    value = known.get(value)
                elif name == "accesses":
                    value = tuple(plain(access) for access in value)
                found.append(value)
            return tuple(found)

        left_out = (r.SiteDef, r.StackDef, r.StreamDef, r.ThreadDef, r.Header, r.End)
        return [plain(record) for record in self.records if not isinstance(record, left_out)]

    def of(self, kind: Any) -> list[Any]:
        """The records of a kind."""
        return [record for record in self.records if isinstance(record, kind)]

    def notes(self) -> list[str]:
        """The texts of all notes."""
        return [note.text for note in self.of(r.Note)]


@pytest.fixture(params=[pytest.param("compiled", marks=needs_compiled), "portable"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A recorder that has begun, of one of the two kinds."""
    pretend(monkeypatch, str(request.param))
    made = World()
    yield made
    made.observer.end(0)


def arithmetic(world: World) -> None:
    x, y, out = world.tensor(4, 8), world.tensor(4, 8), world.tensor(4, 8)
    torch.add(x, y, out=out)
    x.add_(y)
    x[:, ::2].mul_(y[:, 1::2])
    world.kept += [
        x.t().matmul(y),
        x + y,
        torch.cat([x, y]),
        torch.empty_like(x),
        x.sum(0),
        torch.zeros(3),
    ]
    world.kept += [*torch.sort(x), x.clone(), torch.where(x > 1, x, y)]
    torch._foreach_add_([x, y, out], 1.0)


def copies(world: World) -> None:
    x, y = world.tensor(4, 8), world.tensor(4, 8)
    x.copy_(y)
    x[1:].copy_(y[:3], non_blocking=True)
    world.kept += [x.to(torch.bfloat16), y.double(), x.to(torch.int32, copy=True)]


def training(world: World) -> None:
    w, x = world.tensor(8, 8, requires_grad=True), world.tensor(4, 8)
    layer = torch.nn.BatchNorm1d(8)
    hidden = layer(x @ w)
    loss = hidden.relu().view(32).pow(2).mean()
    loss.backward()
    assert w.grad is not None
    with torch.no_grad():
        w -= 0.1 * w.grad
    world.kept += [layer, hidden, loss]


def readings(world: World) -> None:
    x = world.tensor(6)
    world.kept += [x.sum(), x.nonzero(), x[x > 0]]
    assert world.kept[1].item() == 6
    x.resize_(3)
    torch.ops.inductor._reinterpret_tensor(x, [2], [1], 0)  # views of generated code
    torch.ops.inductor._alloc_from_pool(x, 4, torch.float32, [1], [1])
    assert torch.ops.prim.device.default(x).type == "cpu"  # the dispatcher does not know it


def failures(world: World) -> None:
    x = world.tensor(4)
    with pytest.raises(RuntimeError):
        x.view(7)
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(3))
    with pytest.raises(RuntimeError):
        torch.mm(x, x)
    world.kept.append(x * 2)


def blocks(world: World) -> None:
    x, y = world.tensor(4), world.tensor(8)
    y[4:].add_(x)
    world.freed(y.data_ptr())
    world.freed(y.data_ptr())  # nothing is there any more
    world.allocated(y.data_ptr())
    y.add_(1)
    world.freed(x.data_ptr())
    world.freed(12345)


def inside(world: World) -> None:
    x, y = world.tensor(4), world.tensor(4)
    x.add_(y)

    def happens() -> None:
        world.freed(y.data_ptr())
        world.allocated(y.data_ptr())

    world.inside(torch.ops.aten.mul_.Tensor, happens, x, y)

    def fails() -> None:
        world.freed(x.data_ptr())
        raise ValueError("the program's")

    with pytest.raises(ValueError, match="the program's"):
        world.inside(torch.ops.aten.mul_.Tensor, fails, x, y)
    x.add_(y)


PROGRAMS = (arithmetic, copies, training, readings, failures, blocks, inside)


def told_of(program: Callable[[World], None], kind: str) -> list[tuple[Any, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, kind)
        world = World()
        with CudaMode(world.recorder):
            program(world)
        world.observer.end(0)
        assert world.notes() == []
        return world.told()


@needs_compiled
@pytest.mark.parametrize("program", PROGRAMS)
def test_both_tell_the_same(program: Callable[[World], None]) -> None:
    compiled, portable = (told_of(program, kind) for kind in KINDS)
    assert compiled == portable
    assert len(compiled) > 2


def operations(world: World) -> list[str]:
    return [record.name for record in world.of(r.Operation)]


def test_backward_operators_name_their_forward_line(world: World) -> None:
    with CudaMode(world.recorder):
        x = world.tensor(4, requires_grad=True)
        y = (x * 3).sum()
        y.backward()
    told = [entry for entry in world.told() if entry[0] == "Operation" and "Mul" in entry[9]]
    assert told
    for entry in told:
        assert entry[10][0][1] == test_backward_operators_name_their_forward_line.__name__


def test_what_happens_inside_is_told_after_the_operator(world: World) -> None:
    with CudaMode(world.recorder):
        inside(world)
    kinds = [entry[0] for entry in world.told()]
    assert kinds == [
        "Alloc", "Alloc", "Operation", "Operation", "Free", "Alloc", "Free", "Operation",
    ]  # fmt: skip


def in_a_foreign_thread(work: Callable[[], None]) -> None:
    """Run in a thread that Python did not start, as the engine's are."""
    done = _thread.allocate_lock()
    done.acquire()

    def run_it() -> None:
        try:
            work()
        finally:
            done.release()

    _thread.start_new_thread(run_it, ())
    done.acquire()


def test_the_engines_threads_work_for_who_called_backward(world: World) -> None:
    x, recorder = world.tensor(4), world.recorder
    caller = (world.observer.thread(), world.observer.stack(), threading.get_ident())
    recorder.callers.append(caller)

    def operate() -> None:
        with CudaMode(recorder):
            x.add_(1)
            x.mul_(2)
            world.freed(x.data_ptr())

    in_a_foreign_thread(operate)
    world.observer.user_stacks.clear()  # as if no line of the user's were on them
    world.allocated(x.data_ptr())
    in_a_foreign_thread(operate)
    recorder.callers.append((17, 0, threading.get_ident()))
    in_a_foreign_thread(operate)
    recorder.callers.clear()
    told = world.of(r.Operation)
    assert [record.thread for record in told] == [caller[0]] * 4 + [17] * 2
    assert [record.stack == caller[1] for record in told] == [False] * 2 + [True] * 2 + [False] * 2
    assert [record.thread for record in world.of(r.Free)] == [caller[0]] * 2
    assert len(world.of(r.ThreadDef)) == 1


def test_a_capture_holds_what_it_captured(world: World) -> None:
    capture = GraphCapture(3, world.recorder.streams.current(0))
    with CudaMode(world.recorder):
        x = world.tensor(4)
        world.recorder.streams.begin_capture(capture)
        x.add_(1)
        x.copy_(x.clone())
        world.recorder.streams.end_capture(capture)
        x.add_(1)
    assert [(o.captured, o.graph) for o in world.of(r.Operation)] == [
        *[(True, 3)] * 3, (False, r.NONE),
    ]  # fmt: skip
    assert len(capture.accesses) == 5


def test_nothing_is_told_while_nothing_is_recorded(world: World) -> None:
    with CudaMode(world.recorder):
        x = world.tensor(4)
        world.observer.end(0)
        before = len(world.records)
        x.add_(1)
        world.freed(x.data_ptr())
        world.recorder.enabled = False
        x.add_(1)
    assert len(world.records) == before


def test_errors_of_the_sink_are_told_and_not_raised(world: World) -> None:
    def sink(record: r.AnyRecord) -> None:
        if isinstance(record, r.Operation):
            raise OSError("full")
        world.records.append(record)

    world.observer.end(0)
    world.observer.begin(sink, HEADER, ())
    with CudaMode(world.recorder):
        x = world.tensor(4)
        assert (x + 1).tolist() == [2.0] * 4
        x.copy_(x)
    assert any("full" in text for text in world.notes())


def test_threads_report_at_once(world: World) -> None:
    x = world.tensor(4)

    def work() -> None:
        with CudaMode(world.recorder):
            for _ in range(50):
                x.add_(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = world.of(r.Operation)
    assert [record.seq for record in told] == list(range(1, 201))
    assert len({record.thread for record in told}) == 4
    assert len(world.of(r.Alloc)) == 1

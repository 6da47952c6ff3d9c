"""Custom operators on a CUDA machine: their bodies, and what their schemas say beyond these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.library import Library

from streamsan.model import records as r
from streamsan.record.cuda._mode import CudaMode
from streamsan.record.kernels.custom import install_custom
from tests.unit.cuda_world import World

R, W, RW = int(r.Mode.READ), int(r.Mode.WRITE), int(r.Mode.READ_WRITE)
CERTAIN, POSSIBLE = int(r.Confidence.CERTAIN), int(r.Confidence.POSSIBLE)


class Touching:
    """Takes every tensor for one of device 0."""

    def __init__(self, world: World) -> None:
        self._touch = world.recorder._touch

    def arguments(
        self,
        places: Sequence[tuple[int, str, int]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        accesses: list[r.Access],
        _: bool,
    ) -> tuple[int, bool]:
        """Add what the arguments touch."""
        for position, name, mode in places:
            value = args[position] if 0 <= position < len(args) else kwargs.get(name)
            self.touch(value, mode, name, accesses)
        return 0, False

    def touch(self, value: Any, mode: int, name: str, accesses: list[r.Access]) -> int:
        """Add what tensors touch."""
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(tensor, torch.Tensor):
                self._touch(tensor, mode, name, accesses)
        return 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    recorder: Any = made.recorder
    monkeypatch.setattr(recorder, "owner", lambda _: 0)
    monkeypatch.setattr(recorder, "touching", Touching(made))
    monkeypatch.setattr(recorder, "recording", None)  # the compiled path knows device tensors only
    monkeypatch.setattr(Library, "impl", Library.impl)  # put back at the end
    install_custom(lambda: CudaMode(recorder))
    yield made
    made.observer.end(0)
    assert made.of(r.Note) == []


def operations(world: World) -> list[tuple[str, int, list[tuple[str, int, int]]]]:
    """Name, timeline, and accesses (argument, mode, confidence) of each operation."""
    return [
        (o.name, o.timeline, [(a.argument, a.mode, a.confidence) for a in o.accesses])
        for o in world.of(r.Operation)
    ]


def test_the_body_is_seen_on_the_streams_where_it_runs(world: World) -> None:
    @torch.library.custom_op("streamsan_tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor) -> torch.Tensor:
        world.stream = 0x55
        y = x * 2
        world.stream = 0
        return y

    x = torch.ones(4)
    with CudaMode(world.recorder):
        scaled(x)
    side = world.streams.define(0, 0x55)
    assert operations(world) == [
        ("aten::mul.Tensor", side, [("self", R, CERTAIN), ("output", W, CERTAIN)])
    ]


def test_a_body_that_shows_nothing_does_what_its_schema_says(world: World) -> None:
    @torch.library.custom_op("streamsan_tests::opaque", mutates_args=("state",))
    def opaque(state: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        state.numpy()[:] += gain.numpy()  # as an extension would, past the dispatcher
        return torch.from_numpy(state.numpy().copy())

    state, gain = torch.ones(4), torch.ones(4)
    with CudaMode(world.recorder):
        opaque(state, gain)
    ((name, stream, accesses),) = operations(world)
    assert (name, stream) == ("streamsan_tests::opaque", world.streams.define(0, 0))
    assert accesses == [
        ("state", RW, CERTAIN), ("gain", R, CERTAIN), ("output", W, CERTAIN),
    ]  # fmt: skip


def test_what_a_body_leaves_of_its_arguments_is_possible(world: World) -> None:
    @torch.library.custom_op("streamsan_tests::halves", mutates_args=("shown", "hidden"))
    def halves(shown: torch.Tensor, hidden: torch.Tensor, unused: torch.Tensor) -> None:  # noqa: ARG001
        shown.add_(1)
        hidden.numpy()[:] = 0

    arguments = [torch.ones(4) for _ in range(3)]
    with CudaMode(world.recorder):
        halves(*arguments)
    first, second = operations(world)
    assert first[0] == "aten::add_.Tensor"
    assert second[0] == "streamsan_tests::halves"
    assert second[2] == [("hidden", RW, POSSIBLE), ("unused", R, POSSIBLE)]


def test_a_mutated_argument_that_the_body_only_reads_is_possibly_written(world: World) -> None:
    @torch.library.custom_op("streamsan_tests::reads", mutates_args=("x",))
    def reads(x: torch.Tensor) -> None:
        x.sum()

    x = torch.ones(4)
    with CudaMode(world.recorder):
        reads(x)
    assert operations(world)[-1][::2] == ("streamsan_tests::reads", [("x", RW, POSSIBLE)])


def test_an_operator_within_another_shows_its_body_to_both(world: World) -> None:
    @torch.library.custom_op("streamsan_tests::inner", mutates_args=("x",))
    def inner(x: torch.Tensor) -> None:
        x.add_(1)

    @torch.library.custom_op("streamsan_tests::outer", mutates_args=("x",))
    def outer(x: torch.Tensor) -> None:
        inner(x)

    x = torch.ones(4)
    with CudaMode(world.recorder):
        outer(x)
    assert [name for name, _, _ in operations(world)] == ["aten::add_.Tensor"]
    assert world.recorder.local.body is None


def test_an_error_of_a_body_is_the_programs(world: World) -> None:
    @torch.library.custom_op("streamsan_tests::fails", mutates_args=())
    def fails(x: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        raise ValueError("no such shape")

    x = torch.ones(4)
    with CudaMode(world.recorder), pytest.raises(ValueError, match="no such shape"):
        fails(x)
    assert operations(world) == []
    assert world.recorder.local.body is None


def test_compiled_functions_are_compiled_under_the_mode(world: World) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: (x + 1).relu(), backend=backend)
    x = torch.ones(3)
    with CudaMode(world.recorder):
        result = compiled(x)
    assert result.tolist() == [2, 2, 2]
    assert len(graphs) == 1
    assert [name for name, _, _ in operations(world)] == ["aten::add.Tensor", "aten::relu"]


def test_higher_order_operators_run_as_their_parts(world: World) -> None:
    yes, x = torch.tensor(True), torch.ones(2)
    with CudaMode(world.recorder):
        result = torch.cond(yes, lambda t: t + 1, lambda t: t - 1, (x,))
    assert result.tolist() == [2, 2]
    assert "aten::add.Tensor" in [name for name, _, _ in operations(world)]


def test_a_higher_order_operator_for_each_device_finds_its_kernel(world: World) -> None:
    from torch._prims.rng_prims import run_and_save_rng_state

    x = torch.ones(2)
    with CudaMode(world.recorder):
        _, result = run_and_save_rng_state(torch.ops.aten.neg.default, x)
    assert result.tolist() == [-1, -1]
    assert "aten::neg" in [name for name, _, _ in operations(world)]

"""Graphs: what a replay computes, where its memory lies, and in which order replays run."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from tests.virtual.agree import on_virtual_gpu


@on_virtual_gpu()
def test_capturing_runs_nothing_and_a_replay_everything() -> None:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        x += 1
        y = x * 10
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [0] * 4
    for turn in (1, 2, 3):
        graph.replay()
        assert (x.tolist(), y.tolist()) == ([turn] * 4, [10 * turn] * 4)


@on_virtual_gpu()
def test_replays_read_the_captured_addresses() -> None:
    source = torch.arange(4.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = source * 2
    for value in (1.0, 5.0):
        source.fill_(value)
        graph.replay()
        assert result.tolist() == [2 * value] * 4


@on_virtual_gpu()
def test_launches_of_one_graph_run_one_behind_the_other() -> None:
    count = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        count += 1
        count *= 2
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for stream in streams:
        with torch.cuda.stream(stream):
            graph.replay()
    streams[-1].synchronize()
    assert count.cpu().tolist() == [14.0]


@on_virtual_gpu()
def test_forked_streams_are_part_of_the_graph() -> None:
    x = torch.ones(8, device="cuda")
    main, side = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=main):
        y = x + 1
        side.wait_stream(main)
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            z = y * 3
        main.wait_stream(side)
        total = (y + z).sum()
    assert not side.is_capturing()
    graph.replay()
    x.fill_(2)
    graph.replay()
    assert total.item() == 8 * 12


@on_virtual_gpu()
def test_the_pattern_of_a_captured_training_step_trains_like_the_eager_one() -> None:
    def losses(captured: bool) -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs = torch.zeros(6, 4, device="cuda")
        targets = torch.zeros(6, 2, device="cuda")

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph, found = torch.cuda.CUDAGraph(), []
        if captured:
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                loss = step()
        for number in range(5):
            inputs.copy_(torch.full((6, 4), 0.1 * number))
            targets.copy_(torch.ones(6, 2))
            if captured:
                graph.replay()
            else:
                loss = step()
            found.append(loss.item())
        return found

    assert losses(captured=True) == losses(captured=False)


@on_virtual_gpu("late", "program", "random:1")
def test_make_graphed_callables_gives_the_gradients_of_the_plain_module() -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).cuda()
    twin = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).cuda()
    twin.load_state_dict(plain.state_dict())
    sample = torch.randn(6, 4, device="cuda", requires_grad=True)
    graphed: Any = torch.cuda.make_graphed_callables(twin, (sample,))
    for _ in range(2):
        x = torch.randn(6, 4, device="cuda")
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        plain.zero_grad()
        twin.zero_grad()
        plain(a).square().sum().backward()
        graphed(b).square().sum().backward()
        assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]
        for one, other in zip(plain.parameters(), twin.parameters()):
            assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]


@on_virtual_gpu("late", "program", "random:1")
def test_each_replay_draws_random_numbers_anew_and_a_seed_brings_them_back() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh = torch.rand(64, device="cuda")
        kept = nn.functional.dropout(torch.ones(64, device="cuda"), 0.5)
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append((fresh.tolist(), kept.tolist()))
    assert len({str(found) for found in seen}) == 3
    for _ in range(2):
        torch.cuda.manual_seed(7)
        graph.replay()
        seen.append((fresh.tolist(), kept.tolist()))
    assert seen[-1] == seen[-2]
    assert all(0 <= value < 1 for value in seen[0][0])


@on_virtual_gpu("late", "program")
def test_replays_queued_together_keep_their_own_random_numbers() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh = torch.rand(8, device="cuda")
    copies = []
    for _ in range(3):
        graph.replay()
        copies.append(fresh.clone())
    assert len({str(copy.tolist()) for copy in copies}) == 3


@on_virtual_gpu("late", "program")
def test_memory_of_a_pool_is_the_graphs_while_it_lives() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.ones(1 << 18, device="cuda")
    address = out.data_ptr()
    del out
    others = [torch.empty(1 << 18, device="cuda") for _ in range(8)]
    assert address not in {other.data_ptr() for other in others}
    with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=graph.pool()):
        shared = torch.ones(1 << 18, device="cuda")
    assert shared.data_ptr() == address
    del shared, others
    torch.cuda.synchronize()
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < reserved
    held = torch.cuda.memory_reserved()
    graph.reset()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held


@on_virtual_gpu("late")
def test_the_generic_graph_captures_the_current_stream() -> None:
    x = torch.zeros(4, device="cuda")
    torch.accelerator.synchronize()
    graph = torch.accelerator.Graph()
    with torch.Stream(), graph:
        x += 1
    graph.replay()
    graph.replay()
    torch.accelerator.synchronize()
    assert x.tolist() == [2.0] * 4
    with TemporaryDirectory() as folder:
        graph.debug_dump(str(Path(folder) / "graph.dot"))
        assert "nodes=1" in (Path(folder) / "graph.dot").read_text(encoding="utf-8")


@on_virtual_gpu("late")
def test_a_graph_dropped_with_launches_outstanding_still_runs_them() -> None:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x += 1
    graph.replay()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    assert x.tolist() == [1.0] * 4


@on_virtual_gpu()
def test_external_events_belong_to_the_launches() -> None:
    x, seen = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    begin, end = torch.cuda.Event(external=True), torch.cuda.Event(external=True)
    side, reader = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        begin.wait()
        x += 1
        end.record()
    for turn in (1, 2):
        with torch.cuda.stream(side):
            x.mul_(10)
            begin.record()
        graph.replay()
        with torch.cuda.stream(reader):
            end.wait()
            seen.copy_(x)
        reader.synchronize()
        assert seen.tolist() == [[1.0] * 4, [11.0] * 4][turn - 1]
    assert end.query()

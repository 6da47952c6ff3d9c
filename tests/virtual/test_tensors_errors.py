"""Operators that fail when they run: the program learns of it where it next waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.virtual.agree import on_virtual_gpu

F: Any = torch.nn.functional  # its annotations leave out some of what it takes
LATE = ("late", "hold:default", "random:1", "random:2")


def _out_of_range() -> Any:
    return F.embedding(torch.tensor([9], device="cuda"), torch.ones(3, 2, device="cuda"))


def _wait_for_an_event() -> None:
    event = torch.cuda.Event()
    event.record()
    event.synchronize()


def _wait_for_another_stream() -> None:
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    other.synchronize()


def _waits() -> list[Callable[[], object]]:
    return [
        torch.cuda.synchronize,
        torch.cuda.current_stream().synchronize,
        _wait_for_an_event,
        lambda: torch.ones(2, device="cuda").cpu(),
        lambda: torch.ones(2, device="cuda").sum().item(),
        lambda: torch.ones(2, device="cuda").nonzero(),
        lambda: torch.ones(2, device="cuda")[torch.tensor([True, False], device="cuda")],
        _wait_for_another_stream,
    ]


@on_virtual_gpu(*LATE)
def test_a_failure_is_told_where_the_host_waits() -> None:
    for wait in _waits():
        result = _out_of_range()
        assert result.shape == (1, 2)
        torch.ones(3, device="cuda").mul_(2)  # enqueuing goes on as if nothing had happened
        with pytest.raises(RuntimeError, match="failed on the device: index out of range"):
            wait()
        torch.cuda.synchronize()  # told once
    assert torch.ones(3, device="cuda").sum().item() == 3


@on_virtual_gpu("program")
def test_a_failure_is_told_at_once() -> None:
    with pytest.raises(IndexError, match="index out of range"):
        _out_of_range()


@on_virtual_gpu(*LATE)
def test_every_failure_is_told() -> None:
    index, table = torch.tensor([9], device="cuda"), torch.ones(3, 2, device="cuda")
    for _ in range(2):
        F.embedding(index, table)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="index out of range"):
            torch.cuda.synchronize()
    torch.cuda.synchronize()


@on_virtual_gpu(*LATE)
def test_wrong_calls_raise_at_the_call() -> None:
    a: Any = torch.ones(2, 3, device="cuda")
    calls: tuple[Callable[[], object], ...] = (
        lambda: a @ a,
        lambda: a + torch.ones(4, device="cuda"),
        lambda: a.view(5),
        lambda: torch.cat([a, a[0]]),
        lambda: F.conv2d(a, a),
        lambda: F.linear(a, a.t()),
        lambda: a.t().addmm_(a, a),
        lambda: a[:1].expand(2, 3).add_(1),
        lambda: a[1:].flatten().add_(torch.ones(2, 2, device="cuda")),
        lambda: a.new_ones(8)[1:].add_(a.new_ones(8)[:3]),
        lambda: F.cross_entropy(a, torch.zeros(5, dtype=torch.int64, device="cuda")),
        lambda: F.layer_norm(a, (4,)),
        lambda: torch.bmm(a, a),
    )
    for call in calls:
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            call()
    torch.cuda.synchronize()


@on_virtual_gpu()
def test_overlapping_writes_are_refused_at_the_call() -> None:
    base = torch.arange(6.0, device="cuda")
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        base[1:].add_(base[:-1])
    torch.cuda.synchronize()
    base[:3].add_(base[3:])
    assert base.tolist() == [3, 5, 7, 3, 4, 5]


@on_virtual_gpu()
def test_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(1 << 33, device="cuda")
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty_like(kept)
    del kept
    assert torch.ones(3, device="cuda").sum().item() == 3


@on_virtual_gpu()
def test_what_cannot_be_put_off_waits_for_its_inputs() -> None:
    """Such an operator runs when it is called, after all that comes before it on its stream."""
    from torch.nn.utils import rnn

    side, here = torch.cuda.Stream(), torch.cuda.current_stream()
    left = torch.eye(3, device="cuda")
    sequences = torch.zeros(2, 4, 1, device="cuda")
    side.wait_stream(here)
    with torch.cuda.stream(side):
        left.mul_(2)
        sequences.add_(torch.arange(4.0, device="cuda")[:, None])
    here.wait_stream(side)
    sequences.mul_(10)
    solved = torch.linalg.lstsq(left, torch.ones(3, 1, device="cuda")).solution
    packed = rnn.pack_padded_sequence(sequences, torch.tensor([4, 2]), batch_first=True)
    chosen = sequences[:, :, 0].masked_select(sequences[:, :, 0] > 5)
    left.zero_()  # comes after the solution
    assert solved.flatten().tolist() == [0.5] * 3
    assert packed.data.flatten().tolist() == [0, 0, 10, 10, 20, 30]
    assert packed.batch_sizes.tolist() == [2, 2, 1, 1]
    assert chosen.tolist() == [10, 20, 30] * 2
    assert not left.any()

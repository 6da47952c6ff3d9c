"""The streaming engine gives torch's gradients, bit for bit, under every policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamsan.autograd import POLICIES
from tests.virtual import engine_programs
from tests.virtual.agree import differences, on_virtual_gpu, same_as_cpu
from tests.virtual.engine_programs import PROGRAMS, Calls


def _all_policies(device: str, *programs: Any) -> Any:
    """The results of programs under each policy; None is torch's engine as it is."""
    return {
        (program.__name__, policy): program(device, Calls(policy))
        for program in programs
        for policy in (None, *POLICIES)
    }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_on_plain_tensors(program: Any, policy: str) -> None:
    expected, got = program("cpu", Calls(None)), program("cpu", Calls(policy))
    assert not list(differences(expected, got))


@same_as_cpu
def test_roots_and_inputs(device: str) -> Any:
    e = engine_programs
    return _all_policies(device, e.accumulation, e.several_roots, e.chosen_inputs)


@same_as_cpu
def test_graphs_of_graphs(device: str) -> Any:
    e = engine_programs
    return _all_policies(device, e.higher_orders, e.own_functions, e.checkpoints)


@same_as_cpu
def test_hooks_views_and_failures(device: str) -> Any:
    e = engine_programs
    return _all_policies(device, e.hooks, e.views_and_writes, e.failures)


@same_as_cpu
def test_training_and_threads(device: str) -> Any:
    e = engine_programs
    return _all_policies(device, e.training, e.threads, e.host_and_device)


@on_virtual_gpu("program", "late", "random:1", devices=2)
def test_two_devices() -> None:
    """A graph over two devices, each with a side stream, under each policy."""

    def program(first: str, second: str, run: Calls) -> list[Any]:
        a, b = engine_programs.leaf(first, 4), engine_programs.leaf(second, 4, seed=2)
        here, there = engine_programs.Sides(first), engine_programs.Sides(second)
        with here(0):
            left = (a * 2).exp()
        moved = left.to(second)
        with there(0):
            right = (b * moved).sin()
        with there(1):
            more = moved * right
        run.backward([more.sum(), (left.to(second) * b).sum()])
        found = engine_programs.kept(a.grad, b.grad)
        return [value.cpu() for value in found]

    for policy in POLICIES:
        expected = program("cpu", "cpu", Calls(None))
        assert not list(differences(expected, program("cuda:0", "cuda:1", Calls(policy))))
    assert torch.cuda.device_count() == 2

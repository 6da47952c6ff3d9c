"""Random numbers of the device: the same seed gives the same numbers, whatever runs when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.virtual.agree import SCHEDULES, on_virtual_gpu

F: Any = torch.nn.functional  # its annotations leave out some of what it takes
_DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(50, device="cuda"),
    "randn": lambda: torch.randn(50, device="cuda"),
    "randint": lambda: torch.randint(0, 100, (50,), device="cuda").float(),
    "randperm": lambda: torch.randperm(50, device="cuda").float(),
    "normal": lambda: torch.normal(0.0, 1.0, (50,), device="cuda"),
    "normal_": lambda: torch.empty(50, device="cuda").normal_(1, 2),
    "uniform_": lambda: torch.empty(50, device="cuda").uniform_(-1, 1),
    "bernoulli": lambda: torch.bernoulli(torch.full((50,), 0.5, device="cuda")),
    "bernoulli_": lambda: torch.empty(50, device="cuda").bernoulli_(0.5),
    "exponential_": lambda: torch.empty(50, device="cuda").exponential_(),
    "multinomial": lambda: torch.multinomial(torch.ones(50, device="cuda"), 50).float(),
    "poisson": lambda: torch.poisson(torch.full((50,), 4.0, device="cuda")),
    "dropout": lambda: F.dropout(torch.ones(50, device="cuda")),
    "rand_like": lambda: torch.rand_like(torch.ones(50, device="cuda")),
    "rrelu": lambda: F.rrelu(torch.full((50,), -1.0, device="cuda"), training=True),
    "gumbel": lambda: F.gumbel_softmax(torch.ones(50, device="cuda")),
}


def _draw_all() -> dict[str, Any]:
    return {name: draw().tolist() for name, draw in _DRAWS.items()}


@on_virtual_gpu(*SCHEDULES)
def test_the_same_seed_gives_the_same_numbers() -> None:
    torch.manual_seed(5)
    first, host = _draw_all(), torch.rand(3).tolist()
    torch.manual_seed(5)
    assert _draw_all() == first
    assert torch.rand(3).tolist() == host  # the device's draws leave the host's generator alone
    assert all(_DRAWS[name]().tolist() != values for name, values in first.items())
    torch.cuda.manual_seed_all(5)
    assert _draw_all() == first


@on_virtual_gpu("late", "random:1", "random:2")
def test_the_order_of_execution_changes_nothing() -> None:
    torch.manual_seed(5)
    streams = [torch.cuda.Stream() for _ in range(3)]
    numbers = []
    for turn in range(9):
        with torch.cuda.stream(streams[turn % 3]):
            numbers.append(torch.rand(4, device="cuda"))
    streams[2].synchronize()
    torch.cuda.synchronize()
    torch.manual_seed(5)
    assert [x.tolist() for x in numbers] == [
        torch.rand(4, device="cuda").tolist() for _ in range(9)
    ]


@on_virtual_gpu("program", "late", devices=2)
def test_states_of_generators() -> None:
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    assert torch.rand(4, device="cuda").tolist() == first
    states = torch.cuda.get_rng_state_all()
    assert len(states) == 2
    with torch.random.fork_rng():
        inside = torch.rand(4, device="cuda").tolist(), torch.rand(4).tolist()
    after = torch.rand(4, device="cuda").tolist(), torch.rand(4).tolist()
    assert inside == after
    torch.cuda.set_rng_state_all(states)
    assert torch.rand(4, device="cuda").tolist() == after[0]
    torch.manual_seed(7)
    other = torch.rand(4, device="cuda:1").tolist()
    torch.cuda.manual_seed_all(7)
    assert torch.rand(4, device="cuda:1").tolist() == other
    assert torch.cuda.initial_seed() == 7


@on_virtual_gpu("program", "late")
def test_own_generators() -> None:
    import pytest

    generator = torch.Generator("cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    first = torch.rand(4, device="cuda", generator=generator).tolist()
    state = generator.get_state()
    second = torch.randn(4, device="cuda", generator=generator).tolist()
    generator.set_state(state)
    assert torch.randn(4, device="cuda", generator=generator).tolist() == second
    assert torch.rand(4, device="cuda", generator=generator.manual_seed(3)).tolist() == first
    assert generator.initial_seed() == 3
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(4, device="cuda", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(4, generator=generator)
    assert torch.rand(2, generator=torch.Generator().manual_seed(1)).shape == (2,)


@on_virtual_gpu("program", "late")
def test_statistics() -> None:
    torch.manual_seed(0)
    many = 200_000
    normal = torch.randn(many, device="cuda")
    assert abs(normal.mean().item()) < 0.02
    assert abs(normal.std().item() - 1) < 0.02
    uniform = torch.rand(many, device="cuda")
    assert 0 <= uniform.min().item() < uniform.max().item() < 1
    assert abs(uniform.mean().item() - 0.5) < 0.01
    kept = F.dropout(torch.ones(many, device="cuda"), 0.25)
    assert abs((kept == 0).float().mean().item() - 0.25) < 0.01
    assert abs(kept.mean().item() - 1) < 0.01
    assert not torch.equal(F.dropout(kept), F.dropout(kept))
    assert torch.equal(torch.randperm(100, device="cuda").sort().values.cpu(), torch.arange(100))

"""Random short sequences of operators, on the CPU and on the device under every schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.virtual.agree import SCHEDULES, differences, on_virtual_gpu

Step = Callable[[list[Any], int, int], Any]


def _index(tensor: torch.Tensor) -> torch.Tensor:
    return torch.tensor([3, 0, 2, 2]).to(tensor.device)


def _after(effect: object, value: torch.Tensor) -> torch.Tensor:
    """`value`, once `effect` has been evaluated for what it does."""
    del effect
    return value


def _gradient(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    leaf = first.detach().clone().requires_grad_()
    loss = (leaf.tanh() @ second.detach()).square().mean()
    (found,) = torch.autograd.grad(loss, leaf)
    return found


STEPS: dict[str, Step] = {
    "add": lambda t, a, b: t[a] + t[b],
    "mul": lambda t, a, b: t[a] * 0.5 * t[b].sigmoid(),
    "matmul": lambda t, a, b: (t[a] @ t[b]).tanh(),
    "in place": lambda t, a, b: t[a].add_(t[b].clone()).clamp_(-9, 9),
    "write a row": lambda t, a, b: _after(t[a].__setitem__(1, t[b][2].clone()), t[a]),
    "write a column": lambda t, a, b: _after(t[a][:, 0].copy_(t[b][:, 3].clone()), t[a]),
    "transpose": lambda t, a, _: t[a].t(),
    "view and write": lambda t, a, _: _after(t[a].t().narrow(0, 1, 2).mul_(-1), t[a]),
    "masked": lambda t, a, b: t[a].masked_fill_(t[b] > 0.5, 0.25),
    "mask": lambda t, a, b: t[a].index_put_((t[b] > 0.5,), torch.tensor(1.5).to(t[a].device)),
    "gather": lambda t, a, _: t[a].index_select(0, _index(t[a])),
    "index": lambda t, a, b: t[a][_index(t[b])],
    "scatter": lambda t, a, b: t[a].index_copy_(0, _index(t[a])[:3].unique(), t[b][:3].clone()),
    "sort": lambda t, a, _: t[a].sort(dim=1).values,
    "softmax": lambda t, a, _: t[a].softmax(-1),
    "cumsum": lambda t, a, _: t[a].cumsum(0).tanh(),
    "cat": lambda t, a, b: torch.cat([t[a][:2], t[b][2:]]),
    "where": lambda t, a, b: torch.where(t[a] > t[b], t[a], t[b]),
    "round trip": lambda t, a, b: t[a].cpu().to(t[b].device),
    "host value": lambda t, a, b: t[a] + t[b].sum().tanh().item(),
    "copy": lambda t, a, b: t[a].copy_(t[b].clone()),
    "half": lambda t, a, _: t[a].to(torch.bfloat16).float(),
    "forget": lambda t, a, b: _after(t.__setitem__(a, torch.zeros_like(t[b])), t[b]),
    "norm": lambda t, a, _: torch.nn.functional.layer_norm(t[a], (4,)),
    "gradient": lambda t, a, b: _gradient(t[a], t[b]),
}

PROGRAMS = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2), st.integers(0, 2)), max_size=25
)


def _run(program: Any, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(4, 4, generator=generator).to(device) for _ in range(3)]
    for turn, (name, first, second) in enumerate(program):
        tensors[turn % 3] = STEPS[name](tensors, first, second)
    return tensors


@on_virtual_gpu(*SCHEDULES)
def test_sequences_give_the_same_on_both() -> None:
    @settings(
        max_examples=40,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(PROGRAMS)
    def agree(program: Any) -> None:
        found = list(differences(_run(program, "cpu"), _run(program, "cuda")))
        assert not found, (program, found)

    agree()

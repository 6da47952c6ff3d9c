"""``backward`` and ``grad`` of torch with one argument more: the policy."""

from __future__ import annotations

from typing import Any

import torch

from streamsan.autograd.engine import install
from streamsan.autograd.policy import TORCH, Policy, parse_policy


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
    *,
    policy: str | Policy = TORCH,
) -> None:
    """``torch.autograd.backward`` under an engine policy, on a real GPU, a virtual one or none.

    `policy` is the name of one of `POLICIES`, or a `Policy`.

    Raises what torch raises, and UsageError for an unknown policy, or one that a CUDA graph that
    is being captured cannot hold.
    """
    with install().under(parse_policy(policy)):
        torch.autograd.backward(
            tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs
        )


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    *,
    policy: str | Policy = TORCH,
) -> Any:
    """``torch.autograd.grad`` under an engine policy; raises as `backward` does."""
    with install().under(parse_policy(policy)):
        return torch.autograd.grad(
            outputs,
            inputs,
            grad_outputs,
            retain_graph,
            create_graph,
            only_inputs,
            allow_unused,
            is_grads_batched,
            materialize_grads,
        )

"""The streaming backward engine: which streams a backward pass uses, and what it orders.

torch's own engine runs the nodes, so that gradients, hooks, errors and everything else are those of
torch, bit for bit. What this package decides is where events are recorded and who waits for them,
by one of the `POLICIES`: those of torch's releases, from the one without streams to today's.

::

    streamsan.autograd.backward(loss, policy="torch-1.6")
    (gradient,) = streamsan.autograd.grad(loss, [weight], policy="torch-1.9")

    with streamsan.autograd.plans() as found:
        loss.backward()
    print(found)  # each pass: its nodes, their streams, the events between them
    found.last.svg()

`Machine` is what the engine needs of a device: real CUDA devices (`CudaMachine`) and the virtual
GPU have one each. Plain CPU tensors have no streams, and every policy does nothing for them.

Importing this package imports no framework: torch is loaded with the first name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsan.autograd.picture import picture
from streamsan.autograd.plan import Plan, Plans, collect, plans, wanted
from streamsan.autograd.policy import POLICIES, TORCH, Policy, parse_policy

__all__ = [
    "POLICIES",
    "TORCH",
    "Engine",
    "Machine",
    "Plan",
    "Plans",
    "Policy",
    "backward",
    "collect",
    "grad",
    "install",
    "parse_policy",
    "picture",
    "plans",
    "wanted",
]

if TYPE_CHECKING:
    from streamsan.autograd.calls import backward, grad
    from streamsan.autograd.engine import Engine, install
    from streamsan.autograd.machine import Machine

_LAZY = {"backward": "calls", "grad": "calls", "Engine": "engine", "install": "engine"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "Machine":
        return import_module("streamsan.autograd.machine").Machine
    if name in _LAZY:
        return getattr(import_module(f"streamsan.autograd.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

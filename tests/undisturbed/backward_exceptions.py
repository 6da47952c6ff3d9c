"""Exceptions from the program's code inside of a backward pass, and backward passes after them."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

device = sys.argv[1]


class MineError(Exception):
    """An exception of the program."""


class Failing(torch.autograd.Function):
    """Doubles; its backward fails after it has computed."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.save_for_backward(tensor)
        return tensor * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (tensor,) = ctx.saved_tensors
        raise MineError([(gradient * tensor).shape, "in backward"])


def leaf() -> Tensor:
    return torch.ones(8, device=device, requires_grad=True)


def fail(value: Any) -> Any:
    raise MineError(type(value).__name__)


def function() -> None:
    apply: Any = Failing.apply
    apply(leaf() * 3).sum().backward()


def hook() -> None:
    tensor = leaf()
    tensor.register_hook(lambda gradient: fail(gradient * 2))
    (tensor * 3).sum().backward()


def node_hook() -> None:
    product = leaf() * 3
    node: Any = product.grad_fn
    node.register_hook(lambda inputs, _: fail(inputs))
    product.sum().backward()


def after_accumulation() -> None:
    tensor = leaf()
    tensor.register_post_accumulate_grad_hook(fail)
    (tensor * 3).sum().backward()


def module_hook() -> None:
    linear = torch.nn.Linear(8, 8, device=device)
    linear.register_full_backward_hook(lambda *_: fail(torch.ones(3, device=device) + 1))
    linear(leaf()).sum().backward()


def saved_tensors() -> None:
    def unpack(_: Any) -> Tensor:
        failed: Tensor = fail(torch.zeros(2, device=device) + 1)
        return failed

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        loss = (leaf() ** 2).sum()
    loss.backward()


def checkpointed() -> None:
    calls = []

    def part(tensor: Tensor) -> Tensor:
        calls.append(1)
        result: Tensor = tensor * 2 if len(calls) == 1 else fail(tensor * 2)
        return result

    checkpoint(part, leaf(), use_reentrant=False).sum().backward()


def twice() -> None:
    loss = (leaf() ** 2).sum()
    loss.backward()
    loss.backward()


def in_thread() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            function()
        except MineError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise caught[0]


SITUATIONS: list[Callable[[], None]] = [
    function,
    hook,
    node_hook,
    after_accumulation,
    module_hook,
    saved_tensors,
    checkpointed,
    twice,
    in_thread,
]

for situation in SITUATIONS:
    try:
        situation()
    except Exception as error:
        own = [f.name for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
        print(situation.__name__, type(error).__name__, str(error).splitlines()[0], own)
    tensor = leaf()
    (tensor * 3).sum().backward()
    assert tensor.grad is not None
    print("the next pass:", tensor.grad.tolist())

"""Programs with backward passes, to be run under each engine policy and held against torch.

Each takes a device, ``cpu`` or ``cuda``, and `Calls`, and returns what is to be equal. All order
what they do by themselves, so that they have one result under every policy. Their forward passes
run on several streams where there are streams.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.checkpoint import checkpoint

from streamsan import autograd


class Calls:
    """``backward`` and ``grad`` under a policy, or torch's own where there is none."""

    def __init__(self, policy: str | None) -> None:
        self._policy = policy

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """As ``torch.autograd.backward``."""
        if self._policy is None:
            torch.autograd.backward(*args, **kwargs)
        else:
            autograd.backward(*args, **kwargs, policy=self._policy)

    def grad(self, *args: Any, **kwargs: Any) -> Any:
        """As ``torch.autograd.grad``."""
        if self._policy is None:
            return torch.autograd.grad(*args, **kwargs)
        return autograd.grad(*args, **kwargs, policy=self._policy)


class Sides:
    """Side streams of a device; none on the CPU."""

    def __init__(self, device: str, count: int = 2) -> None:
        cuda = torch.device(device).type == "cuda"
        self._streams = [torch.cuda.Stream(device) if cuda else None for _ in range(count)]

    @contextmanager
    def __call__(self, number: int) -> Iterator[None]:
        """The block runs on a side stream, after what is enqueued, and before what follows."""
        side = self._streams[number]
        if side is None:
            yield
            return
        outer = torch.cuda.current_stream(side.device)
        side.wait_stream(outer)
        with torch.cuda.stream(side):
            yield
        outer.wait_stream(side)


def values(device: str, *shape: int, seed: int = 1) -> Any:
    """The same random numbers on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def leaf(device: str, *shape: int, seed: int = 1) -> Any:
    """Random numbers that want a gradient."""
    return values(device, *shape, seed=seed).requires_grad_()


def kept(*tensors: Any) -> list[Any]:
    """Copies of gradients, None where there is none."""
    return [None if tensor is None else tensor.detach().clone() for tensor in tensors]


def _two_towers(device: str, seed: int = 1) -> tuple[list[Any], Any]:
    """Leaves, and a loss whose graph spans the current stream and two others."""
    side = Sides(device)
    a, b, shared = leaf(device, 6, seed=seed), leaf(device, 6, seed=2), leaf(device, 6, seed=3)
    with side(0):
        left = (a * shared).tanh()
    with side(1):
        right = (b * shared).sigmoid() * left
    return [a, b, shared], (left + right * shared).sum()


def accumulation(device: str, run: Calls) -> Any:
    """Gradients are added to those that are there, also through a graph that is kept."""
    leaves, loss = _two_towers(device)
    run.backward(loss, retain_graph=True)
    found = kept(*(v.grad for v in leaves))
    run.backward(loss, values(device, 1, seed=5).sum(), retain_graph=True)
    run.backward(loss)
    return [*found, *kept(*(v.grad for v in leaves))]


def several_roots(device: str, run: Calls) -> Any:
    """Several roots, one of them twice, a leaf, and an edge of the graph."""
    side = Sides(device)
    a, b = leaf(device, 4), leaf(device, 4, seed=2)
    middle = a * b
    with side(0):
        first = middle.exp()
    with side(1):
        second = (middle * 3).cos()
    ones = torch.ones(4, device=device)
    run.backward([first, second, second, a], [ones, ones * 2, ones * 5, ones * 7])
    found = kept(a.grad, b.grad)
    with side(1):
        third = (a + b).sin()
    edge: Any = torch.autograd.graph.get_gradient_edge(third)
    run.backward([edge, first.detach().requires_grad_()], [ones, ones])
    return [*found, *kept(a.grad, b.grad)]


def chosen_inputs(device: str, run: Calls) -> Any:
    """``inputs=`` and ``grad``: leaves, results in between, unused ones, edges."""
    (a, b, shared), loss = _two_towers(device)
    run.backward(loss, retain_graph=True, inputs=[b])
    found = kept(a.grad, b.grad, shared.grad)
    found += kept(*run.grad(loss, [a, shared], retain_graph=True))
    unused = leaf(device, 2, seed=9)
    found += kept(*run.grad(loss, [a, unused], retain_graph=True, allow_unused=True))
    found += kept(*run.grad(loss, (unused,), materialize_grads=True, retain_graph=True))
    side = Sides(device)
    with side(0):
        middle = a * 2
    with side(1):
        end = middle.exp().sum()
    edge: Any = torch.autograd.graph.get_gradient_edge(middle)
    found += kept(*run.grad(end, [middle, edge, a], retain_graph=True))
    return found


def higher_orders(device: str, run: Calls) -> Any:
    """Gradients of gradients: by ``create_graph``, and a penalty on a gradient's norm."""
    side = Sides(device)
    x = leaf(device, 5)
    with side(0):
        y = x.pow(4)
    with side(1):
        z = (y * x.sin()).sum()
    (first,) = run.grad(z, x, create_graph=True)
    with side(0):
        norm = first.square().sum()
    (second,) = run.grad(norm, x, create_graph=True)
    with side(1):
        total = second.cos().sum() + norm
    run.backward(total)
    found = kept(first, second, x.grad)
    w = leaf(device, 3, seed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: w, its gradient and the graph are a cycle
        run.backward(w.pow(3).sum(), create_graph=True)
    gradient, w.grad = w.grad, None
    with side(0):
        penalty = gradient.square().sum()
    run.backward(penalty)
    return [*found, *kept(gradient, w.grad)]


class Scaled(torch.autograd.Function):
    """Two results from two tensors and a number; one gradient is None."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, by: float) -> Any:
        """Scale both."""
        ctx.save_for_backward(x)
        ctx.by = by
        ctx.set_materialize_grads(False)
        return x * by, y + x

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        """Either gradient may be missing."""
        (x,) = ctx.saved_tensors
        total = torch.zeros_like(x)
        total = total if first is None else total + first * ctx.by
        return total if second is None else total + second, None, None


def own_functions(device: str, run: Calls) -> Any:
    """A Function of the user's, with gradients that are None on both sides."""
    side = Sides(device)
    x, y = leaf(device, 4), leaf(device, 4, seed=2)
    scaled: Any = Scaled.apply
    with side(0):
        first, second = scaled(x, y, 2.5)
    with side(1):
        loss = (first.exp() * y).sum()
    run.backward(loss, retain_graph=True)
    found = kept(x.grad, y.grad)
    with side(0):
        both = (second * first).sum()
    run.backward(both)
    return [*found, *kept(x.grad, y.grad)]


def checkpoints(device: str, run: Calls) -> Any:
    """Passes inside of a pass (reentrant checkpoints), and forward passes inside of one."""
    found: list[Any] = []
    for reentrant in (False, True):
        torch.manual_seed(1)
        side = Sides(device)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).to(device)
        x = leaf(device, 3, 4)
        with side(0):
            hidden = checkpoint(model, x, use_reentrant=reentrant)
        with side(1):
            again: Any = checkpoint(lambda h: (h * 2).sigmoid(), hidden, use_reentrant=reentrant)
            loss = (again * hidden).sum()
        run.backward(loss)
        found += kept(x.grad, *(p.grad for p in model.parameters()))
    return found


def hooks(device: str, run: Calls) -> Any:
    """Hooks of tensors, nodes, accumulators, several gradients, and of the end of the pass."""
    side = Sides(device)
    seen: list[Any] = []
    a, b = leaf(device, 4), leaf(device, 4, seed=2)
    with side(0):
        middle = a * b
    with side(1):
        output = middle.exp().sum()

    def note(name: str) -> Callable[..., None]:
        return lambda *what: seen.append((name, _copies(what)))

    middle.register_hook(lambda g: g.clamp(-2, 2))
    middle.retain_grad()
    output.register_hook(note("root"))
    a.register_hook(lambda g: g * 3)
    b.register_post_accumulate_grad_hook(lambda p: note("accumulated")(p.grad))
    output.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    middle.grad_fn.register_hook(note("node"))
    middle.grad_fn.register_prehook(note("before node"))
    torch.autograd.graph.register_multi_grad_hook([a, b], note("both"))

    def at_end(_: Any) -> None:
        engine: Any = Variable._execution_engine
        engine.queue_callback(lambda: seen.append(("end", kept(a.grad, b.grad))))

    output.register_hook(at_end)
    run.backward(output)
    return [seen, *kept(a.grad, b.grad, middle.grad)]


def _copies(what: Any) -> Any:
    if isinstance(what, (list, tuple)):
        return [_copies(value) for value in what]
    return None if what is None else what.detach().clone()


def views_and_writes(device: str, run: Calls) -> Any:
    """Views, writes in place to views and to their base, on several streams."""
    side = Sides(device)
    x = leaf(device, 4, 4)
    with side(0):
        y = x * 2
        y[1] = 0
        y[:, 2].mul_(3)
    with side(1):
        y.add_(1).mul_(0.5)
        z = y.view(2, 8)[:, ::2]
    with side(0):
        z.add_(y.reshape(2, 8)[:, 1::2].clone())
        first, second = y.chunk(2, 1)
    run.backward((first.cos().sum() * z).sum() + second.exp().sum())
    return [*kept(x.grad), *kept(y, z)]


def training(device: str, run: Calls) -> Any:
    """Steps of a model whose layers are on different streams, with fresh gradients each time."""
    torch.manual_seed(3)
    side = Sides(device)
    first, second = nn.Linear(4, 8).to(device), nn.Linear(8, 2).to(device)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        with side(0):
            hidden = first(values(device, 3, 4, seed=step)).tanh()
        with side(1):
            loss = second(hidden).square().mean()
        run.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return [*kept(*losses), *kept(*parameters)]


def threads(device: str, run: Calls) -> Any:
    """Passes of several threads at once, over graphs of their own and over leaves made here."""
    towers = [_two_towers(device, seed) for seed in (1, 5, 7)]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        leaves, loss = towers[number]
        run.backward(loss)
        own, other = _two_towers(device, number + 11)
        run.backward(other)
        found[number] = kept(*(v.grad for v in leaves), *(v.grad for v in own))

    started = [threading.Thread(target=work, args=(number,)) for number in range(len(towers))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return [found[number] for number in sorted(found)]


def failures(device: str, run: Calls) -> Any:
    """What torch raises is raised, and the next pass is as if nothing had been."""
    found: list[Any] = []
    (a, _, _), loss = _two_towers(device)
    run.backward(loss)
    broken = a.exp()
    broken.add_(1)
    found += [_refused(lambda: run.backward(loss)), _refused(lambda: run.backward(broken.sum()))]
    side = Sides(device)
    with side(0):
        failing = a * 2
        failing.register_hook(_fail)
    with side(1):
        end = failing.exp().sum()
    try:
        run.backward(end)
    except ZeroDivisionError as error:
        found.append(str(error))
    a.grad = None
    (again, _, _), loss = _two_towers(device)
    run.backward(loss)
    return [*found, *kept(again.grad)]


def _refused(bad: Callable[[], None]) -> str:
    try:
        bad()
    except RuntimeError as error:
        return str(error).split(":")[0]
    return "nothing was raised"


def _fail(_: Any) -> None:
    raise ZeroDivisionError("the hook's own")


def host_and_device(device: str, run: Calls) -> Any:
    """A graph that begins on the host, goes through a device, and ends on the host."""
    side = Sides(device)
    x = leaf("cpu", 4)
    with side(0):
        there = (x * 2).to(device)
    with side(1):
        squared = there.square()
        back = squared.cpu()
    run.backward((back * x).sum())
    return kept(x.grad)


PROGRAMS = (
    accumulation,
    several_roots,
    chosen_inputs,
    higher_orders,
    own_functions,
    checkpoints,
    hooks,
    views_and_writes,
    training,
    threads,
    failures,
    host_and_device,
)
"""All of them."""

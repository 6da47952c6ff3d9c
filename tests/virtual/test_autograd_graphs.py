"""Gradients: graphs, hooks, own functions, checkpoints, and functional transforms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.virtual.agree import on_virtual_gpu, raised, same_as_cpu

F: Any = torch.nn.functional  # its annotations leave out some of what it takes


def _random(device: str, *shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def _model(device: str, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)


def _gradients(model: nn.Module) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@same_as_cpu
def test_ways_to_call_backward(device: str) -> Any:
    model, x = _model(device), _random(device, 3, 4).requires_grad_()
    found: list[Any] = []
    model(x).sum().backward()
    found.append((_gradients(model), x.grad))
    model(x).backward(torch.ones(3, 2, device=device))  # accumulates
    found.append(_gradients(model))
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    found += [_gradients(model), raised(loss.backward)[0]]
    model.zero_grad()
    found.append(_gradients(model))
    output = model(x)
    found.append(torch.autograd.grad(output.sum(), [x, *model.parameters()], retain_graph=True))
    found.append(torch.autograd.grad(output, x, torch.ones_like(output)))
    torch.autograd.backward([model(x).sum(), x.square().sum()])
    found += [_gradients(model), x.grad]
    found.append(torch.autograd.grad(x.sum(), [model[0].weight], allow_unused=True))
    found.append(torch.autograd.grad(x[0].sum(), x, is_grads_batched=False, materialize_grads=True))
    model(x).sum().backward(inputs=[model[2].bias])
    return [*found, _gradients(model)]


@same_as_cpu
def test_gradients_of_gradients(device: str) -> Any:
    model, x = _model(device), _random(device, 3, 4).requires_grad_()
    (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    penalty = (first.norm(2, dim=1) - 1).square().mean()
    penalty.backward()
    found = [first, penalty, _gradients(model), x.grad]
    y = _random(device, 3).requires_grad_()
    for _ in range(3):
        y2 = y.pow(4).sum()
        (g1,) = torch.autograd.grad(y2, y, create_graph=True)
        (g2,) = torch.autograd.grad(g1.sum(), y, create_graph=True)
        (g3,) = torch.autograd.grad(g2.sum(), y)
        found += [g1, g2, g3]
    return found


@same_as_cpu
def test_in_place_and_views(device: str) -> Any:
    x = _random(device, 4, 4).requires_grad_()
    y = x * 2
    y[1] = 0
    y[:, 2].mul_(3)
    y.add_(1).relu_()
    z = y.view(2, 8)[:, ::2]
    w = torch.cat([z, z.clone().fill_(1)], 1)
    w.chunk(2, 1)[0].sum().backward()
    saved = x.exp()
    saved.add_(1)
    broken = raised(lambda: saved.sum().backward())
    leaf = raised(lambda: x.add_(1))
    with torch.no_grad():
        x.add_(1)
    detached = (x * 2).detach()
    t = _random(device, 3).requires_grad_()
    u = t.expand(2, 3).clone()
    u.index_put_((torch.tensor([0], device=device),), t * 5)
    u.sum().backward()
    return x.grad, broken, leaf, x, detached, t.grad, y, w


class Cube(torch.autograd.Function):
    """x cubed; its gradient is computed by hand, and can be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x**3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return gradient * ctx.scale * 3 * x**2, None


class Twice(torch.autograd.Function):
    """Two results, one written in place, one not differentiable."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return x, signs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        assert ctx.needs_input_grad == (True,)
        return gradient * 2


_cube: Any = Cube.apply
_twice: Any = Twice.apply


@same_as_cpu
def test_own_functions(device: str) -> Any:
    x = _random(device, 3).requires_grad_()
    y = _cube(x, 2.0)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    doubled, signs = _twice(x * 1)
    doubled.sum().backward()
    check = torch.autograd.gradcheck(
        lambda v: _cube(v, 1.0), _random(device, 3).double().requires_grad_()
    )
    return y, first, second, doubled, signs, x.grad, check


@same_as_cpu
def test_hooks(device: str) -> Any:
    model, x = _model(device), _random(device, 3, 4).requires_grad_()
    seen: list[Any] = []
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 2,))
    model.register_forward_hook(lambda _, __, output: output + 1)
    model[0].register_full_backward_pre_hook(lambda _, grads: (grads[0] * 0.5,))
    model[2].register_full_backward_hook(
        lambda _, gi, go: seen.append((gi[0].clone(), go[0].clone()))
    )
    model[0].weight.register_hook(lambda g: seen.append(g.clone()))
    model[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    middle = x * 3
    middle.register_hook(lambda g: g.clamp(-1, 1))
    middle.retain_grad()
    output = model(middle)
    output.grad_fn.register_hook(
        lambda gi, _: seen.append([v.clone() for v in gi if v is not None])
    )
    output.grad_fn.register_prehook(lambda go: (go[0] * 2,))
    handle = x.register_hook(lambda g: g * 100)
    handle.remove()
    output.sum().backward()
    torch.autograd.graph.register_multi_grad_hook([x], lambda g: seen.append(g[0].clone()))
    model(x).sum().backward()
    return seen, x.grad, middle.grad, _gradients(model)


@same_as_cpu
def test_saved_tensor_hooks(device: str) -> Any:
    model, x = _model(device), _random(device, 3, 4).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        model(x).square().sum().backward()
    first = _gradients(model)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        model(x).square().sum().backward()
    return first, _gradients(model), x.grad


@on_virtual_gpu()
def test_saved_tensors_in_pinned_memory() -> None:
    model, x = _model("cuda"), _random("cuda", 3, 4)
    model(x).square().sum().backward()
    plain = _gradients(model)
    model.zero_grad()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        model(x).square().sum().backward()
    for one, other in zip(plain, _gradients(model), strict=True):
        torch.testing.assert_close(one, other)


@same_as_cpu
def test_checkpoints(device: str) -> Any:
    found = []
    for reentrant in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()).to(device)
        x = _random(device, 3, 4).requires_grad_()
        output = checkpoint(model, x, use_reentrant=reentrant)
        output.square().sum().backward()
        again = checkpoint_sequential(model, 2, x, use_reentrant=reentrant)
        again.sum().backward()
        found.append((output, again, x.grad, _gradients(model)))
    return found


@on_virtual_gpu()
def test_checkpoints_draw_the_same_numbers_again() -> None:
    for reentrant in (False, True):
        x: Any = torch.ones(1000, device="cuda", requires_grad=True)
        kept = checkpoint(lambda v: F.dropout(v, 0.5), x, use_reentrant=reentrant)
        kept.sum().backward()
        assert torch.equal(kept, x.grad)


@same_as_cpu
def test_gradients_across_devices(device: str) -> Any:
    x = _random("cpu", 3, 4).requires_grad_()
    first, second = _model("cpu"), _model(device, 5)
    hidden = first(x).to(device)
    output = second(torch.cat([hidden, hidden], 1)).cpu()
    loss = F.mse_loss(output, torch.ones(3, 2))
    loss.backward()
    y = _random(device, 3).requires_grad_()
    z = y.cpu().double().to(device).half().float()
    (z * 2).sum().backward()
    w = torch.zeros(3)
    w.copy_(y * 3)
    w.sum().backward()
    back = torch.zeros(3, device=device).copy_(x[0, :3])
    back.sum().backward()
    return x.grad, _gradients(first), _gradients(second), loss, y.grad


@same_as_cpu
def test_modes(device: str) -> Any:
    model, x = _model(device), _random(device, 3, 4)
    with torch.no_grad():
        quiet = model(x)
    with torch.inference_mode():
        frozen = model(x)
        grown = frozen + 1
    with torch.set_grad_enabled(False):
        off = model(x)
    with torch.no_grad(), torch.enable_grad():
        on = model(x)
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    model(x).sum().backward()
    refused = raised(lambda: model(x).mul_(frozen).sum().backward())[0]
    return (
        quiet,
        frozen.is_inference(),
        frozen.clone(),
        grown.clone(),
        off,
        on,
        _gradients(model),
        refused,
    )


@same_as_cpu
def test_anomaly_mode(device: str) -> Any:
    x = torch.tensor([-1.0, 4.0], device=device, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        problem = raised(lambda: (x.sqrt() * 0).sum().backward())
        (x * 2).sum().backward()
    return problem, x.grad


@same_as_cpu
def test_functional_derivatives(device: str) -> Any:
    from torch.autograd import forward_ad, functional

    x, v = _random(device, 3), _random(device, 3, seed=2)

    def f(t: torch.Tensor) -> torch.Tensor:
        return t.sin() * t.sum()

    with forward_ad.dual_level():
        dual = f(forward_ad.make_dual(x, v))
        tangent = forward_ad.unpack_dual(dual).tangent.clone()
    return [
        functional.jacobian(f, x),
        functional.hessian(lambda t: f(t).sum(), x),
        functional.vjp(f, x, v),
        functional.jvp(f, x, v),
        functional.hvp(lambda t: f(t).sum(), x, v),
        functional.jacobian(f, x, vectorize=True),
        tangent,
    ]


@same_as_cpu
def test_function_transforms(device: str) -> Any:
    from torch.func import functional_call, grad, grad_and_value, jacfwd, jacrev, jvp, vjp, vmap

    x, v = _random(device, 3), _random(device, 3, seed=2)
    batch = _random(device, 5, 4, seed=3)
    model = _model(device)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: Any, row: Any) -> Any:
        return functional_call(model, weights, (row,)).square().sum()

    value, pull = vjp(torch.sin, x)[:2]
    return [
        grad(lambda t: t.sin().sum())(x),
        vmap(torch.dot, (0, None))(batch[:, :3], x),
        jacrev(torch.sin)(x),
        jacfwd(torch.sin)(x),
        jvp(torch.sin, (x,), (v,)),
        value,
        pull(v),
        grad_and_value(lambda t: (t**3).sum())(x),
        grad(lambda t: grad(lambda u: (u**3).sum())(t).sum())(x),
        vmap(grad(loss), (None, 0))(parameters, batch),
        vmap(lambda r: r.cumsum(0))(batch),
        vmap(lambda r: F.softmax(r, 0), out_dims=1)(batch),
    ]


@same_as_cpu
def test_transforms_run_backward_on_the_streams_of_the_forward_pass(device: str) -> Any:
    """A1 to A4 hold under transforms as well: nothing here joins the side stream."""
    from torch.func import grad, jacrev, vjp, vmap

    side = torch.cuda.Stream(device) if device != "cpu" else None
    x, rows = _random(device, 3), _random(device, 2, 3, seed=2)
    leaf, eye = _random(device, 3, seed=4).requires_grad_(), torch.eye(3, device=device)
    if side is not None:
        side.wait_stream(torch.cuda.current_stream())

    def wave(t: Any) -> Any:
        with torch.cuda.stream(side):
            y = t.sin()
            return y.cos() * y

    def total(t: Any) -> Any:
        with torch.cuda.stream(side):
            return wave(t).sum()

    def twice(t: Any) -> Any:
        return grad(total)(t).square().sum()

    middle = wave(leaf)
    return [
        grad(total)(x),
        grad(twice)(x),
        jacrev(wave)(x),
        vjp(wave, x)[1](eye[0]),
        vmap(grad(total))(rows),
        vmap(lambda v: torch.autograd.grad(middle, leaf, v, retain_graph=True))(eye),
        torch.autograd.grad(middle, leaf, eye, is_grads_batched=True),
        torch.autograd.functional.jacobian(wave, x, vectorize=True),
    ]


@same_as_cpu
def test_many_small_graphs(device: str) -> Any:
    weight = _random(device, 4, 4).requires_grad_()
    state = torch.zeros(4, device=device)
    losses = []
    for step in range(20):
        state = torch.tanh(weight @ state + step)
        if step % 5 == 4:
            loss = state.square().sum()
            loss.backward()
            losses.append(loss.detach())
            state = state.detach()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
    return losses, weight, state

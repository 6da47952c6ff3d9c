"""Whole training programs: optimizers, schedulers, mixed precision, and models that move."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.virtual.agree import on_virtual_gpu, same_as_cpu

F: Any = torch.nn.functional  # its annotations leave out some of what it takes


def _random(device: str, *shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def _model(device: str) -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(device)


def _train(device: str, make: Callable[[Any], Any], steps: int = 4, clip: float = 0.0) -> Any:
    model = _model(device)
    optimizer = make(model.parameters())
    losses = []
    for step in range(steps):
        x = _random(device, 5, 4, seed=step)
        y = (torch.arange(5) % 3).to(device)

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if clip:
                losses.append(nn.utils.clip_grad_norm_(model.parameters(), clip))
            return loss

        losses.append(optimizer.step(closure).detach())
    return losses, model.state_dict(), optimizer.state_dict()


@same_as_cpu
def test_optimizers(device: str) -> Any:
    o = torch.optim
    found = {}
    kind: Any
    options: dict[str, bool]
    for name, make in {
        "sgd": lambda p: o.SGD(p, 0.1),
        "momentum": lambda p: o.SGD(p, 0.1, 0.9, nesterov=True),
        "decay": lambda p: o.SGD(p, 0.1, weight_decay=0.1, maximize=True),
        "adagrad": lambda p: o.Adagrad(p, 0.1, foreach=True),
        "rmsprop": lambda p: o.RMSprop(p, 0.01, momentum=0.9, centered=True, foreach=True),
        "adadelta": lambda p: o.Adadelta(p, foreach=True),
        "adamax": lambda p: o.Adamax(p, foreach=True),
        "nadam": lambda p: o.NAdam(p, foreach=True),
        "radam": lambda p: o.RAdam(p, foreach=True),
        "asgd": lambda p: o.ASGD(p, foreach=False),
        "rprop": lambda p: o.Rprop(p, foreach=True),
        "lbfgs": lambda p: o.LBFGS(p, max_iter=3),
    }.items():
        found[name] = _train(device, make)
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
            for amsgrad in (False, True):
                found[f"{kind.__name__} {options} {amsgrad}"] = _train(
                    device, partial(kind, lr=0.01, amsgrad=amsgrad, **options)
                )
    return found


@same_as_cpu
def test_clipping_and_schedules(device: str) -> Any:
    found = [_train(device, lambda p: torch.optim.SGD(p, 0.1, foreach=False), clip=0.5)]
    model = _model(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedules = torch.optim.lr_scheduler
    chain = schedules.SequentialLR(
        optimizer,
        [
            schedules.LinearLR(optimizer, 0.1, total_iters=2),
            schedules.CosineAnnealingLR(optimizer, 4),
        ],
        [2],
    )
    plateau = schedules.ReduceLROnPlateau(optimizer, patience=0)
    for step in range(5):
        optimizer.zero_grad()
        loss = model(_random(device, 5, 4, seed=step)).square().mean()
        loss.backward()
        found.append(nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        chain.step()
        plateau.step(loss)
        found.append((loss.detach(), optimizer.param_groups[0]["lr"]))
    return found, model.state_dict()


@same_as_cpu
def test_mixed_precision(device: str) -> Any:
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        model = _model(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
        for step in range(4):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype):
                output = model(_random(device, 5, 4, seed=step))
                loss = output.float().square().mean()
            found += [output.dtype, loss.detach()]
            if step == 2:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            found.append(scaler.get_scale())
        found.append(model.state_dict())
    with torch.autocast(device, dtype=torch.bfloat16):
        left = _random(device, 3, 3)
        inner = left @ left
        with torch.autocast(device, enabled=False):
            outer = left @ left
    return found, inner, outer, torch.is_autocast_enabled(device)


@same_as_cpu
def test_accumulation_averages_and_tied_weights(device: str) -> Any:
    model = _model(device)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    twin = copy.deepcopy(model)
    tied = nn.Linear(8, 4, bias=False).to(device)
    tied.weight = model[0].weight
    optimizer = torch.optim.AdamW([*model.parameters()], 0.01, foreach=True)
    for step in range(6):
        hidden = model[:3](_random(device, 5, 4, seed=step))
        loss = (tied.weight @ hidden.t()[:4, :4]).sum() / 3 + model[3](hidden).square().mean() / 3
        loss.backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=step != 2)
            average.update_parameters(model)
            with torch.no_grad():
                for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
                    mine.lerp_(theirs, 0.5)
    shared = tied.weight is model[0].weight
    return model.state_dict(), average.state_dict(), twin.state_dict(), shared


@same_as_cpu
def test_models_that_move_and_change(device: str) -> Any:
    model = _model("cpu")
    model.register_buffer("scale", torch.arange(3.0))
    model.to(device)
    found: list[Any] = [{name: p.dtype for name, p in model.state_dict().items()}]
    output = model(_random(device, 2, 4))
    output.sum().backward()
    model.cpu()
    found.append([p.grad.clone() for p in model.parameters()])
    model.to(device=device, dtype=torch.float64)
    found.append(model(_random(device, 2, 4).double()))
    model.half().float()
    model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.5)
    model.train().eval().requires_grad_(False)
    found += [model(_random(device, 2, 4)), model.scale.shape]
    with torch.device("meta"):
        empty = nn.Linear(3, 2)
    ready = empty.to_empty(device=device)
    nn.init.ones_(ready.weight)
    nn.init.zeros_(ready.bias)
    found.append(ready(_random(device, 2, 3)))
    normed = nn.utils.parametrizations.weight_norm(_model(device)[0])
    spectral = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).to(device))
    normed(_random(device, 2, 4)).sum().backward()
    found += [normed.weight, [p.grad for p in normed.parameters()], spectral.weight.shape]
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    fused = nn.utils.fuse_conv_bn_eval(
        nn.Conv2d(1, 1, 1).to(device).eval(), nn.BatchNorm2d(1).to(device).eval()
    )
    return found, vector, list(model.parameters()), fused.weight.shape


@same_as_cpu
def test_checkpoints_on_disk(device: str) -> Any:
    model = _model(device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=True)
    for step in range(2):
        model(_random(device, 5, 4, seed=step)).square().mean().backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}, file)
    file.seek(0)
    again = _model(device)
    other = torch.optim.AdamW(again.parameters(), 0.01, foreach=True)
    state = torch.load(file, map_location=device, weights_only=True)
    again.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    file.seek(0)
    host = torch.load(file, map_location="cpu", weights_only=True)
    assert all(value.device.type == "cpu" for value in host["model"].values())
    assert all(p.device.type == device for p in again.parameters())
    for mine in ((model, optimizer), (again, other)):
        mine[1].zero_grad()
        mine[0](_random(device, 5, 4, seed=9)).square().mean().backward()
        mine[1].step()
    whole = pickle.loads(pickle.dumps(model))
    return model.state_dict(), again.state_dict(), whole.state_dict(), host["model"]


@same_as_cpu
def test_a_convolutional_network(device: str) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1, bias=False),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, foreach=True)
    losses = []
    for step in range(4):
        x = _random(device, 6, 1, 8, 8, seed=step)
        loss = F.cross_entropy(model(x), (torch.arange(6) % 3).to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.inference_mode():
        chosen = model(_random(device, 6, 1, 8, 8, seed=9)).argmax(1).tolist()
    return losses, chosen, model.state_dict()


@same_as_cpu
def test_generation_with_a_cache(device: str) -> Any:
    """Greedy decoding by a small attention layer that keeps its keys and values."""
    torch.manual_seed(0)
    table = nn.Embedding(11, 8).to(device)
    project = nn.Linear(8, 24).to(device)
    keys = torch.zeros(1, 2, 12, 4, device=device)
    values = torch.zeros_like(keys)
    tokens = [1]
    with torch.inference_mode():
        for position in range(8):
            hidden = table(torch.tensor([[tokens[-1]]], device=device))
            q, k, v = project(hidden).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            keys[:, :, position : position + 1] = k
            values[:, :, position : position + 1] = v
            mask = torch.arange(12, device=device) <= position
            out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask[None, None, None])
            logits = out.transpose(1, 2).reshape(8) @ table.weight.t()
            logits[torch.tensor(tokens, device=device)] -= 1e-3
            tokens.append(int(logits.topk(2).indices[0]))
    return tokens, keys.clone(), values.clone()


@on_virtual_gpu("program", "late", "random:1")
def test_optimizers_take_the_foreach_path() -> None:
    model = _model("cuda")
    from torch.optim.optimizer import _default_to_fused_or_foreach

    assert _default_to_fused_or_foreach(list(model.parameters()), False) == (False, True)
    capturable = torch.optim.Adam(model.parameters(), capturable=True)
    model(_random("cuda", 2, 4)).sum().backward()
    capturable.step()
    assert all(p.isfinite().all() for p in model.parameters())

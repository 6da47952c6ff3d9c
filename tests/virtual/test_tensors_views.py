"""Views, writes through views, and tensors whose memory changes under them."""

from __future__ import annotations

from typing import Any

import torch

from tests.virtual.agree import raised, same_as_cpu


def _numbers(device: str, *shape: int) -> Any:
    size = torch.Size(shape).numel()
    return torch.arange(float(size), device=device).reshape(shape)


@same_as_cpu
def test_views_of_all_kinds(device: str) -> Any:
    base = _numbers(device, 4, 6, 2)
    complexes = torch.view_as_complex(base.clone())
    return {
        "slice": base[1:3, ::2],
        "negative": base[-1],
        "ellipsis": base[..., 1],
        "none": base[None],
        "transpose": base.transpose(0, 1),
        "t": base[:, :, 0].t(),
        "mT": base.mT,
        "permute": base.permute(2, 0, 1),
        "movedim": base.movedim(0, -1),
        "view": base.view(8, 6),
        "reshape": base.transpose(0, 1).reshape(-1),
        "flatten": base.flatten(1),
        "unflatten": base.unflatten(1, (2, 3)),
        "expand": base[:, :1].expand(4, 6, 2),
        "squeeze": base[:1].squeeze(0),
        "unsqueeze": base.unsqueeze(1),
        "diagonal": base.diagonal(dim1=0, dim2=1),
        "narrow": base.narrow(1, 2, 3),
        "select": base.select(1, 4),
        "unfold": base.unfold(1, 3, 2),
        "as_strided": base.as_strided((3, 3), (2, 1), 5),
        "chunk": base.chunk(3, 1),
        "split": base.split([1, 2, 3], 1),
        "unbind": base.unbind(2),
        "tensor_split": base.tensor_split(4, 1),
        "hsplit": base.hsplit(2),
        "view_dtype": base.view(torch.int32),
        "narrower": base.view(torch.int16),
        "real": complexes.real,
        "imag": complexes.imag,
        "conj": complexes.conj().clone(),
        "conj_view": complexes.conj() + 1,
        "neg_view": complexes.conj().imag + 1,
        "swap": base.swapaxes(0, 2),
        "at_least": torch.atleast_3d(base[0, 0]),
        "broadcast_to": base[:1].broadcast_to(4, 6, 2),
        "broadcast": torch.broadcast_tensors(base[0], base[:, :1]),
        "detach": base.detach(),
        "view_as": base.view_as(base),
        "meshgrid": torch.meshgrid(base[0, :, 0], base[:, 0, 0], indexing="ij"),
        "adjoint": complexes.adjoint().clone(),
        "contiguous": base.transpose(0, 2).contiguous(),
        "offset": base[2].storage_offset(),
        "is_contiguous": base[:, 1].is_contiguous(),
        "rot90": torch.rot90(base),
        "flip": base.flip(0, 1),
        "roll": base.roll(2, 1),
        "repeat": base.repeat(1, 2, 1),
        "tile": base.tile(2),
        "repeat_interleave": base.repeat_interleave(2, 0),
        "dsplit": base.dsplit(2),
        "ravel": base.ravel(),
    }


@same_as_cpu
def test_writes_through_views(device: str) -> Any:
    base = _numbers(device, 4, 6)
    base[1] = 5
    base[:, 2] += 10
    base.t()[3].mul_(2)
    base[::2, ::3].copy_(torch.ones(2, 2, device=device))
    base.diagonal().zero_()
    base[2, 3:].fill_(-1)
    base.view(-1)[5].add_(100)
    base.view(torch.int32)[0, 0] = 1
    left, right = base.chunk(2, 1)
    left.add_(right)
    base[:, 1].clamp_(max=3)
    base.unfold(1, 2, 2)[0].add_(1)
    base[3] = torch.arange(6)[:6].to(device)
    base[0, 0] = torch.tensor(9.0)
    base[:2] = base[2:].clone()
    alias = base[1:]
    base.sub_(1)
    alias.neg_()
    return base, alias, base._version > 0


@same_as_cpu
def test_in_place_operators(device: str) -> Any:
    found = []
    for name, arguments in {
        "add_": (2,),
        "sub_": (1,),
        "mul_": (3,),
        "div_": (2,),
        "pow_": (2,),
        "sqrt_": (),
        "exp_": (),
        "log_": (),
        "abs_": (),
        "neg_": (),
        "relu_": (),
        "sigmoid_": (),
        "tanh_": (),
        "clamp_": (1, 5),
        "floor_": (),
        "round_": (),
        "zero_": (),
        "fill_": (4,),
        "t_": (),
        "transpose_": (0, 1),
        "squeeze_": (),
        "unsqueeze_": (0,),
        "fmod_": (3,),
        "remainder_": (2,),
        "cumsum_": (0,),
        "cumprod_": (1,),
        "tril_": (),
        "triu_": (1,),
        "sign_": (),
        "trunc_": (),
        "erf_": (),
        "lerp_": (torch.ones(3, 4, device=device), 0.5),
        "atan2_": (torch.ones(3, 4, device=device),),
        "masked_fill_": (torch.arange(12, device=device).reshape(3, 4) > 4, -1.0),
        "index_fill_": (0, torch.tensor([0, 2], device=device), 7.0),
        "index_add_": (0, torch.tensor([0, 2], device=device), torch.ones(2, 4, device=device)),
        "index_copy_": (1, torch.tensor([3], device=device), torch.ones(3, 1, device=device)),
        "addcmul_": (torch.ones(3, 4, device=device), torch.ones(3, 4, device=device)),
        "addcdiv_": (torch.ones(3, 4, device=device), torch.ones(3, 4, device=device)),
        "fill_diagonal_": (8,),
        "swapdims_": (0, 1),
        "logical_not_": (),
        "gt_": (3,),
        "eq_": (3,),
        "nan_to_num_": (),
        "copysign_": (-1,),
        "hypot_": (torch.ones(3, 4, device=device),),
    }.items():
        base = _numbers(device, 3, 4) + 1
        result = getattr(base, name)(*arguments)
        found.append((name, base, result is base))
    return found


@same_as_cpu
def test_results_into_given_tensors(device: str) -> Any:
    a, b = _numbers(device, 3, 4), _numbers(device, 4, 3)
    out = torch.empty(3, 4, device=device)
    product = torch.empty(3, 3, device=device)
    values, indices = (
        torch.empty(3, device=device),
        torch.empty(3, dtype=torch.int64, device=device),
    )
    torch.add(a, 2, out=out)
    torch.mm(a, b, out=product)
    torch.max(a, 1, out=(values, indices))
    resized = torch.empty(0, device=device)
    torch.cat([a, a], 1, out=resized)
    strided = torch.zeros(3, 8, device=device)
    torch.mul(a, 3, out=strided[:, ::2])
    empty = torch.tensor([], device=device)
    torch.exp(a, out=empty)
    whole = torch.empty(0, dtype=torch.int64, device=device)
    torch.arange(5, out=whole)
    ones = torch.empty(2, 2, device=device)
    torch.ones(2, 2, out=ones)
    order = (torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device))
    torch.sort(a, 1, True, out=order)
    chosen = torch.empty(2, 4, device=device)
    torch.index_select(a, 0, torch.tensor([2, 0], device=device), out=chosen)
    return out, product, values, indices, resized, strided, empty, whole, ones, order, chosen


@same_as_cpu
def test_results_into_given_tensors_that_values_give_their_size(device: str) -> Any:
    a = _numbers(device, 3, 4)
    large, places = a > a.mean(), torch.empty(0, dtype=torch.int64, device=device)
    found, fitting = torch.empty(0, device=device), torch.empty(int(large.sum()), device=device)
    torch.nonzero(large, out=places)
    torch.masked_select(a, large, out=found)
    torch.masked_select(a, large, out=fitting)
    torch.masked_select(a + 1, large, out=found)
    return places, found, fitting


@same_as_cpu
def test_tensors_that_change_their_size(device: str) -> Any:
    grown = _numbers(device, 4)
    grown.resize_(8)
    grown[4:] = 1
    shrunk = _numbers(device, 6)
    shrunk.resize_(2, 2)
    like = _numbers(device, 3).resize_as_(torch.zeros(2, 2, device=device))
    like[1, 1] = 0
    view = _numbers(device, 8)
    window = view[2:4]
    window.resize_(2, 2)
    other = torch.empty(0, device=device).set_(view.untyped_storage(), 1, (3,), (2,))
    same = _numbers(device, 1).set_(view)
    view.add_(1)
    data = _numbers(device, 4)
    data.data = torch.ones(2, device=device)
    empty = _numbers(device, 3)
    empty.resize_(0)
    first = torch.empty(0, device=device)
    first.resize_(2, 3).fill_(3)
    return grown, shrunk, like, window, other, same, data, empty.shape, first


@same_as_cpu
def test_storages_that_change_their_size(device: str) -> Any:
    tensor = _numbers(device, 6)
    saved = tensor.clone()
    tensor.untyped_storage().resize_(0)
    sizes = [tensor.untyped_storage().nbytes(), len(tensor.untyped_storage())]
    tensor.untyped_storage().resize_(24)
    tensor.copy_(saved)
    total = tensor.sum() * 2
    tensor.mul_(2)
    other = _numbers(device, 4)
    other.untyped_storage().resize_(8)
    other.set_(other.untyped_storage(), 0, (2,), (1,))
    other[1:] = 5
    joined = torch.cat([tensor, other])
    parts = tensor.split(2)
    clone = tensor.untyped_storage().clone()
    again = torch.empty(0, device=device).set_(clone, 0, (6,), (1,))
    return tensor, total, sizes, other, joined, parts, again, tensor.tolist(), tensor.view(2, 3).t()


@same_as_cpu
def test_fully_sharded_parameters(device: str) -> Any:
    """Memory of a parameter is freed and taken again between uses."""
    layer = torch.nn.Linear(4, 4).to(device)
    flat = _numbers(device, 16) / 16
    found = []
    for step in range(3):
        layer.weight.untyped_storage().resize_(64)
        with torch.no_grad():
            layer.weight.copy_((flat + step).view(4, 4))
        loss = layer(_numbers(device, 2, 4)).sum()
        loss.backward()
        found.append(loss.detach())
        layer.weight.untyped_storage().resize_(0)
    return found, layer.weight.grad


@same_as_cpu
def test_refused_views(device: str) -> Any:
    base = _numbers(device, 4, 6)
    return [
        raised(lambda: base.t().view(-1)),
        raised(lambda: base.view(5, 5)),
        raised(lambda: base.expand(3, 6)),
        raised(lambda: base[:, 7]),
        raised(lambda: base[:1].expand(4, 6).add_(1)),
        raised(lambda: base.reshape(7, -1)),
        raised(lambda: base.mm(base)),
        raised(lambda: base + torch.ones(5, device=device)),
        raised(lambda: torch.cat([base, base[:, 0]])),
        raised(lambda: base.squeeze(9)),
        raised(lambda: torch.stack([base, base[0]])),
    ]

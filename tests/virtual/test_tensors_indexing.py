"""Indexing with tensors and masks, scatter and gather, joining, sorting and searching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.virtual.agree import raised, same_as_cpu


def _numbers(device: str, *shape: int) -> Any:
    size = torch.Size(shape).numel()
    return torch.arange(float(size), device=device).reshape(shape)


@same_as_cpu
def test_reading_by_index(device: str) -> Any:
    base = _numbers(device, 4, 5, 3)
    there = torch.tensor([0, 2, -1], device=device)
    here = torch.tensor([0, 2, -1])
    mask = base[:, :, 0] > 20
    return {
        "device": base[there],
        "host": base[here],
        "list": base[[1, 3]],
        "two": base[there, there],
        "mixed": base[there, :, 0],
        "host_mixed": base[:, here],
        "outer": base[there[:, None], here],
        "mask": base[mask],
        "host_mask": base[mask.cpu()],
        "row_mask": base[mask[:, 0]],
        "whole_mask": base[base > 30],
        "none": base[None, there],
        "int32": base[there.int() % 3],
        "bool_list": base[[True, False, True, False]],
        "empty": base[there[:0]],
        "zero_dim": base[torch.tensor(1, device=device)],
        "host_zero_dim": base[torch.tensor(1)],
        "mask_and_index": base[mask, 1],
        "no_match": base[base > 1e6],
        "index_select": base.index_select(1, there % 4),
        "take": base.take(there % 9),
        "gather": base.gather(1, torch.ones(4, 2, 3, dtype=torch.int64, device=device)),
        "take_along": torch.take_along_dim(base, base.argsort(1), 1),
        "nonzero": mask.nonzero(),
        "nonzero_tuple": mask.nonzero(as_tuple=True),
        "masked_select": base.masked_select(base > 30),
        "argwhere": torch.argwhere(mask),
        "where": torch.where(mask),
        "where3": torch.where(base > 4, base, -base),
        "where_scalar": torch.where(base > 4, base, 0.0),
        "count": mask.count_nonzero(),
    }


@same_as_cpu
def test_writing_by_index(device: str) -> Any:
    index = torch.tensor([0, 2], device=device)
    found = []
    writes: tuple[Callable[[Any], Any], ...] = (
        lambda x: x.__setitem__(index, 1.0),
        lambda x: x.__setitem__(index.cpu(), 1.0),
        lambda x: x.__setitem__((index, index), torch.tensor([5.0, 6.0], device=device)),
        lambda x: x.__setitem__((slice(None), index), torch.tensor(3.0)),
        lambda x: x.__setitem__(x > 5, 0.0),
        lambda x: x.__setitem__(x > 5, torch.tensor(2.0, device=device)),
        lambda x: x.__setitem__((x > 5).cpu(), 0.0),
        lambda x: x.__setitem__([0, 1], -x[:2]),
        lambda x: x.index_put_((index,), torch.ones(2, 4, device=device), accumulate=True),
        lambda x: x.index_put_((index.cpu(),), torch.ones(2, 4, device=device), accumulate=True),
        lambda x: x.index_add_(0, index, torch.ones(2, 4, device=device), alpha=2),
        lambda x: x.index_fill_(1, index, 9),
        lambda x: x.index_reduce_(0, index, torch.ones(2, 4, device=device), "prod"),
        lambda x: x.scatter_(0, index[:, None], 5.0),
        lambda x: x.scatter_(1, index[None].expand(3, 2), torch.ones(3, 2, device=device)),
        lambda x: x.scatter_add_(1, index[None].expand(3, 2), torch.ones(3, 2, device=device)),
        lambda x: x.scatter_reduce_(
            1, index[None].expand(3, 2), torch.ones(3, 2, device=device), "amax"
        ),
        lambda x: x.masked_fill_(x > 3, 0),
        lambda x: x.masked_fill_(x > 3, torch.tensor(4.0)),
        lambda x: x.masked_scatter_(x > 3, torch.ones(12, device=device)),
        lambda x: x.put_(index, torch.tensor([1.0, 2.0], device=device)),
        lambda x: x.copy_(torch.arange(4.0)[None].expand(3, 4)),
        lambda x: x.select_scatter(torch.zeros(4, device=device), 0, 1),
        lambda x: x.slice_scatter(torch.zeros(1, 4, device=device), 0, 0, 1),
        lambda x: x.diagonal_scatter(torch.zeros(3, device=device)),
    )
    for write in writes:
        target = _numbers(device, 3, 4)
        found.append((write(target), target))
    return found


@same_as_cpu
def test_joining_and_parting(device: str) -> Any:
    a, b = _numbers(device, 2, 3), _numbers(device, 2, 3) + 10
    return [
        torch.cat([a, b]),
        torch.cat([a, b], 1),
        torch.stack([a, b], 2),
        torch.hstack([a, b]),
        torch.vstack([a, b]),
        torch.dstack([a, b]),
        torch.column_stack([a[0], b[0]]),
        torch.cat([a, torch.empty(0, 3, device=device)]),
        torch.cat([a, b.int()]),
        torch.cat([a.half(), b]),
        torch.cat((a.t(), b.t())),
        torch.kron(a, b),
        torch.combinations(a[0]),
        torch.chunk(a, 2, 1),
        torch.split(a, 1),
        torch.nn.utils.rnn.pad_sequence([a[0], b[0, :2]], batch_first=True),
        F.pad(a, (1, 2)),
        F.pad(a[None], (1, 1), mode="reflect"),
        F.pad(a, (-1, 0)),
        F.pad(a[None], (2, 1), mode="circular"),
        F.pad(a[None], (1, 1, 1, 1), mode="replicate"),
        F.one_hot(torch.tensor([0, 2], device=device)),
        F.one_hot(torch.tensor([0, 2], device=device), 5),
        F.unfold(a[None, None], (2, 2)),
        torch.constant_pad_nd(a, (1, 1), 5.0),
        F.pixel_shuffle(_numbers(device, 1, 4, 2, 2), 2),
    ]


@same_as_cpu
def test_sorting_and_searching(device: str) -> Any:
    values = torch.tensor([[3.0, 1.0, 2.0, 1.0], [0.0, 5.0, -1.0, 5.0]], device=device)
    whole = torch.tensor([3, 1, 2, 1, 3], device=device)
    edges = torch.tensor([0.0, 1.0, 2.0, 4.0], device=device)
    return {
        "sort": values.sort(dim=-1),
        "down": values.sort(dim=1, descending=True, stable=True),
        "argsort": values.argsort(stable=True),
        "topk": values.topk(2),
        "smallest": values.topk(2, largest=False),
        "kthvalue": values.kthvalue(2),
        "median": values.median(),
        "median1": values.median(1),
        "mode": values.mode(1),
        "unique": whole.unique(),
        "unique2": whole.unique(return_inverse=True, return_counts=True),
        "unique_dim": values.unique(dim=1),
        "consecutive": whole.unique_consecutive(return_counts=True),
        "searchsorted": torch.searchsorted(edges, values),
        "bucketize": torch.bucketize(values, edges),
        "bincount": whole.bincount(),
        "weighted": whole.bincount(torch.ones(5, device=device)),
        "histc": values.histc(4, 0, 4),
        "isin": torch.isin(whole, torch.tensor([1, 2], device=device)),
        "msort": values.msort(),
        "max": values.max(1),
        "min": values.min(0),
        "argmax": values.argmax(),
        "aminmax": values.aminmax(),
        "cummax": values.cummax(1),
        "cummin": values.cummin(1),
        "quantile": values.quantile(0.5, 1),
        "nanquantile": values.nanquantile(0.25),
        "logcumsumexp": values.logcumsumexp(1),
        "diff": values.diff(),
        "trapezoid": torch.trapezoid(values),
        "cumulative": torch.cumulative_trapezoid(values),
        "lexsort": values[:, values[0].argsort(stable=True)],
        "interleave": values.repeat_interleave(torch.tensor([2, 1], device=device), 0),
        "histogram": torch.histogram(values.cpu(), 3)[0],
    }


@same_as_cpu
def test_values_for_the_host(device: str) -> Any:
    base = _numbers(device, 3)
    one = torch.tensor(2.5, device=device)
    whole = torch.tensor(3, device=device)
    return [
        base.tolist(),
        one.item(),
        whole.item(),
        float(one),
        int(whole),
        bool(whole),
        complex(one),
        base[1] > 0 and 1,
        len(base),
        [float(x) for x in base],
        f"{one:.2f}",
        f"{whole:d}",
        [1, 2, 3, 4][whole],
        list(range(whole)),
        round(one.item(), 1),
        one == 2.5 and 1,
        base.equal(base.clone()),
        torch.allclose(base, base + 1e-9),
        (base > 5).any().item(),
        bool((base < 5).all()),
        base.sum().item(),
        base.max().item(),
        whole in base,
        9.0 in base,
        torch.equal(base, base[:2]),
        base.isnan().any().item(),
        base.nelement(),
        raised(lambda: bool(base)),
        raised(base.item),
        2.0 ** one.item(),
        whole.__index__(),
        torch.is_tensor(base),
        base.numel(),
        base.element_size(),
        base.ndim,
        one.tolist(),
        torch.result_type(base, 1),
        base.is_floating_point(),
        torch.tensor([], device=device).tolist(),
    ]


@same_as_cpu
def test_wrong_indices(device: str) -> Any:
    base = _numbers(device, 3, 4)
    return [
        raised(lambda: base[torch.zeros(2, 2, dtype=torch.bool, device=device)]),
        raised(lambda: base[torch.tensor([0.5], device=device)]),
        raised(lambda: base.gather(0, torch.zeros(1, dtype=torch.int64, device=device))),
        raised(lambda: base.take_along_dim(torch.tensor([0.5], device=device))),
    ]

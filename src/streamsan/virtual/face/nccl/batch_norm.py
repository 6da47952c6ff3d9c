"""Kernels of ``torch.nn.SyncBatchNorm``: operators that torch has for GPUs only.

Batch normalisation cut where the ranks exchange their statistics (Ioffe and Szegedy 2015). A
"channel" is an index of dimension 1; means, sums and the like have one value for each, in at least
32 bits. Variances of ranks are combined as those of samples are (Chan, Golub and LeVeque 1983).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.library import Library

_libraries: list[Library] = []


def install() -> None:
    """Register the kernels, once a process."""
    if not _libraries:
        library = Library("aten", "IMPL", "CPU")
        _libraries.append(library)
        library.impl("batch_norm_stats", stats)
        library.impl("batch_norm_gather_stats_with_counts", gather_stats)
        library.impl("batch_norm_elemt", normalise)
        library.impl("batch_norm_backward_reduce", backward_sums)
        library.impl("batch_norm_backward_elemt", backward)


def stats(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each channel."""
    variance, mean = torch.var_mean(_wide(values), _others(values), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats(
    values: Tensor,
    means: Tensor,
    invstds: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same of all ranks together, from those of each (ranks, channels) and their counts.

    The running statistics move by `momentum` towards the mean and the unbiased variance.
    """
    weights = counts.to(means.dtype).view(-1, 1)
    count = weights.sum()
    mean = (means * weights).sum(0) / count
    squares = ((invstds**-2 - eps + (means - mean) ** 2) * weights).sum(0)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (count - 1)).to(running_var.dtype), momentum)
    return mean, (squares / count + eps).rsqrt()


def normalise(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    """Normalise each channel, scale it by `weight` and shift it by `bias`."""
    scale = invstd if weight is None else invstd * weight
    result = (_wide(values) - _along(mean, values)) * _along(scale, values)
    if bias is not None:
        result = result + _along(bias, values)
    return torch.empty_like(values).copy_(result)


def backward_sums(
    gradient: Tensor,
    values: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """This rank's sums for the gradient of the values, and the gradients of weight and bias.

    The sums of a channel are those of the gradient, and of the gradient times the centred value.
    The flags say which of it somebody wants; all of it is given.
    """
    wide = _wide(gradient)
    total = wide.sum(_others(values))
    product = (wide * (_wide(values) - _along(mean, values))).sum(_others(values))
    dtype = mean.dtype if weight is None else weight.dtype
    return total, product, (product * invstd).to(dtype), total.to(dtype)


def backward(
    gradient: Tensor,
    values: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    total: Tensor,
    product: Tensor,
    counts: Tensor,
) -> Tensor:
    """The gradient of the values, from the sums of all ranks."""
    count = counts.sum()
    scale = invstd if weight is None else invstd * weight
    slope = product / count * invstd**2
    centred = _wide(values) - _along(mean, values)
    result = _wide(gradient) - _along(total / count, values) - centred * _along(slope, values)
    return torch.empty_like(values).copy_(result * _along(scale, values))


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def _others(values: Tensor) -> list[int]:
    """All dimensions but that of the channels."""
    return [dimension for dimension in range(values.dim()) if dimension != 1]


def _along(channels: Tensor, values: Tensor) -> Tensor:
    """One value a channel, in the place of the channels of `values`."""
    return channels.view(-1, *[1] * (values.dim() - 2))

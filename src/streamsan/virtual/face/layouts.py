"""What an operator returns, found out before it runs, and its arguments kept until it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from streamsan.virtual.face.below import Below
from streamsan.virtual.face.random import seeded
from streamsan.virtual.face.schema import Plan
from streamsan.virtual.face.tensors import Spec, bits, storage_bytes, with_bits


class Place:
    """The address of a tensor argument."""

    __slots__ = ("spec",)

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


class Argument:
    """A place in a call: a position or a name, and an index where a list stands there."""

    __slots__ = ("index", "key")

    def __init__(self, key: int | str, index: int | None) -> None:
        self.key = key
        self.index = index

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The argument of this call."""
        found = args[self.key] if isinstance(self.key, int) else kwargs[self.key]
        return found if self.index is None else found[self.index]


class Layout(NamedTuple):
    """What a call gives.

    `returned` has an entry for each result: (dtype, sizes, strides) of a fresh tensor, the argument
    that is returned, or a plain value. `resized` are arguments for results that the operator gives
    other sizes: each with those and its strides.
    """

    returned: list[Any]
    resized: list[tuple[Argument, tuple[int, ...], tuple[int, ...]]]


def unpack(values: Sequence[Any], view: Callable[[Spec], torch.Tensor]) -> list[Any]:
    """Arguments with tensors for their places."""
    return [
        view(value.spec)
        if isinstance(value, Place)
        else unpack(value, view)
        if isinstance(value, list)
        else value
        for value in values
    ]


def describe(values: Sequence[Any]) -> list[Any]:
    """A hashable description of arguments; TypeError where one has none."""
    out: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            out.append((value.dtype, tuple(value.shape), value.stride(), bits(value)))
        elif isinstance(value, (list, tuple)):
            out.append((len(value), *describe(value)))
        else:
            hash(value)
            out.append((type(value), value))
    return out


def infer_layout(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
    """Run the operator on stand-ins for its tensors.

    Only the meta kernels that share their code with the CPU kernels agree with them in all strides,
    in types and in which results are empty. Other operators run on zeros of the same layout.
    Raises what torch raises where it cannot tell, or where the call is wrong.
    """
    if not plan.exact_meta:
        try:
            with Below(), seeded(0):
                return layout_of(plan, args, kwargs, zeros)
        except NotCoveredError:
            raise
        except (RuntimeError, IndexError):
            pass  # zeros will not do, or the call is wrong
    return layout_of(plan, args, kwargs, without_bytes)


def without_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same layout."""
    return torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta"
    )


def zeros(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor of the same layout, full of zeros."""
    sizes, strides = tuple(tensor.shape), tensor.stride()
    size = storage_bytes(tensor.dtype, sizes, strides) // tensor.itemsize
    flat = torch.zeros(size, dtype=tensor.dtype)
    return with_bits(flat.as_strided(sizes, strides), bits(tensor))


def layout_of(
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    stand_in: Callable[[torch.Tensor], torch.Tensor],
) -> Layout:
    """Run the operator on what stands in for its tensors. Raises what torch raises."""
    shadows: list[tuple[Argument, torch.Tensor, torch.Size]] = []

    def shadow_of(value: Any, key: int | str, index: int | None = None) -> Any:
        if isinstance(value, torch.Tensor):
            shadow = stand_in(value)
            shadows.append((Argument(key, index), shadow, value.shape))
            return shadow
        if isinstance(value, (list, tuple)):
            return [shadow_of(v, key, i) for i, v in enumerate(value)]
        return value

    positional = [shadow_of(value, i) for i, value in enumerate(args)]
    named = {k: shadow_of(v, k) for k, v in kwargs.items()}
    outcome = plan.op(*positional, **named)

    def entry(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        for argument, shadow, _ in shadows:
            if shadow is value:
                return argument
        refuse_unusual(plan.name, value)
        return value.dtype, tuple(value.shape), value.stride()

    if isinstance(outcome, (list, tuple)):
        returned = [entry(value) for value in outcome]
    else:
        returned = [entry(outcome)] if plan.returns else []
    resized = [
        (argument, tuple(shadow.shape), shadow.stride())
        for argument, shadow, shape in shadows
        if shadow.shape != shape
    ]
    return Layout(returned, resized)


class NotCoveredError(NotImplementedError):
    """The virtual machine does not have what a program wants of it."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(
            f"{name}: {kind} tensors are not covered by StreamSan's virtual GPU"
            " (docs/virtual_gpu.md lists what is)"
        )


def refuse_unusual(name: str, tensor: torch.Tensor) -> None:
    """Raise NotCoveredError where a tensor on the device would be no plain array of numbers."""
    if tensor.layout is not torch.strided:
        raise NotCoveredError(name, str(tensor.layout).removeprefix("torch."))
    if tensor.is_quantized or tensor.is_nested:
        raise NotCoveredError(name, "quantized" if tensor.is_quantized else "nested")


def overlaps_itself(spec: Spec) -> bool:
    """Whether two elements of a tensor are at one address, as in an expanded one."""
    _, _, sizes, strides, _ = spec
    return 0 in strides and any(size > 1 and not step for size, step in zip(sizes, strides))


def overlap(spec: Spec, other: Spec) -> bool:
    """Whether the ranges of two tensors overlap, and are not the same tensor's."""
    if spec == other or 0 in spec[2] or 0 in other[2]:
        return False
    return spec[0] < _end(other) and other[0] < _end(spec)


def _end(spec: Spec) -> int:
    address, dtype, sizes, strides, _ = spec
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides))
    return address + (last + 1) * dtype.itemsize

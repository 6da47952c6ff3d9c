"""Runs the operators of torch's own test database, and prints what came of each, in JSON lines.

    python -m tools.operator_digests cpu|cuda [virtual|cuda] [--share 0/3] [OPERATOR ...]

The first is the device of the arguments, the second where StreamSan watches, if it does. Arguments
are made on the CPU, of the same seeds each time, and brought to the device. What came of an
operator is what it returned, what it wrote in place and into tensors that were given, whether its
arguments stayed as they were, and the kinds of its exceptions. Values are told apart from layouts
(types, shapes, strides, whether a gradient is wanted), for random ones may differ. Of gradients the
sum of magnitudes is told: a dispatch mode makes autograd take other ways, which round otherwise.

With StreamSan the last line has the verdict and the internal errors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import streamsan

SAMPLES = 5
"""Most calls of an operator for each type of elements."""

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16)

_LEFT_OUT = ("empty", "new_empty", "linalg.lstsq")
"""Beginnings of names: some of their results are memory as it was."""

_COMPILES = "jiterator"
"""Beginning of names: kernels from source, which the CPU and the virtual GPU have none of."""


class Digest:
    """What came of calls, in two hashes, of layouts and of values; the magnitude of gradients."""

    def __init__(self) -> None:
        self.layout, self.values = hashlib.sha1(), hashlib.sha1()
        self.magnitude = 0.0

    def add(self, values: Any) -> None:
        """Add all tensors of a result, and what else is in it."""
        for value in tree_flatten(values)[0]:
            if isinstance(value, torch.Tensor):
                self._add_tensor(value)
            elif not callable(value) and not isinstance(value, torch.device):
                self.layout.update(repr(value).encode())

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        kind = tensor.dtype, str(tensor.layout), tuple(tensor.shape)
        apart = tensor.stride() if tensor.layout is torch.strided else ()
        bits = tensor.requires_grad, tensor.is_leaf, tensor.is_conj(), tensor.is_neg()
        self.layout.update(repr((kind, apart, bits)).encode())
        self.values.update(raw(tensor))

    def add_gradients(self, found: list[torch.Tensor]) -> None:
        """Add what is told of gradients."""
        for gradient in found:
            self.layout.update(repr((gradient.dtype, tuple(gradient.shape))).encode())
            plain = gradient.detach().cpu().to(torch.complex128).abs()
            self.magnitude += float(plain.nan_to_num(posinf=0).sum())

    def told(self) -> list[Any]:
        """All three."""
        return [self.layout.hexdigest()[:12], self.values.hexdigest()[:12], self.magnitude]


def raw(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor."""
    plain = tensor.detach()
    plain = (plain if plain.layout is torch.strided else plain.to_dense()).cpu()
    plain = plain.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return bytes(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""


def brought(values: Any, device: str) -> Any:
    """Arguments on a device, densely laid out wherever they were made."""

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            made = value.detach().resolve_conj().resolve_neg().to(device, copy=True)
            return made.requires_grad_(value.requires_grad)
        if isinstance(value, torch.device) or value == "cpu":
            return torch.device(device)
        return value

    return tree_map(move, values)


def tensors_in(values: Any) -> list[torch.Tensor]:
    """All tensors of arguments or results."""
    return [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]


def gradients(result: Any, arguments: Any) -> list[torch.Tensor]:
    """Those of the arguments that want one."""
    ends = [end for end in tensors_in(result) if end.requires_grad]
    wanted = [leaf for leaf in tensors_in(arguments) if leaf.requires_grad and leaf.is_leaf]
    if not ends or not wanted:
        return []
    sums = [(end.abs() if end.is_complex() else end).sum() for end in ends]
    found: Any = torch.autograd.grad(sums, wanted, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def forms(
    op: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The ways to call an operator, with their names, beside a call of the function."""

    def plain(values: Any) -> Any:
        return tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, values)

    def in_place() -> Any:
        first = plain(arguments[0])
        return op.inplace_variant(first, *arguments[1:], **named), first

    def into(like: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        given, others = plain(arguments), plain(named)
        out = tree_map(like, op(*given, **others))
        return op(*given, **{k: v for k, v in others.items() if k != "device"}, out=out), out

    if op.method_variant:
        yield "method", lambda: op.method_variant(*arguments, **named)
    if op.inplace_variant:
        yield "in place", in_place
    if op.supports_out:
        yield "into another", lambda: into(torch.zeros_like)
        empty: Any = torch.empty
        yield "into an empty one", lambda: into(lambda t: empty(0, dtype=t.dtype, device=t.device))


class Drawing(TorchDispatchMode):
    """Sees whether random numbers are drawn."""

    drawn = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drawn = self.drawn or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws(op: Any, dtype: torch.dtype) -> bool:
    """Whether an operator draws random numbers in one of its calls."""
    drawing = Drawing()  # type: ignore[no-untyped-call]
    with drawing:
        for sample in islice(op.sample_inputs("cpu", dtype), SAMPLES):
            with suppress(Exception):
                drawing.drawn = False
                op(sample.input, *sample.args, **sample.kwargs)
            if drawing.drawn:
                return True
    return False


def run(op: Any, dtype: torch.dtype, device: str) -> Iterator[list[Any]]:
    """Call an operator in all ways: for each its number and form, and what came of it."""
    torch.manual_seed(0)
    wants = op.supports_autograd and dtype in op.backward_dtypes
    wants = wants and (dtype.is_floating_point or dtype.is_complex)
    samples = op.sample_inputs("cpu", dtype, requires_grad=wants)
    for number, sample in enumerate(list(islice(samples, SAMPLES))):
        try:
            arguments = brought((sample.input, *sample.args), device)
            named = brought(sample.kwargs, device)
        except Exception as error:
            yield [f"{number} arguments", *Digest().told(), type(error).__name__]
            continue
        before = [raw(value) for value in tensors_in((arguments, named))]
        for form, call in (("function", None), *forms(op, arguments, named)):
            digest, kind = Digest(), ""
            torch.manual_seed(number)
            try:
                result = op(*arguments, **named) if call is None else call()
                digest.add(result)
                if call is None:
                    digest.add_gradients(gradients(result, (arguments, named)))
            except Exception as error:
                kind = type(error).__name__
            digest.add(before == [raw(value) for value in tensors_in((arguments, named))])
            yield [f"{number} {form}", *digest.told(), kind]


def database() -> list[Any]:
    """The operators, as they are now: the virtual GPU replaces functions of torch."""
    from torch.testing._internal import common_methods_invocations

    return list(common_methods_invocations.op_db)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Run the operators of torch's test database.")
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("watched", nargs="?", choices=["virtual", "cuda"])
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--only", nargs="*", metavar="OPERATOR")
    args = parser.parse_args()
    share, of = map(int, args.share.split("/"))
    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(True, warn_only=True)
    watch = streamsan.watch(device=args.watched) if args.watched else nullcontext(None)
    with watch as session:
        for op in database()[share::of]:
            if op.name.startswith((*_LEFT_OUT, _COMPILES)):
                continue
            if args.only and op.name not in args.only:
                continue
            for dtype in DTYPES:
                if dtype in op.dtypes:
                    drawn = args.device == "cpu" and draws(op, dtype)
                    name = " ".join(filter(None, (op.name, op.variant_test_name, str(dtype)[6:])))
                    print(json.dumps([name, drawn, [*run(op, dtype, args.device)]]), flush=True)
    if session is not None:
        report = session.report
        print(json.dumps([report.verdict, *map(str, report.summary.internal_errors)]))


if __name__ == "__main__":
    main()

"""Exceptions that leave statements which have made device tensors: what arrives, and from where."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

device = sys.argv[1]
vector = torch.ones(8, device=device)
square = torch.ones(8, 8, device=device)
other = torch.ones(3, 5, device=device)


nothing: dict[Any, Any] = {}


class MineError(Exception):
    """An exception of the program."""


def untyped(value: Any) -> Any:
    return value


def fail(*_: Any) -> Any:
    raise MineError("mine")


class Closing:
    """A context that computes while an exception passes."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        vector.add(7)


def in_context() -> None:
    with Closing():
        torch.mm(square + 1, other)


def with_finally() -> None:
    try:
        torch.mm(square + 1, other)
    finally:
        vector.add(5)


def chained() -> None:
    try:
        fail(vector + 1)
    except MineError as error:
        raise RuntimeError("second") from error


def in_handler() -> None:
    try:
        torch.mm(square + 1, other)
    except RuntimeError:
        fail(vector + 3)


def deep() -> None:
    def inner() -> None:
        first = vector + 1
        fail([first + i for i in range(4)])

    inner()


def from_generator() -> None:
    def made() -> Iterator[Tensor]:
        yield vector + 1
        torch.mm(square + 1, other)

    for tensor in made():
        tensor.add(1)


def thrown_in() -> None:
    def made() -> Iterator[Tensor]:
        kept = vector + 1
        yield kept + 1

    generator: Any = made()
    next(generator)
    generator.throw(MineError("thrown"))


def unpacked() -> None:
    _, _, _ = (vector + 1).chunk(2)


def asserted() -> None:
    assert (vector + 1) is None, "it is a tensor"


def popped() -> None:
    holder = [vector + i for i in range(3)]
    holder.pop(int(holder[0].sum().item()))


SITUATIONS: dict[str, Callable[[], Any]] = {
    "operator": lambda: torch.mm(square + 1, other),
    "operator, nested": lambda: torch.cat([vector + 1, torch.mm(square, square + 2)]),
    "index": lambda: (vector + 1)[5, 5],
    "index of a repeated tensor": lambda: vector.repeat(3)[5, 5],
    "view": lambda: torch.ones(3, device=device).view(7),
    "argument": lambda: fail(vector + 1, vector + 2),
    "list": lambda: [fail(tensor + 1) for tensor in (vector + 1, vector + 2)],
    "dictionary": lambda: nothing[str((vector + 1).sum().item())],
    "attribute": lambda: untyped(vector + 1).no_such_attribute,
    "operand": lambda: untyped(vector + 1) + object(),
    "operand on the left": lambda: untyped(object()) * (vector + 1),
    "comparison": lambda: sorted([vector + 1, untyped(object())]),
    "truth": lambda: bool(vector + 1),
    "float": lambda: float((vector + 1)[0:2]),
    "text": lambda: int("a" + str(len(vector + 1))),
    "in an exception": lambda: fail(MineError(vector + 1)),
    "sum": lambda: sum([vector + 1, untyped("a")]),
    "no gradient": lambda: (vector + 1).sum().backward(),
    "device": lambda: (vector + 1).to("nowhere"),
    "event": lambda: fail(vector + 1, torch.cuda.Event() if device == "cuda" else None),
    "unpacked": unpacked,
    "asserted": asserted,
    "context": in_context,
    "finally": with_finally,
    "chained": chained,
    "in a handler": in_handler,
    "deep": deep,
    "generator": from_generator,
    "thrown into a generator": thrown_in,
    "list index": popped,
}


def tell(name: str, error: BaseException) -> None:
    """Print an exception, what it came from, and the program's functions it passed."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    text = str(error).splitlines()[0] if str(error) else ""
    came_from = [type(error.__cause__).__name__, type(error.__context__).__name__]
    print(name, type(error).__name__, text, came_from, [(f.name, f.lineno) for f in own])


for name, situation in SITUATIONS.items():
    for _ in range(3):
        try:
            situation()
        except Exception as error:  # noqa: PERF203 -- this is what is looked at
            tell(name, error)
        else:
            print(name, "ended well")
print(vector.sum().item(), square.sum().item())

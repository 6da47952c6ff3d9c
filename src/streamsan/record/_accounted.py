"""Work of the device that is told of already, so that the driver's callbacks leave it alone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from streamsan.record.cuda._methods import replace


class _Depth(threading.local):
    """Per thread: how many such calls are at work."""

    depth = 0


_local = _Depth()


class Accounted:
    """A context: another part of the recorder tells what the calling thread does in it."""

    __slots__ = ()

    def __enter__(self) -> None:
        _local.depth += 1

    def __exit__(self, *exc_info: object) -> None:
        _local.depth -= 1


ACCOUNTED = Accounted()
"""The one such context that is needed."""


def is_accounted() -> bool:
    """Whether the calling thread is in such a context."""
    return _local.depth > 0


def account_for(owner: Any, name: str) -> None:
    """Make every call of a method or function such a context."""
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        _local.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            _local.depth -= 1

    replace(owner, name, call)

"""Listening to the calls of methods, those of types that Python calls immutable included."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def listen(
    recorder: CudaRecorder,
    owner: Any,
    name: str,
    listener: Callable[..., None],
    *,
    always: bool = False,
) -> None:
    """Call ``listener(result, *args, **kwargs)`` after each call of a method or function.

    With `always`, calls that raise (their result is None) and those between two recordings are
    told as well. The listener's own errors are noted, and never reach the caller.
    """
    original = getattr(owner, name)

    def tell(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recorder.enabled and (always or recorder.observer.recording):
            recorder._guarded(lambda: listener(result, *args, **kwargs))

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException:
            if always:
                tell(None, args, kwargs)
            raise
        tell(result, args, kwargs)
        return result

    replace(owner, name, method)


def replace(owner: Any, name: str, value: Any) -> None:
    """Set an attribute, also one of a type made in C, such as ``torch.Event``, which refuses."""
    try:
        setattr(owner, name, value)
    except TypeError:
        (attributes,) = gc.get_referents(owner.__dict__)  # what the read-only view shows
        attributes[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))

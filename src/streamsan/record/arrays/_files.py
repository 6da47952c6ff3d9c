"""Files that torch writes in C++: what a checkpoint reads of pinned memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer


def listen_to_files(observer: Observer, is_pinned: Callable[[int], bool]) -> None:
    """Tell `observer` of pinned storages that ``torch.save`` writes to a file by itself.

    What it writes to any other object, it hands over as a memoryview.
    """

    def tell(storage: Any) -> None:
        if not observer.recording or not isinstance(storage, torch.UntypedStorage):
            return
        address, size = storage.data_ptr(), storage.nbytes()
        if size and is_pinned(address):
            access = r.Access(r.HOST, address, size, (), (), int(r.Mode.READ), "storage")
            observer.operation(int(r.OpKind.HOST), "torch.save", observer.thread(), (access,))

    writer, storages = torch._C.PyTorchFileWriter, torch.UntypedStorage
    _after(observer, writer, "write_record", lambda _, name, data, *rest: tell(data))
    # The older format: `is_file` says that C++ writes to its descriptor.
    _after(
        observer, storages, "_write_file",
        lambda this, file, is_file, *rest: tell(this if is_file else None),
    )  # fmt: skip


def _after(observer: Observer, owner: Any, name: str, listener: Callable[..., None]) -> None:
    """Call `listener` after a method, with its arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            listener(*args, *kwargs.values())
        except Exception as error:
            observer.internal_error(error)
        return result

    setattr(owner, name, method)

"""Methods of ``torch.UntypedStorage`` that ask where its bytes are."""

from __future__ import annotations

from typing import Any

import torch

from streamsan.virtual.face import current
from streamsan.virtual.memory import NOWHERE

_S = torch.UntypedStorage
_ORIGINAL: dict[str, Any] = {
    name: getattr(_S, name)
    for name in (
        "device", "to", "cuda", "cpu", "clone", "resize_", "nbytes", "size", "__len__", "data_ptr",
        "copy_", "is_pinned", "tolist", "fill_", "_share_filename_cpu_", "_share_fd_cpu_",
        "_write_file",
    )
}  # fmt: skip


def _owner(storage: torch.UntypedStorage) -> int:
    if _ORIGINAL["device"].__get__(storage).type == "meta":  # has no address, and may warn of it
        return NOWHERE
    address: int = _ORIGINAL["data_ptr"](storage)
    return current.face().gpu.memory.owner(address)


def _device(self: torch.UntypedStorage) -> torch.device:
    owner = _owner(self)
    return torch.device("cuda", owner) if owner >= 0 else _ORIGINAL["device"].__get__(self)


def _nbytes(self: torch.UntypedStorage) -> int:
    if _owner(self) >= 0:
        return current.face().storages.place(self)[1]
    return _ORIGINAL["nbytes"](self)  # type: ignore[no-any-return]


def _data_ptr(self: torch.UntypedStorage) -> int:
    if _owner(self) >= 0:
        address, size = current.face().storages.place(self)
        return address if size else 0
    return _ORIGINAL["data_ptr"](self)  # type: ignore[no-any-return]


def _resize(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    if _owner(self) < 0:
        return _ORIGINAL["resize_"](self, size)  # type: ignore[no-any-return]
    current.face().storages.resize(self, int(size))
    return self


def _cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
    return current.face().storages.to_host(self) if _owner(self) >= 0 else _ORIGINAL["cpu"](self)


def _cuda(
    self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> torch.UntypedStorage:
    index = current.face().device_index(device)
    if _owner(self) == index:
        return self
    host = _cpu(self) if _owner(self) >= 0 else self
    return current.face().storages.to_device(host, index)


def _to(
    self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False
) -> torch.UntypedStorage:
    virtual = current.device_of(device)
    if virtual is not None:
        return _cuda(self, virtual.index)
    if torch.device(device).type == "cpu" and _owner(self) >= 0:
        return _cpu(self)
    return _ORIGINAL["to"](self, device=device, non_blocking=non_blocking)  # type: ignore[no-any-return]


def _clone(self: torch.UntypedStorage) -> torch.UntypedStorage:
    if _owner(self) >= 0:
        return current.face().storages.clone(self)
    return _ORIGINAL["clone"](self)  # type: ignore[no-any-return]


def _tolist(self: torch.UntypedStorage) -> list[Any]:
    return _ORIGINAL["tolist"](_cpu(self) if _owner(self) >= 0 else self)  # type: ignore[no-any-return]


def _write_file(self: torch.UntypedStorage, *args: Any) -> None:
    _ORIGINAL["_write_file"](_cpu(self) if _owner(self) >= 0 else self, *args)


def replaced() -> dict[str, Any]:
    """Attributes of ``torch.UntypedStorage`` and what stands for them."""
    return {
        "device": property(_device),
        "is_cuda": property(lambda self: _owner(self) >= 0),
        "nbytes": _nbytes, "size": _nbytes, "__len__": _nbytes, "data_ptr": _data_ptr,
        "resize_": _resize, "cpu": _cpu, "cuda": _cuda, "to": _to, "clone": _clone,
        "tolist": _tolist, "_write_file": _write_file,
        "is_pinned": lambda self, device="cuda": _owner(self) == -1,
        "get_device": lambda self: max(_owner(self), -1),
    }  # fmt: skip

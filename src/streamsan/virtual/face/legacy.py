"""``torch.cuda.FloatTensor`` and its kin: old names for tensors of a dtype on a device."""

from __future__ import annotations

from typing import Any

import torch

_DTYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip


class LegacyType(type):
    """The type of such a name: says what is an instance, and makes one when called."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and (
            instance.is_cuda and instance.dtype == cls.dtype
        )

    def __call__(cls, *args: Any, device: Any = "cuda") -> torch.Tensor:
        """A tensor of given sizes, uninitialised, or with given values."""
        return make(cls.dtype, args, device)


def make(dtype: torch.dtype, args: tuple[Any, ...], device: Any) -> torch.Tensor:
    """What the old constructors make of their arguments: sizes, a sequence of values, a tensor."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)) and not _is_size(args[0]):
        return torch.tensor(args[0], dtype=dtype, device=device)
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        return args[0].to(device, dtype)
    sizes = tuple(args[0]) if len(args) == 1 and _is_size(args[0]) else args or (0,)
    return torch.empty(sizes, dtype=dtype, device=device)


def set_default_tensor_type(kind: Any) -> None:
    """``torch.set_default_tensor_type``: a dtype, and the device on which tensors are made."""
    named = getattr(torch.cuda, kind.rpartition(".")[2], None) if _names_cuda(kind) else kind
    if isinstance(named, LegacyType):
        torch.set_default_dtype(named.dtype)
        torch.set_default_device("cuda")
    else:
        _set_default_tensor_type(kind)
        torch.set_default_device(None)


_set_default_tensor_type = torch.set_default_tensor_type


def _names_cuda(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith("torch.cuda.")


def _is_size(value: object) -> bool:
    return isinstance(value, torch.Size)


def types() -> dict[str, Any]:
    """Names of ``torch.cuda`` and what stands for them."""
    return {
        name: LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        for name, dtype in _DTYPES.items()
    }

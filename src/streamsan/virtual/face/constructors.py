"""Functions of ``torch`` that make tensors on a device without asking the dispatcher."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from streamsan.virtual.face import current
from streamsan.virtual.face.layouts import NotCoveredError
from streamsan.virtual.face.random import Generator as VirtualGenerator

_tensor, _as_tensor, _asarray = torch.tensor, torch.as_tensor, torch.asarray

_left_aligned: Any = torch._nested_tensor_from_mask_left_aligned


def _copy_warning() -> str:
    """What torch says to ``torch.tensor(tensor)``. To record warnings, as this does, makes Python
    forget which it has told already: it is done before the program starts, and never again.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _tensor(torch.zeros(()))
    return str(caught[0].message) if caught else ""


_COPY_WARNING = _copy_warning()


def default_device() -> torch.device | None:
    """The virtual device of the innermost device context, if that is one."""
    if not torch._C._len_torch_function_stack():
        return None
    for mode in reversed(_get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            return current.device_of(mode.device)
    return None


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **kwargs: Any
) -> torch.Tensor:
    """``torch.tensor``: built on the host, then uploaded."""
    target = current.device_of(device) if device is not None else default_device()
    pinned = kwargs.pop("pin_memory", False)
    if target is None:
        kwargs.update(dtype=dtype, device=device, requires_grad=requires_grad)
        made = _copied(data, kwargs) if isinstance(data, torch.Tensor) else _tensor(data, **kwargs)
        return made.detach().pin_memory().requires_grad_(requires_grad) if pinned else made
    kwargs = {"dtype": dtype, "device": "cpu"}
    made = _copied(data, kwargs) if isinstance(data, torch.Tensor) else _tensor(data, **kwargs)
    made = made.to(target)
    return made.requires_grad_() if requires_grad else made  # torch.func forbids the very call


def _copied(data: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """``torch.tensor`` of a tensor: torch warns of it, at the line of whoever called our caller."""
    if _COPY_WARNING:
        warnings.warn(_COPY_WARNING, UserWarning, stacklevel=3)
    made = data.detach().to(options["device"], options["dtype"], copy=True)
    return made.requires_grad_(options.get("requires_grad", False))


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
    """``torch.as_tensor``."""
    if device is None and isinstance(data, torch.Tensor):
        return data if dtype is None else data.to(dtype)
    target = current.device_of(device) if device is not None else default_device()
    if target is None:
        if isinstance(data, torch.Tensor):
            return data.to(device=device, dtype=dtype or data.dtype)
        return _as_tensor(data, dtype=dtype, device=device)
    host = data if isinstance(data, torch.Tensor) else _as_tensor(data, dtype=dtype, device="cpu")
    return host.to(target, dtype or host.dtype)


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: Any = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """``torch.asarray``."""
    target = current.device_of(device) if device is not None else default_device()
    if target is None:
        return _asarray(obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
    made = as_tensor(obj, dtype, target)
    return (made.clone() if copy and made is obj else made).requires_grad_(requires_grad)


def get_device(tensor: torch.Tensor) -> int:
    """``torch.get_device``: the index of a tensor's device, -1 for the host."""
    return tensor.get_device()


def _spaced(function: Callable[..., Any]) -> Callable[..., Any]:
    """A range whose ends may be tensors: their values are numbers to its kernel, as on CUDA."""

    @wraps(function)
    def call(*ends: Any, **kwargs: Any) -> torch.Tensor:
        named = {k: _number(v) if k in ("start", "end") else v for k, v in kwargs.items()}
        return function(*map(_number, ends), **named)  # type: ignore[no-any-return]

    return call


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


class _GeneratorType(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorType):
    """``torch.Generator``: a virtual one for ``cuda``, torch's own for the rest."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Choose by device."""
        target = current.device_of(device)
        return VirtualGenerator(target) if target is not None else torch._C.Generator(device)


def compile_eagerly(model: Any = None, **_: Any) -> Any:
    """``torch.compile``: the program runs as written; its operators are the ones checked."""
    from streamsan.model.records import Note

    if model is None:
        return compile_eagerly
    current.face().gpu.observer.emit(
        Note(
            "blind-spot",
            "torch.compile ran eagerly on the virtual GPU: the compiler's kernels were not checked",
        )
    )
    return model


def left_aligned(tensor: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether a padded batch can become a nested tensor: torch's encoders ask it, and take their
    dense path where it cannot, as on the virtual devices.
    """
    aligned = bool(_left_aligned(tensor, mask))  # the host waits for the answer, as on CUDA
    return aligned and not tensor.is_cuda


def _dense_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor of sparse tensors, which the virtual devices cannot hold."""

    def call(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        target = current.device_of(device) if device is not None else default_device()
        if target is not None:
            raise NotCoveredError(f"torch.{function.__name__}", "sparse")
        return function(*args, **kwargs)

    return call


def functions() -> dict[str, Any]:
    """Names of ``torch`` and what stands for them."""
    return {
        "tensor": tensor, "as_tensor": as_tensor, "asarray": asarray, "Generator": Generator,
        "linspace": _spaced(torch.linspace), "logspace": _spaced(torch.logspace),
        "_nested_tensor_from_mask_left_aligned": left_aligned,
        "compile": compile_eagerly, "get_device": get_device,
        **{f"sparse_{kind}_tensor": _dense_only(getattr(torch, f"sparse_{kind}_tensor"))
           for kind in ("coo", "csr", "csc", "bsr", "bsc", "compressed")},
    }  # fmt: skip

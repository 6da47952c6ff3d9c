"""Tensor methods that the dispatcher does not show, or that ask where a tensor lives."""

from __future__ import annotations

from typing import Any

import torch

from streamsan.model.records import Mode
from streamsan.virtual.face import constructors, current, legacy, overrides, transforms
from streamsan.virtual.face.below import Below
from streamsan.virtual.face.layouts import NotCoveredError, refuse_unusual
from streamsan.virtual.face.state import FORKED, UNINITIALIZED
from streamsan.virtual.face.streams import DeviceStream
from streamsan.virtual.memory import NOWHERE, PINNED

_T = torch._C.TensorBase
_ORIGINAL: dict[str, Any] = {
    name: getattr(torch.Tensor, name)
    for name in (
        "to", "cpu", "cuda", "numpy", "tolist", "pin_memory", "type", "__array__", "__deepcopy__",
        "copy_", "__setitem__", "new", "new_tensor",
        "share_memory_", "is_shared",
    )
}  # fmt: skip
_DEVICE = _T.device
_META: Any = _T.is_meta
_CPU = torch.device("cpu")
_SELF: Any = torch.preserve_format


def _owner(tensor: torch.Tensor) -> int:
    return current.face().tensors.owner(tensor)


def _inner_owner(tensor: torch.Tensor) -> int:
    """The owner of a tensor, or of what it wraps where it is one that wraps others."""
    owner = _owner(tensor)
    if owner != NOWHERE or not hasattr(tensor, "__tensor_flatten__"):
        return owner
    inner = getattr(tensor, tensor.__tensor_flatten__()[0][0], None)
    return _inner_owner(inner) if isinstance(inner, torch.Tensor) else owner


class _ToCopy(torch.autograd.Function):
    """A copy to another device, whose gradient goes the other way."""

    @staticmethod
    def forward(
        ctx: Any,
        source: torch.Tensor,
        target: int,
        dtype: torch.dtype,
        non_blocking: bool,
        layout: Any,
    ) -> torch.Tensor:
        ctx.device, ctx.dtype = source.device, source.dtype
        return _transfer(source, target, dtype, non_blocking, layout)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.to(ctx.device, ctx.dtype), None, None, None, None


def _transfer(
    source: torch.Tensor, target: int, dtype: torch.dtype, non_blocking: bool, layout: Any
) -> torch.Tensor:
    face = current.face()
    if not face.enabled:
        raise RuntimeError(FORKED if target >= 0 else UNINITIALIZED)
    face.backward.follow()
    with Below():
        return face.copier.to(source, target, dtype, non_blocking, layout)


def move(
    tensor: torch.Tensor,
    target: int,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    layout: Any = _SELF,
) -> torch.Tensor:
    """A tensor on `target` (device index or NOWHERE): itself where it is there, else a copy."""
    if transforms.stands_for(tensor) is not None:
        return transforms.inside(
            tensor, lambda inner: move(inner, target, dtype, non_blocking, copy, layout)
        )
    owner = _inner_owner(tensor)
    dtype = dtype or tensor.dtype
    same = owner == target or (owner < 0 and target < 0)
    if target >= 0:
        refuse_unusual("Tensor.to", tensor)
    if same:
        return _ORIGINAL["to"](tensor, dtype, non_blocking, copy, memory_format=layout)  # type: ignore[no-any-return]
    if owner >= 0 and _owner(tensor) == NOWHERE:
        return _move_inner(tensor, target, dtype, non_blocking)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _ToCopy.apply(tensor, target, dtype, non_blocking, layout)  # type: ignore[no-any-return, no-untyped-call]
    with torch.no_grad():
        return _transfer(tensor, target, dtype, non_blocking, layout)


def _move_inner(
    tensor: torch.Tensor, target: int, dtype: torch.dtype, non_blocking: bool
) -> torch.Tensor:
    """A tensor that wraps copies of what `tensor` wraps."""
    wrapper: Any = tensor
    names, context = wrapper.__tensor_flatten__()
    inner = {name: move(getattr(tensor, name), target, dtype, non_blocking) for name in names}
    with torch.no_grad():
        return type(wrapper).__tensor_unflatten__(inner, context, tensor.shape, tensor.stride())  # type: ignore[no-any-return]


def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to``: a device, a dtype, both, or another tensor's."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    rest = list(args)
    if (rest and isinstance(rest[0], torch.Tensor)) or "other" in kwargs:
        other = kwargs.pop("other", None)
        other = rest.pop(0) if other is None else other
        target, dtype = _inner_owner(other), other.dtype
        if target < 0 and other.device.type != "cpu":
            return _ORIGINAL["to"](self, other, *rest, **kwargs)  # type: ignore[no-any-return]
    else:
        if rest and device is None and not isinstance(rest[0], torch.dtype):
            device = rest.pop(0)
        if rest and dtype is None and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            dtype = rest.pop(0)
        owner = _inner_owner(self)
        virtual = current.device_of(device)
        if virtual is not None:
            target = virtual.index
        elif device is None:
            target = owner
        elif torch.device(device).type == "cpu":
            target = NOWHERE
        else:
            return _ORIGINAL["to"](self, device, dtype, *rest, **kwargs)  # type: ignore[no-any-return]
    non_blocking = kwargs.pop("non_blocking", rest.pop(0) if rest else False)
    copy = kwargs.pop("copy", rest.pop(0) if rest else False)
    layout = kwargs.pop("memory_format", rest.pop(0) if rest else _SELF) or _SELF
    if kwargs or rest:
        raise TypeError(f"to() received an invalid combination of arguments: {[*rest, *kwargs]}")
    return move(self, target, dtype, bool(non_blocking), bool(copy), layout)


def copy_(self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
    """``Tensor.copy_``: a gradient that comes from another memory has to find its way back."""
    return _ORIGINAL["copy_"](self, _brought(self, src), non_blocking)  # type: ignore[no-any-return]


def setitem(self: torch.Tensor, index: Any, value: Any) -> None:
    """``Tensor.__setitem__``, likewise."""
    _ORIGINAL["__setitem__"](self, index, _brought(self, value))


def _brought(target: torch.Tensor, value: Any) -> Any:
    """`value` where the target is, if that matters to autograd; else itself."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return value
    to, of = _owner(target), _owner(value)
    if to == of or (to < 0 and of < 0) or not torch.is_grad_enabled():
        return value
    return move(value, to if to >= 0 else NOWHERE)


def cuda(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = _SELF
) -> torch.Tensor:
    """``Tensor.cuda``."""
    return move(self, current.face().device_index(device), None, non_blocking, False, memory_format)


def cpu(self: torch.Tensor, memory_format: Any = _SELF) -> torch.Tensor:
    """``Tensor.cpu``."""
    return move(self, NOWHERE, None, False, False, memory_format)


def device(self: torch.Tensor) -> torch.device:
    """``Tensor.device``."""
    if _META.__get__(self):  # a fake tensor warns of being asked for its address
        return _DEVICE.__get__(self)
    owner = _owner(self)
    if owner >= 0:
        return _DEVICES[owner]
    owner = _inner_owner(self)
    return _DEVICES[owner] if owner >= 0 else _DEVICE.__get__(self)


_DEVICES = [torch.device("cuda", index) for index in range(64)]


def get_device(self: torch.Tensor) -> int:
    """``Tensor.get_device``: the index, or -1."""
    found = device(self)
    return found.index if found.type == "cuda" else -1


def _refuse_numpy(tensor: torch.Tensor) -> None:
    if _owner(tensor) >= 0:
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy"
            " the tensor to host memory first."
        )


def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
    """``Tensor.numpy``: refused for device tensors; of pinned memory, read through the array."""
    if force and _owner(self) >= 0:
        return _ORIGINAL["numpy"](cpu(self.detach()).resolve_conj().resolve_neg())
    _refuse_numpy(self)
    array = _ORIGINAL["numpy"](self, force=force)
    if _owner(self) == PINNED:
        current.face().host.exported(self, array)
    return array


def array(self: torch.Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """``Tensor.__array__``."""
    result = numpy(self)
    return (
        result
        if dtype is None and not copy
        else result.astype(dtype or result.dtype, copy=bool(copy))
    )


def tolist(self: torch.Tensor) -> Any:
    """``Tensor.tolist``: a blocking download, or a read of pinned memory."""
    owner = _owner(self)
    if owner >= 0:
        with torch.no_grad():
            return _ORIGINAL["tolist"](cpu(self))
    if owner == PINNED:
        current.face().host.touch([(self, PINNED, int(Mode.READ), "self")], "Tensor.tolist")
    return _ORIGINAL["tolist"](self)


def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """``Tensor.pin_memory``: a copy in pinned memory, unless it is there."""
    owner = _owner(self)
    if owner >= 0:
        raise RuntimeError(f"cannot pin '{type_name(self)}' only dense CPU tensors can be pinned")
    if owner == PINNED:
        return self
    face = current.face()
    if not face.enabled:
        raise RuntimeError(FORKED)
    with torch.no_grad(), Below():
        result = face.host.new_pinned(self.detach())
        face.host.touch([(result, PINNED, int(Mode.WRITE), "output")], "aten::_pin_memory")
    return result


def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    """``Tensor.is_pinned``."""
    return _owner(self) == PINNED


def record_stream(self: torch.Tensor, stream: DeviceStream) -> None:
    """``Tensor.record_stream`` (M2): for the whole block, whatever part the tensor shows."""
    face = current.face()
    storage = self.untyped_storage()
    address, _ = face.storages.place(storage)
    face.gpu.record_stream(address, stream.native, explicit=True)


def type_name(self: torch.Tensor) -> str:
    """``torch.FloatTensor`` and so on, with ``cuda`` where it is one."""
    name: str = _ORIGINAL["type"](self)
    return name.replace("torch.", "torch.cuda.", 1) if _owner(self) >= 0 else name


def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """``Tensor.type``: the type's name, or a conversion to a dtype or a named type."""
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, torch.dtype):
        return to(self, dtype, non_blocking=non_blocking)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    target = current.face().gpu.thread.device if ".cuda." in name else NOWHERE
    plain = getattr(torch, name.rsplit(".", 1)[1])
    return move(self, target, plain.dtype, non_blocking)


def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``Tensor.type_as``: the dtype and the device of another tensor."""
    return to(self, other)


def new(self: torch.Tensor, *args: Any, device: Any = None) -> torch.Tensor:
    """``Tensor.new``: a tensor of this one's dtype and device, uninitialised or with values."""
    owner = _owner(self)
    if owner < 0:
        return _ORIGINAL["new"](self, *args, **({} if device is None else {"device": device}))  # type: ignore[no-any-return]
    return legacy.make(self.dtype, args, device or _DEVICES[owner])


def new_tensor(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.new_tensor``: values as a tensor of this one's dtype and device."""
    wanted = kwargs.get("device")
    if _owner(self) < 0 and current.device_of(wanted) is None:
        return _ORIGINAL["new_tensor"](self, data, **kwargs)  # type: ignore[no-any-return]
    data = data.detach() if isinstance(data, torch.Tensor) else data
    named = {"dtype": self.dtype, "device": self.device, **kwargs}
    return constructors.tensor(data, **{k: v for k, v in named.items() if v is not None})


def share_memory_(self: torch.Tensor) -> torch.Tensor:
    """``Tensor.share_memory_``: nothing to do for device tensors."""
    return self if _owner(self) >= 0 else _ORIGINAL["share_memory_"](self)


def is_shared(self: torch.Tensor) -> bool:
    """``Tensor.is_shared``: device tensors always are."""
    return _owner(self) >= 0 or _ORIGINAL["is_shared"](self)


def interface(self: torch.Tensor) -> dict[str, Any]:
    """``Tensor.__cuda_array_interface__``."""
    if _owner(self) < 0:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {type_name(self)}"
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't"
            " required, use var.detach() to get Variable that doesn't require grad."
        )
    strides = None if self.is_contiguous() else tuple(s * self.itemsize for s in self.stride())
    kinds = {torch.bool: "|b1", torch.uint8: "|u1", torch.int8: "|i1"}
    letter = "f" if self.is_floating_point() else "c" if self.is_complex() else "i"
    return {
        "typestr": kinds.get(self.dtype, f"<{letter}{self.itemsize}"), "shape": tuple(self.shape),
        "strides": strides, "data": (current.face().tensors.address(self), False), "version": 2,
    }  # fmt: skip


def make_wrapper_subclass(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """``Tensor._make_wrapper_subclass``: refused for the devices, which a CPU build lacks.

    Those of ``torch.distributed`` are made for the host, and `device` asks what they wrap.
    """
    devices = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.device)]
    if any(current.device_of(device) is not None for device in devices):
        if cls.__module__.startswith("torch.distributed."):
            return _make_wrapper_subclass(cls, *args, **{**kwargs, "device": _CPU})
        raise NotCoveredError("Tensor._make_wrapper_subclass", "nested and other wrapped")
    return _make_wrapper_subclass(cls, *args, **kwargs)


_make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass


def replaced() -> dict[str, Any]:
    """Attributes of ``torch.Tensor`` and what stands for them."""
    methods: dict[str, Any] = {
        "to": to, "cuda": cuda, "cpu": cpu, "numpy": numpy, "__array__": array, "tolist": tolist,
        "pin_memory": pin_memory, "is_pinned": is_pinned, "record_stream": record_stream,
        "type": type_, "get_device": get_device, "share_memory_": share_memory_,
        "is_shared": is_shared, "copy_": copy_, "__setitem__": setitem, "type_as": type_as,
        "new": new, "new_tensor": new_tensor,
    }  # fmt: skip
    attributes: dict[str, Any] = {
        "device": device,
        "is_cuda": lambda self: device(self).type == "cuda",
        "is_cpu": lambda self: device(self).type == "cpu",
        "__cuda_array_interface__": interface,
    }
    return {
        **{name: overrides.method(function, name) for name, function in methods.items()},
        **{name: overrides.attribute(getter) for name, getter in attributes.items()},
        "_make_wrapper_subclass": staticmethod(make_wrapper_subclass),
    }

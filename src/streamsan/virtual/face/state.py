"""The torch face of one virtual machine: its parts, and the dispatch mode of its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from streamsan.model.records import Mode
from streamsan.tracebacks import hide_our_frames
from streamsan.virtual.face import library
from streamsan.virtual.face.backward import Backward
from streamsan.virtual.face.copies import Copier, copy_handler, with_tensors
from streamsan.virtual.face.execute import Executor
from streamsan.virtual.face.host import Host
from streamsan.virtual.face.random import Generator, refuse_virtual
from streamsan.virtual.face.schema import PLANS, Operand, Plan, Role, operands
from streamsan.virtual.face.storage import Storages
from streamsan.virtual.face.tensors import Tensors
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.memory import NOWHERE, PINNED

FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"
    " the 'spawn' start method"
)
"""What a CUDA build says in a forked child, where the devices are not to be had."""

UNINITIALIZED = "CUDA error: initialization error"
"""What it says there when a tensor of the parent's is used."""


class Local(threading.local):
    """Per thread: the owner of the last operator's tensors, whether a function is at work that
    takes host tensors beside those of a device, the device of a function that makes tensors for
    itself (or NOWHERE: they go where the last operator's are), and stand-ins for moved arguments.
    """

    def __init__(self) -> None:
        self.last = NOWHERE
        self.mixed = False
        self.home = NOWHERE
        self.placed: dict[int, torch.Tensor] = {}
        self.views: list[torch.Tensor] = []


class Face:
    """Everything torch needs to work with a virtual machine."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.local = Local()
        self.enabled = True
        self.tensors = Tensors(gpu)
        self.generators = [Generator(f"cuda:{index}") for index in range(len(gpu.devices))]
        self.backward = Backward(self)
        self.host = Host(self)
        self.executor = Executor(self)
        self.copier = Copier(self)
        self.storages = Storages(self)

    def device_index(self, device: torch.device | str | int | None) -> int:
        """The virtual device that a ``cuda`` device means; RuntimeError where there is none."""
        if not self.enabled:
            raise RuntimeError(FORKED)
        if device is None:
            return self.gpu.thread.device
        if isinstance(device, int):
            index = device
        else:
            device = torch.device(device)
            named: int | None = device.index
            index = self.gpu.thread.device if named is None else named
        if not 0 <= index < len(self.gpu.devices):
            raise self.gpu.captures.error("invalid device ordinal")
        return index

    @contextmanager
    def at_home(self, device: int) -> Iterator[None]:
        """Tensors that C++ makes for itself in the block go to a device, but for integers."""
        local = self.local
        before = local.home, local.mixed
        local.home, local.mixed = device, device >= 0
        try:
            yield
        finally:
            local.home, local.mixed = before

    def device_of(self, owner: int) -> torch.device:
        """The torch device of an owner."""
        return torch.device("cuda", owner) if owner >= 0 else torch.device("cpu")


_PLAIN = torch.Tensor.__torch_dispatch__
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_fake_mode = torch._C._get_dispatch_mode


class VirtualMode(TorchDispatchMode):
    """Sends operators of device and pinned tensors to the virtual machine."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled on the virtual machine, so the seconds that it takes to import the
        compiler, only to keep it out of this mode, can be saved.
        """
        return False

    def __init__(self, face: Face) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._face = face

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator."""
        try:
            return self._run(func, types, args, kwargs or {})
        except BaseException as error:
            hide_our_frames(error)
            raise

    def _run(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        face = self._face
        if isinstance(func, HigherOrderOperator):
            return library.run_higher_order(func, args, kwargs, self)
        if _fake_mode(_FAKE) is not None:  # below this mode, whenever it was entered
            return func(*args, **kwargs)
        if any(kind.__torch_dispatch__ is not _PLAIN for kind in types):
            # A subclass takes its operators apart, and we see the parts.
            return NotImplemented
        if not face.enabled:
            return in_forked_child(face, func, args, kwargs)
        face.backward.follow()
        plan = PLANS[func]
        if plan.role is Role.COMPOSITE:
            return self._parts(plan, func, args, kwargs)
        if plan.role is Role.COPY:
            return self._copy(func, args, kwargs)
        found = operands(plan, face.tensors.owner, args, kwargs)
        device = NOWHERE
        for _, owner, _, _ in found:
            device = max(device, owner)
        if plan.factory and not library.is_python(func):
            return self._factory(plan, args, kwargs, device)
        return self._work(plan, func, args, kwargs, found, device)

    def _work(
        self,
        plan: Plan,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        found: list[Operand],
        device: int,
    ) -> Any:
        """Run an operator that makes no tensor out of nothing; `device` is that of its tensors."""
        face = self._face
        if device >= 0:
            face.backward.forward(found)
        if found:
            face.local.last = device
        if plan.role is Role.METADATA:
            return metadata(face, plan, func, args, kwargs)
        if library.is_python(func):
            return func(*args, **kwargs)
        return self._compute(plan, func, args, kwargs, found, device)

    def _compute(
        self,
        plan: Plan,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        found: list[Operand],
        device: int,
    ) -> Any:
        face = self._face
        if device >= 0:
            with face.backward.summing(plan.name):
                return face.executor.compute(plan, args, kwargs, found, device)
        if plan.random:
            refuse_virtual(kwargs)
        if device == PINNED:
            return face.host.run(plan, func, args, kwargs)
        return func(*args, **kwargs)

    def _parts(self, plan: Plan, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The parts of an operator, as torch takes it apart or its own kernel calls them."""
        face = self._face
        found = operands(plan, face.tensors.owner, args, kwargs)
        device = max((owner for _, owner, _, _ in found), default=NOWHERE)
        if found:
            face.local.last = device
        if plan.nested:
            with self, face.at_home(device):
                return func.redispatch(_CPU_KEYS, *args, **kwargs)
        with self:
            return func.decompose(*args, **kwargs)

    def _copy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        face = self._face
        args = with_tensors(args)
        face.local.last = face.tensors.owner(args[0])
        if torch.is_grad_enabled():
            face.backward.forward(operands(PLANS[func], face.tensors.owner, args, kwargs))
        return copy_handler(face, func, args, kwargs)

    def _factory(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], like: int) -> Any:
        """A new tensor, where the caller, or the operator that needs it for itself, wants it."""
        face = self._face
        device = kwargs.get("device")
        asked = "pin_memory" in kwargs  # only calls from Python carry it
        if device is not None and device.type == "cuda":
            target = face.device_index(device)
        elif device is not None and device.type != "cpu":
            return plan.op(*args, **kwargs)
        elif asked and kwargs["pin_memory"]:
            target = PINNED
        elif device is None and like >= 0:
            target = like
        elif asked or device is None or (face.local.mixed and not _floating(kwargs)):
            target = NOWHERE
        else:
            target = like if like >= 0 else max(face.local.home, face.local.last)
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        if target < 0 and plan.random:
            refuse_virtual(kwargs)
        if target == NOWHERE or (target == PINNED and not (asked and kwargs["pin_memory"])):
            return plan.op(*args, **options, **({"device": torch.device("cpu")} if device else {}))
        face.local.last = target
        return make(face, plan, args, options, target)


def _floating(options: dict[str, Any]) -> bool:
    dtype = options.get("dtype")
    return dtype is None or dtype.is_floating_point or dtype.is_complex


def in_forked_child(face: Face, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator where there are no devices any more."""
    if getattr(kwargs.get("device"), "type", "") == "cuda":
        raise RuntimeError(FORKED)
    plan = PLANS[func]
    if plan.role is not Role.METADATA:
        found = operands(plan, face.tensors.owner, args, kwargs)
        if any(owner >= 0 for _, owner, _, _ in found):
            raise RuntimeError(UNINITIALIZED)
    return func(*args, **kwargs)


def make(
    face: Face, plan: Plan, args: tuple[Any, ...], options: dict[str, Any], target: int
) -> torch.Tensor:
    """Run a factory operator with its result on a device or in pinned memory."""
    cpu = torch.device("cpu")
    if plan.uninitialized:
        layout = plan.op(*args, **{**options, "device": torch.device("meta")})
        with face.gpu.monitor:
            return face.executor.guarded_new(
                target, layout.dtype, tuple(layout.shape), layout.stride()
            )
    if target == PINNED:
        value = plan.op(*args, **options, device=cpu)
        result = face.host.new_pinned(value)
        face.host.touch([(result, PINNED, int(Mode.WRITE), "output")], plan.name)
        return result
    return face.executor.produce(plan, args, {**options, "device": cpu}, target)


def metadata(
    face: Face, plan: Plan, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Operators that touch no bytes, among them a few whose answer is ours to give."""
    base = plan.name.removeprefix("aten::").split(".")[0]
    if base == "is_pinned":
        return face.tensors.owner(args[0]) == PINNED
    if base in ("resize_", "resize_as_") and face.tensors.owner(args[0]) >= 0:
        other = args[1]
        sizes = tuple(other.shape) if isinstance(other, torch.Tensor) else tuple(other)
        layout = kwargs.get("memory_format")
        if layout is torch.preserve_format and isinstance(other, torch.Tensor):
            strides = torch.empty_like(other, device="meta").stride()
        else:
            layout = None if layout is torch.preserve_format else layout
            strides = torch.empty(sizes, device="meta", memory_format=layout).stride()
        return face.storages.resize_tensor(args[0], sizes, strides)
    if base == "inductor::resize_storage_bytes_" and face.tensors.owner(args[0]) >= 0:
        face.storages.resize(args[0].untyped_storage(), int(args[1]))
        return None
    return func(*args, **kwargs)

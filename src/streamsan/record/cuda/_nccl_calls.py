"""What a collective is that is about to be issued: its name, its group, and what it touches.

It is issued by an operator of ``torch.ops.c10d``, or by a method of a backend object, which passes
by the dispatcher. What either does with its arguments is told by `collective_ops` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.virtual.face.collective_ops import Form, MethodCall, argument, form_of, tensors_in
from streamsan.virtual.memory import NOWHERE

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder
    from streamsan.virtual.face.schema import Operand


@dataclass(frozen=True)
class Communicator:
    """Who carries out a collective: `backend` is the name of its kind, `key` tells groups apart,
    and `name` is what their streams are called.
    """

    backend: str
    key: str
    name: str


@dataclass
class Call:
    """A collective about to be issued: what it is, on which device, what it touches.

    `peer` is the other rank of a message, None where it is no message.
    """

    form: Form
    communicator: Communicator
    peer: int | None
    device: int
    found: list[Operand]
    accesses: list[r.Access]

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.communicator.backend}::{self.form.name}"

    @property
    def barrier(self) -> bool:
        """Whether it is nothing but a barrier."""
        return self.form.name == "barrier"


def of_operator(
    recorder: CudaRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call | None:
    """A call of an operator; None where it is no collective."""
    form = form_of(func)
    if form is None:
        return None

    def value(name: str) -> Any:
        return argument(func, name, args, kwargs)

    group = value("process_group")
    if isinstance(group, torch.ScriptObject):
        group = torch._C._distributed_c10d.ProcessGroup.unbox(group)
    root, target = value("root_rank"), value("dst")
    found = _operands(
        recorder, form, root in (None, group.rank()), lambda name: tensors_in(value(name))
    )
    device = _device(found)
    if not found:  # a barrier: its device is that of a tensor made for the dispatcher
        tensor = value("tensor")
        device = tensor.get_device() if tensor is not None and tensor.is_cuda else NOWHERE
    kind = torch.device("cuda", device) if device >= 0 else torch.device("cpu")
    backend = group._get_backend(kind).name()
    communicator = Communicator(backend, group.group_name, f"{backend} {group.group_desc}")
    peer = value("src") if target is None else target
    return Call(form, communicator, peer, device, found, recorder.accesses(found))


def of_method(recorder: CudaRecorder, backend: Any, call: MethodCall) -> Call:
    """A call of a method of a backend object."""
    form = call.form
    found = _operands(recorder, form, call.root == backend.rank(), call.tensors)
    device = _device(found)
    if not found and backend.name() == "nccl":  # a barrier (ProcessGroupNCCL::barrier)
        bound = getattr(backend, "bound_device_id", None)
        device = torch.cuda.current_device() if bound is None else bound.index
        device = device if call.device is None else call.device
    return Call(form, communicator_of(backend), call.peer, device, found, recorder.accesses(found))


def communicator_of(backend: Any) -> Communicator:
    """The communicator that a backend object is: that of its group, or one made by hand."""
    kind = backend.name()
    find: Any = torch._C._distributed_c10d._resolve_process_group
    try:
        group = find(backend.options.group_name)
        return Communicator(kind, group.group_name, f"{kind} {group.group_desc}")
    except (AttributeError, RuntimeError):  # no group has that name, or there is none
        number = getattr(backend, "uid", id(backend))  # in this process
        return Communicator(kind, f"{kind} {number}", f"{kind} {number}")


def _operands(
    recorder: CudaRecorder, form: Form, root: bool, given: Callable[[str], Iterable[torch.Tensor]]
) -> list[Operand]:
    return [
        (tensor, recorder.owner(tensor), mode, "input" if mode == r.Mode.READ else "output")
        for name, mode in form.modes_of(root).items()
        for tensor in given(name)
    ]


def _device(found: list[Operand]) -> int:
    return max((owner for _, owner, _, _ in found), default=NOWHERE)

"""Custom operators (``torch.library``) on a CUDA device.

A kernel that was registered from Python is a piece of the program: the operators and launches in it
are seen one by one, on the streams where they run. What its schema declares, and no part of the
body that was seen touches, is left to code that we do not see (an extension, a library): it is
reported as the operator's own access, for certain where nothing at all was seen of the body, else
as a possible one. An operator whose kernel is C++ is known by its schema alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.library import Library

from streamsan.model import records as r
from streamsan.model.extent import span
from streamsan.record.cuda._operators import Computation
from streamsan.virtual.face.library import (
    full_name,
    hide_mode,
    is_program,
    is_python,
    watch_kernel,
)
from streamsan.virtual.face.schema import Plan

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_ON_DEVICE = ("CUDA", "CompositeExplicitAutograd")


def install_custom(mode: Callable[[], Any]) -> None:
    """Watch registrations from now on; `mode` makes the recorder's dispatch mode."""
    original: Any = Library.impl

    def impl(self: Library, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        key = dispatch_key or self.dispatch_key
        if key in _ON_DEVICE and is_program(self, key, fn, options):
            fn = watch_kernel(full_name(self, op_name), key, fn, mode)
        original(self, op_name, fn, dispatch_key, **options)

    Library.impl = impl  # type: ignore[method-assign]
    hide_mode()


def has_body(plan: Plan) -> bool:
    """Whether the operator's kernel is a piece of the program that is being watched."""
    return plan.custom and is_python(plan.op)


def run_body(
    recorder: CudaRecorder, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a custom operator; what its body did not show is reported behind it."""
    operator, declared = Computation(recorder, plan), list[r.Access]()
    device = recorder._guarded(lambda: operator.before(args, kwargs, declared))
    local = recorder.local
    seen: list[r.Access] = []
    outer, local.body = local.body, seen
    try:
        result = plan.op(*args, **kwargs)
    finally:
        local.body = outer
        if outer is not None:
            outer.extend(seen)
    if device is None:
        return result
    seen = [access for access in seen if access.confidence != r.Confidence.POSSIBLE]
    if seen:
        recorder._guarded(lambda: _report_rest(recorder, plan, device, declared, seen, result))
    else:
        recorder._guarded(lambda: operator.after(device, result, args, kwargs, declared))
    return result


def _report_rest(
    recorder: CudaRecorder,
    plan: Plan,
    device: int,
    declared: list[r.Access],
    seen: Sequence[r.Access],
    result: Any,
) -> None:
    outputs = [value for value in _listed(result) if isinstance(value, torch.Tensor)]
    written = [(t, recorder.owner(t), int(r.Mode.WRITE), "output") for t in outputs]
    possible = int(r.Confidence.POSSIBLE)
    rest = [
        msgspec.structs.replace(access, confidence=possible)
        for access in [*declared, *recorder.accesses(written)]
        if access.space != r.HOST and not any(_covers(other, access) for other in seen)
    ]
    device = max([device, *(owner for _, owner, _, _ in written)])
    if rest and device >= 0:
        recorder.operation(plan.kind, plan.name, recorder.streams.current(device), rest)


def _covers(seen: r.Access, declared: r.Access) -> bool:
    """Whether an access that was seen shows what an argument was declared for."""
    if seen.space != declared.space or (declared.mode & r.Mode.WRITE and seen.mode == r.Mode.READ):
        return False
    low, high = _span(declared)
    first, end = _span(seen)
    return first < high and low < end


def _span(access: r.Access) -> tuple[int, int]:
    return span((access.address, access.run, access.sizes, access.strides))


def _listed(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (list, tuple)) else (result,)

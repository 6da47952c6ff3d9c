"""The dispatch mode that shows the CUDA recorder the operators of one thread.

It runs for every operator of the program, views included, so each overload's treatment is looked up
once, and one that touches no bytes is passed on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from streamsan.record import _core
from streamsan.record.cuda._copies import Copy
from streamsan.record.cuda._operators import Arguments, Computation, Keywords, Reported, run
from streamsan.record.kernels.custom import has_body, run_body
from streamsan.tracebacks import hide_our_frames
from streamsan.virtual.face.library import run_higher_order
from streamsan.virtual.face.schema import PLANS, Plan, Role

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_PLAIN = torch.Tensor.__torch_dispatch__
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_mode_of = torch._C._get_dispatch_mode

Handler = Callable[[Any, Arguments, Keywords], Any]
"""Runs an operator: ``handler(call, args, kwargs)``, where `call` is what calls it."""

Route = tuple[Any, "Reported | None", "Handler | None", OpOverload]
"""What calls an operator; how it is reported; what runs it instead; and the operator."""


class Routes(dict[int, Route]):
    """The treatment of each operator overload, by its identity: its hash is a call of its own."""

    def __init__(self, recorder: CudaRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def find(self, func: OpOverload) -> Route:
        """The treatment of an operator."""
        # Below OpOverload.__call__, which only passes everything on.
        call = func._op if type(func) is OpOverload else func
        plan = PLANS[func]
        reported, handler = self._reported(plan), self._handler(plan)
        compiled = self._recorder.recording
        described = None if reported is None else reported.compiled()
        if compiled is not None and described is not None:
            reported = handler = _core.operator(compiled, described)
        route = self[id(func)] = (call, reported, handler, func)
        return route

    def _reported(self, plan: Plan) -> Reported | None:
        """How an operator that touches bytes is reported, and nothing else is to be done."""
        if plan.custom or plan.role not in (Role.COMPUTE, Role.COPY):
            return None
        return (Copy if plan.role is Role.COPY else Computation)(self._recorder, plan)

    def _handler(self, plan: Plan) -> Handler | None:
        """What runs and reports any other, None where there is nothing to report."""
        recorder = self._recorder
        if plan.role is Role.COLLECTIVE:
            return lambda call, args, kwargs: recorder.collectives.run(plan.op, args, kwargs)
        if plan.role is Role.COMPOSITE:
            return lambda call, args, kwargs: _in_parts(recorder, plan, args, kwargs)
        if plan.role is Role.METADATA:
            return self._metadata(plan)
        if not plan.custom:
            return None
        reported: Reported = (Copy if plan.role is Role.COPY else Computation)(recorder, plan)

        def custom(call: Any, args: Arguments, kwargs: Keywords) -> Any:
            if has_body(plan):
                return run_body(recorder, plan, args, kwargs)
            return run(recorder, reported, call, args, kwargs)

        return custom

    def _metadata(self, plan: Plan) -> Handler | None:
        """The same for one that touches no bytes, though it may mean something."""
        recorder = self._recorder

        def record_stream(call: Any, args: Arguments, kwargs: Keywords) -> Any:
            recorder._guarded(lambda: recorder.blocks.record_torch_stream(args[0], args[1]))
            return call(*args, **kwargs)

        def resize(call: Any, args: Arguments, kwargs: Keywords) -> Any:
            if not args[0].is_cuda:
                pinned = recorder._guarded(lambda: recorder.blocks.is_pinned(args[0]))
                result = call(*args, **kwargs)
                if pinned:  # it is so wherever it has moved
                    recorder._guarded(lambda: recorder.blocks.pinned.check(args[0]))
                return result
            return recorder.resize(plan.name, args[0].untyped_storage(), call, args, kwargs)

        def view(call: Any, args: Arguments, kwargs: Keywords) -> Any:
            """The backward of these computes, so their forward line is wanted."""
            try:
                if args[0].requires_grad and torch.is_grad_enabled():
                    note()
            except Exception as error:
                recorder.observer.internal_error(error)
            return call(*args, **kwargs)

        note = recorder.nodes.note if recorder.recording is None else recorder.recording.note
        return {
            "aten::record_stream": record_stream,
            "aten::resize_": resize,
            "aten::resize_as_": resize,
            "inductor::resize_storage_bytes_": resize,
            "aten::expand": view,
            "aten::view": view,
        }.get(plan.name)


def _in_parts(recorder: CudaRecorder, plan: Plan, args: Arguments, kwargs: Keywords) -> Any:
    """Run an operator that is made of others, which are seen instead."""
    with CudaMode(recorder):
        if plan.nested:
            return plan.op.redispatch(recorder.keys(plan, args, kwargs), *args, **kwargs)
        return plan.op.decompose(*args, **kwargs)


def _skipped_by_dynamo(code: CodeType) -> bool:
    """Have torch.compile leave a function, and what it calls, alone; whether that could be done.

    torch's own way is a wrapper around each call, which takes longer than the empty mode itself.
    """
    try:
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    except (ImportError, AttributeError):
        return False
    return True


class CudaMode(TorchDispatchMode):
    """Shows the recorder the operators of one thread."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return not _skipped_by_dynamo(cls.__dict__["__torch_dispatch__"].__code__)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Yes: torch.compile would run everything uncompiled under this mode otherwise."""
        return True

    def __init__(self, recorder: CudaRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder
        self._routes = recorder.routes

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator."""
        route = self._routes.get(id(func))
        if route is None:
            if isinstance(func, HigherOrderOperator):
                return run_higher_order(func, args, kwargs or {}, self)
            route = self._routes.find(func)
        if types and any(kind.__torch_dispatch__ is not _PLAIN for kind in types):
            if _mode_of(_FAKE) is not None:  # below this mode, whenever it was entered
                return func(*args, **(kwargs or {}))
            # A subclass takes its operators apart, and we see the parts.
            return NotImplemented
        call, reported, handle, _ = route
        recorder = self._recorder
        try:
            if recorder.arena is not None:
                return self._in_arena(call, reported, handle, args, kwargs or {})
            if handle is not None:
                if recorder.enabled and recorder.observer.recording:
                    return handle(call, args, kwargs or {})
            elif reported is not None and recorder.enabled and recorder.observer.recording:
                return run(recorder, reported, call, args, kwargs or {})
            return call(*args, **kwargs) if kwargs else call(*args)
        except BaseException as error:
            if recorder.keeps_errors:
                hide_our_frames(error)
            raise

    def _in_arena(
        self,
        call: Any,
        reported: Reported | None,
        handle: Handler | None,
        args: Arguments,
        kwargs: Keywords,
    ) -> Any:
        """Run an operator whose requests for memory may be one of ours that fails."""
        recorder, arena = self._recorder, self._recorder.arena
        assert arena is not None
        arena.raise_interrupt()
        try:
            if recorder.enabled and recorder.observer.recording:
                if reported is not None:
                    return run(recorder, reported, call, args, kwargs)
                if handle is not None:
                    return handle(call, args, kwargs)
            return call(*args, **kwargs)
        except (MemoryError, RuntimeError) as error:
            failure = arena.take_failure(error)
            if failure is None:
                raise
            raise failure from None

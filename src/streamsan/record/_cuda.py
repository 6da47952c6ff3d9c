"""The recorder of CUDA devices: what torch's dispatcher and its GPU trace show, put in order.

Operators are seen by a dispatch mode, below autograd. Events, waits, synchronisations, frees and
allocations come from the callbacks of ``torch.cuda._gpu_trace``, also from inside of operators:
those are kept until the operator's own accesses have been reported, since an operator touches its
bytes before it synchronises (rule C7).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from streamsan.model import records as r
from streamsan.model.extent import canonical
from streamsan.record._cuda_memory import Blocks, has_bytes
from streamsan.record._cuda_patches import install_patches
from streamsan.record._cuda_streams import Streams
from streamsan.record._observer import Observer
from streamsan.virtual.face.copies import copy_kind, same_layout
from streamsan.virtual.face.exports import Exports
from streamsan.virtual.face.nodes import Nodes, current_node
from streamsan.virtual.face.schema import PLANS, Operand, Plan, Role, operands
from streamsan.virtual.memory import NOWHERE, PINNED

if TYPE_CHECKING:
    from streamsan.record._arena import Arena

_HIDDEN = (
    "kernels that do not go through torch's dispatcher (Triton, torch.compile, CuPy, extensions)",
    "the own streams of collectives",
)


class Local(threading.local):
    """Per thread: what happened inside of the operator at work; None outside of operators.

    `operands` are the addresses of its tensors' blocks, known where an arena asks for them.
    """

    inside: list[Callable[[], None]] | None = None
    operands: frozenset[int] = frozenset()


class CudaRecorder:
    """Watches the CUDA devices of this process."""

    def __init__(self, observer: Observer, arena: Arena | None = None) -> None:
        """`arena` is torch's allocator where that is one of ours."""
        self.observer = observer
        self.arena = arena
        self.local = Local()
        self.streams = Streams(observer)
        self.blocks = Blocks(observer, self.streams, arena)
        self.nodes = Nodes(observer.stack)
        self.exports = Exports(observer)
        self.callers: list[tuple[int, int, int]] = []
        self.enabled = True
        if arena is not None:
            arena.recorder = self
        observer.foreign = lambda: self.callers[-1][0] if self.callers else r.NONE

    def install(self) -> None:
        """Start to watch, for the rest of the process."""
        torch.cuda.init()
        self.streams.define(torch.cuda.current_device(), 0)
        install_patches(self)
        for text in _HIDDEN:
            self.observer.note("blind-spot", text)
        self.enter_thread()

    def enter_thread(self) -> None:
        """Watch the operators of the calling thread."""
        CudaMode(self).__enter__()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Stop watching: this is a forked child."""
        self.enabled = False
        if self.arena is not None:
            self.arena.leave()

    def owner(self, tensor: torch.Tensor) -> int:
        """Device index of a tensor, PINNED, or NOWHERE."""
        if tensor.is_cuda:
            return tensor.get_device() if has_bytes(tensor) else NOWHERE
        return PINNED if self.blocks.is_pinned(tensor) else NOWHERE

    # -- one operator -----------------------------------------------------------------------------

    def run(self, plan: Plan, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator once, whatever happens in here, and report it."""
        before = self._guarded(lambda: self._before(plan, args, kwargs))

        def report(result: Any) -> None:
            if before is not None:
                self._after(plan, before, args, kwargs, result)

        return self._call(func, args, kwargs, report)

    def resize(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``resize_``: more memory for a device tensor gets what the old one held (rule S1)."""
        tensor = args[0]
        storage = tensor.untyped_storage()
        old = self._guarded(lambda: self._bytes(storage, int(r.Mode.READ)))

        def report(_: Any) -> None:
            new = self._bytes(storage, int(r.Mode.WRITE))
            if old is not None and new is not None and old.address != new.address:
                kept = msgspec.structs.replace(new, run=min(old.run, new.run))
                self._moved(tensor, (old, kept))

        return self._call(func, args, kwargs, report)

    def _call(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        report: Callable[[Any], None],
    ) -> Any:
        """Call an operator; `report` it, and then what happened inside of it (rule C7)."""
        local, outer = self.local, self.local.inside
        outer_operands = local.operands
        held: list[Callable[[], None]] = []
        local.inside = held
        if self.arena is not None:
            local.operands = frozenset(_blocks(args))
        try:
            result = func(*args, **kwargs)
            local.inside = outer
            self._guarded(lambda: report(result))
            return result
        finally:
            local.inside, local.operands = outer, outer_operands
            self._guarded(lambda: _replay(held))

    def _bytes(self, storage: torch.UntypedStorage, mode: int) -> r.Access | None:
        """All bytes of a storage, if it has any."""
        if not storage.nbytes():
            return None
        device = storage.device.index
        self.blocks.seen(torch.empty(0, device=storage.device).set_(storage), device)
        return r.Access(device, storage.data_ptr(), storage.nbytes(), (), (), mode, "self")

    def _moved(self, tensor: torch.Tensor, accesses: tuple[r.Access, r.Access]) -> None:
        stream = self.streams.current(tensor.get_device())
        copy = int(r.CopyKind.DEVICE_TO_DEVICE)
        self.operation(int(r.OpKind.COPY), "aten::resize_", stream, accesses, copy)

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            self.observer.internal_error(error)
            return None

    def _before(
        self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Operand], list[r.Access]]:
        """The tensor arguments and what they touch, as they are before the operator runs."""
        found = operands(plan, self.owner, args, kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor, _, _, _ in found):
            self.nodes.note()
        return found, self.accesses(found)

    def accesses(self, found: Sequence[Operand]) -> list[r.Access]:
        """What operands touch in device and pinned memory."""
        touched = []
        for tensor, owner, mode, argument in found:
            if not mode or owner == NOWHERE or tensor.layout is not torch.strided:
                continue
            extent = canonical(
                tensor.data_ptr(), tensor.itemsize, tuple(tensor.shape), tensor.stride()
            )
            if extent is not None:
                self.blocks.seen(tensor, owner)
                space = r.HOST if owner == PINNED else owner
                touched.append(r.Access(space, *extent, mode, argument))
        return touched

    def _after(
        self,
        plan: Plan,
        before: tuple[list[Operand], list[r.Access]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        found, accesses = before
        outputs = [
            value
            for value in (result if isinstance(result, (list, tuple)) else (result,))
            if isinstance(value, torch.Tensor)
        ]
        fresh = [] if "fresh" not in plan.returns else outputs
        if plan.role is Role.COPY:
            self._copy(plan, found, args, kwargs, outputs)
            return
        for tensor in fresh:
            if not tensor.is_cuda:
                self.blocks.maybe_pinned(tensor, kwargs)
        produced = [] if plan.uninitialized else fresh
        accesses += self.accesses([(t, self.owner(t), r.Mode.WRITE, "output") for t in produced])
        if not accesses:
            return
        device = max((owner for _, owner, _, _ in found), default=NOWHERE)
        device = max([device, *(self.owner(t) for t in produced)])
        if device < 0:
            self.operation(int(r.OpKind.HOST), plan.name, self.observer.thread(), accesses)
            return
        stream = self.streams.current(device)
        self.operation(plan.kind, plan.name, stream, accesses)
        if current_node() is not None:
            for tensor, owner, _, _ in found:
                if owner >= 0:
                    self.blocks.engine_records(tensor, stream)
        if plan.synchronizes:
            self._synchronized(stream)

    def _synchronized(self, stream: int) -> None:
        self.observer.emit(r.StreamSync(stream, self.observer.thread(), self.stack()))

    def stack(self) -> int:
        """The stack to report: in the engine's threads, that of the call of backward."""
        stack = self.observer.stack()
        callers = self.callers
        if callers and threading.get_ident() != callers[-1][2]:
            return stack if self.observer.is_user_stack(stack) else callers[-1][1]
        return stack

    def operation(
        self, kind: int, name: str, timeline: int, accesses: Sequence[r.Access], copy: int = 0
    ) -> None:
        """Report an operation of the calling thread, captured or not."""
        node, forward = self.nodes.running()
        extra: dict[str, Any] = {}
        capture = self.streams.capture_of(timeline)
        if capture is not None:
            capture.accesses.extend(accesses)
            extra.update(graph=capture.number, captured=True)
        context = self.streams.context(timeline)
        if context != r.NONE:
            extra["context"] = context
        self.observer.operation(
            kind,
            name,
            timeline,
            tuple(accesses),
            copy=copy,
            node=node,
            forward=forward,
            stack=self.stack(),
            **extra,
        )

    # -- copies (rules C1 to C8) ------------------------------------------------------------------

    def _copy(
        self,
        plan: Plan,
        found: list[Operand],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: list[torch.Tensor],
    ) -> None:
        if plan.name == "aten::copy_":
            target, source = args[0], args[1]
            non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        else:
            target, source = outputs[0], args[0]
            non_blocking = bool(kwargs.get("non_blocking", False))
        for tensor, other in ((target, source), (source, target)):
            if other.is_cuda and not tensor.is_cuda:
                self.blocks.check_pinned(tensor)
        to, of = self.owner(target), self.owner(source)
        ends = [(source, of, int(r.Mode.READ), "src"), (target, to, int(r.Mode.WRITE), "self")]
        if to < 0 and of < 0:
            accesses = self.accesses(ends)
            if accesses:
                self.operation(int(r.OpKind.HOST), plan.name, self.observer.thread(), accesses)
            return
        host, other = (target, source) if to < 0 else (source, target)
        kind = copy_kind(of, to, same_layout(host, other))
        stream = self.streams.current(of if kind == r.CopyKind.PEER else max(to, of))
        if kind == r.CopyKind.PEER:
            self.streams.order(self.streams.current(to), stream)
        if kind == r.CopyKind.PAGEABLE_TO_DEVICE and of == PINNED:
            self.operation(
                int(r.OpKind.HOST), plan.name, self.observer.thread(), self.accesses(ends[:1])
            )
        self.operation(
            int(r.OpKind.COPY), "aten::copy_", stream, self.accesses(_device_ends(kind, ends)), kind
        )
        self._settle(kind, stream, host, to, non_blocking)

    def _settle(
        self, kind: int, stream: int, host: torch.Tensor, to: int, non_blocking: bool
    ) -> None:
        if kind == r.CopyKind.PEER:
            self.streams.order(stream, self.streams.current(to))
        elif kind == r.CopyKind.DEVICE_TO_DEVICE:
            return
        elif kind == r.CopyKind.DEVICE_TO_PAGEABLE or not non_blocking:
            self._synchronized(stream)
        elif kind in (r.CopyKind.HOST_TO_DEVICE, r.CopyKind.DEVICE_TO_HOST):
            self.blocks.record_stream(host, stream, explicit=False)


def _device_ends(kind: int, ends: list[Operand]) -> list[Operand]:
    """The ends of a copy that its transfer touches: pageable memory is staged by the host."""
    if kind == r.CopyKind.PAGEABLE_TO_DEVICE:
        return ends[1:]
    return ends[:1] if kind == r.CopyKind.DEVICE_TO_PAGEABLE else ends


def _blocks(arguments: Sequence[Any]) -> Iterator[int]:
    """Addresses of the blocks of device tensors among the arguments of an operator."""
    for value in arguments:
        if isinstance(value, torch.Tensor):
            if value.is_cuda and value.layout is torch.strided and has_bytes(value):
                yield value.untyped_storage().data_ptr()
        elif isinstance(value, (list, tuple)):
            yield from _blocks(value)


def _replay(held: Sequence[Callable[[], None]]) -> None:
    for work in held:
        work()


class CudaMode(TorchDispatchMode):
    """Shows the recorder the operators of one thread."""

    def __init__(self, recorder: CudaRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator."""
        arena = self._recorder.arena
        if arena is None:
            return self._run(func, args, kwargs or {})
        arena.raise_interrupt()
        try:
            return self._run(func, args, kwargs or {})
        except (MemoryError, RuntimeError) as error:
            failure = arena.take_failure(error)
            if failure is None:
                raise
            raise failure from None

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder = self._recorder
        if not recorder.enabled or not recorder.observer.recording:
            return func(*args, **kwargs)
        plan = PLANS[func]
        if plan.role is Role.COMPOSITE:
            with self:
                return func.decompose(*args, **kwargs)
        if plan.role is Role.METADATA:
            if plan.name == "aten::record_stream":
                recorder._guarded(lambda: recorder.blocks.record_torch_stream(args[0], args[1]))
            elif plan.name in ("aten::resize_", "aten::resize_as_") and args[0].is_cuda:
                return recorder.resize(func, args, kwargs)
            elif plan.name in ("aten::expand", "aten::view") and torch.is_grad_enabled():
                recorder._guarded(recorder.nodes.note)
            return func(*args, **kwargs)
        return recorder.run(plan, func, args, kwargs)

"""The recorder of CUDA devices: what torch's dispatcher and its GPU trace show, put in order.

Operators are seen by a dispatch mode, below autograd. Events, waits, synchronisations, frees and
allocations come from the callbacks of ``torch.cuda._gpu_trace``, also from inside of operators:
those are kept until the operator's own accesses have been reported, since an operator touches its
bytes before it synchronises (rule C7).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

from streamsan.model import records as r
from streamsan.model.extent import canonical
from streamsan.record import _core
from streamsan.record._observer import Observer
from streamsan.record._portable import OWN, UNKNOWN, Work
from streamsan.record.cuda._cache import Cache
from streamsan.record.cuda._dispatch import Dispatch, open_dispatch
from streamsan.record.cuda._memory import Blocks, has_bytes
from streamsan.record.cuda._mode import CudaMode, Routes
from streamsan.record.cuda._nccl import Collectives
from streamsan.record.cuda._operators import Resizing, Running, run
from streamsan.record.cuda._patches import install_patches
from streamsan.record.cuda._streams import Streams
from streamsan.record.kernels import install_kernels
from streamsan.virtual.face.exports import Exports
from streamsan.virtual.face.nodes import Nodes, current_node, sequence_number
from streamsan.virtual.face.schema import Operand, Plan, operands
from streamsan.virtual.memory import NOWHERE, PINNED

if TYPE_CHECKING:
    from streamsan.record._arena import Arena


class Threads(threading.local):
    """Each thread's work."""

    def __init__(self) -> None:
        self.work: Work = _core.Work()


class CudaRecorder:
    """Watches the CUDA devices of this process."""

    def __init__(self, observer: Observer, arena: Arena | None = None) -> None:
        """`arena` is torch's allocator where that is one of ours."""
        self.observer = observer
        self.arena = arena
        self._threads = Threads()
        self.streams = Streams(observer)
        self.blocks = Blocks(observer, self.streams, arena)
        self.collectives = Collectives(self)
        self.touching = self.blocks.touching(self._touch)
        self.nodes = Nodes(self.stack)
        self.exports = Exports(observer)
        self.callers: list[tuple[int, int, int]] = []
        self.cache = Cache(observer)
        self.recording = None if arena is not None else _core.recording(self._parts())
        """What does all this in compiled code, None where that is not to be had."""
        self.routes = Routes(self)
        self.dispatch: Dispatch | None = None
        self.enabled = True
        self.keeps_errors = False
        """Whether no exception is lost while tensors are dropped: see `_pending`."""
        if arena is not None:
            arena.recorder = self
        observer.foreign = lambda: self.callers[-1][0] if self.callers else r.NONE

    def install(self) -> None:
        """Start to watch, for the rest of the process."""
        if self.arena is None:  # whose failures pass through the mode
            self.dispatch = open_dispatch(self)
        install_patches(self)
        install_kernels(self, lambda: CudaMode(self))
        self.enter_thread()

    def _parts(self) -> _core.Parts:
        """What the compiled recording works with."""
        observer, streams, blocks = self.observer, self.streams, self.blocks
        return _core.Parts(
            accesses=self.touching,
            outlet=observer.outlet,
            threads=self._threads,
            observer=observer,
            captures=streams.under_way,
            known=streams.known,
            current=streams.current,
            blocks=blocks.by_address,
            allocator=blocks,
            handed_out=self.cache.handed_out,
            allocated=blocks.allocated,
            seen=blocks.seen,
            in_flight=blocks.in_flight,
            give_up=blocks.give_up,
            next_number=observer.next_number,
            stacks=observer.stacks,
            user_stacks=observer.user_stacks,
            callers=self.callers,
            thread=observer.thread,
            error=observer.internal_error,
            node=current_node,
            device=torch._C._cuda_getDevice,
            raw_stream=torch._C._cuda_getCurrentRawStream,
            grad=torch.is_grad_enabled,
            notes=self.nodes.notes,
            sequence=sequence_number,
            note=self.nodes.note,
            emit=observer.outlet.emit,
            begin=functools.partial(Running, self),
            synchronized=self.synchronized,
            partial=functools.partial,
            operation=r.Operation,
            alloc=r.Alloc,
            free=r.Free,
        )

    def enter_thread(self) -> None:
        """Watch the operators of the calling thread."""
        if self.dispatch is not None:
            self.dispatch.enter_thread()
        else:
            CudaMode(self).__enter__()  # type: ignore[no-untyped-call]

    @property
    def sees_below_modes(self) -> bool:
        """Whether operators are seen that are called with all dispatch modes switched off."""
        return self.dispatch is not None

    def hidden(self) -> AbstractContextManager[None]:
        """Operators that the calling thread runs in there are torch's own, and none of ours."""
        if self.dispatch is not None:
            return self.dispatch.hidden()
        ours = isinstance(_get_current_dispatch_mode(), CudaMode)
        return _pop_mode_temporarily() if ours else nullcontext()

    def leave(self) -> None:
        """Stop watching: this is a forked child."""
        self.enabled = False
        if self.recording is not None:
            self.recording.enabled = False
        if self.dispatch is not None:
            self.dispatch.leave_thread()
        if self.arena is not None:
            self.arena.leave()

    def owner(self, tensor: torch.Tensor) -> int:
        """Device index of a tensor, PINNED, or NOWHERE."""
        if tensor.is_cuda:
            return tensor.get_device() if has_bytes(tensor) else NOWHERE
        return PINNED if self.blocks.is_pinned(tensor) else NOWHERE

    def keys(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The key of the kernel that an operator written in terms of others has for its tensors."""
        found = operands(plan, self.owner, args, kwargs)
        key = torch._C.DispatchKey
        return torch._C.DispatchKeySet(key.CUDA if any(t.is_cuda for t, *_ in found) else key.CPU)

    @property
    def local(self) -> Work:
        """What the calling thread is at."""
        return self._threads.work

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            self.observer.internal_error(error)
            return None

    def accesses(self, found: Sequence[Operand]) -> list[r.Access]:
        """What operands touch in device and pinned memory."""
        touched: list[r.Access] = []
        for tensor, _, mode, argument in found:
            self._touch(tensor, mode, argument, touched)
        return touched

    def _touch(
        self, tensor: torch.Tensor, mode: int, argument: str, accesses: list[r.Access]
    ) -> int:
        """Append what a tensor touches in device and pinned memory; its owner."""
        owner = self.owner(tensor)
        if not mode or owner == NOWHERE or tensor.layout is not torch.strided:
            return owner
        sizes, strides = tuple(tensor.shape), tensor.stride()
        extent = canonical(tensor.data_ptr(), tensor.itemsize, sizes, strides)
        if extent is not None:
            self.blocks.seen(tensor, owner)
            space = r.HOST if owner == PINNED else owner
            accesses.append(r.Access(space, *extent, mode, argument))
        return owner

    def resize(
        self,
        name: str,
        storage: torch.UntypedStorage,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call what resizes a storage of a device, and report what that does."""
        return run(self, Resizing(self, name, storage), func, args, kwargs)

    def synchronized(self, stream: int) -> None:
        """The calling thread has waited for a stream."""
        self.observer.emit(r.StreamSync(stream, self.thread(), self.stack()))

    def stack(self) -> int:
        """The stack to report: in the engine's threads, that of the call of backward."""
        work = self._threads.work
        stack = work.stack
        if stack == OWN:
            return self._walked()
        if stack == UNKNOWN:
            stack = work.stack = self._walked()
        return stack

    def thread(self) -> int:
        """Timeline of the calling thread."""
        work = self._threads.work
        thread = work.thread
        if thread == OWN:
            return self.observer.thread()
        if thread == UNKNOWN:
            thread = work.thread = self.observer.thread()
        return thread

    def divide(self) -> None:
        """There are green contexts from now on."""
        self.streams.divide()
        if self.recording is not None:
            self.recording.divided = True

    def context(self, timeline: int) -> int:
        """The stream of the enclosing context, where that is another one."""
        contexts = self.local.contexts
        return contexts[-1] if len(contexts) > 1 and contexts[-1] != timeline else r.NONE

    def where(self) -> tuple[int, int]:
        """The thread and the stack to report."""
        return self.thread(), self.stack()

    def _walked(self) -> int:
        stack = self.observer.stack()
        callers = self.callers
        if callers and threading.get_ident() != callers[-1][2]:
            return stack if self.observer.is_user_stack(stack) else callers[-1][1]
        return stack

    def operation(
        self,
        kind: int,
        name: str,
        timeline: int,
        accesses: Sequence[r.Access],
        copy: int = 0,
        stack: int | None = None,
    ) -> None:
        """Report an operation of the calling thread, captured or not, `stack` being its own."""
        if self.local.body is not None:
            self.local.body.extend(accesses)
        node, forward = self.nodes.running()
        capture = self.streams.capture_of(timeline)
        if capture is not None:
            capture.accesses.extend(accesses)
        self.observer.operation(
            kind,
            name,
            timeline,
            tuple(accesses),
            copy=copy,
            node=node,
            forward=forward,
            context=self.context(timeline),
            graph=r.NONE if capture is None else capture.number,
            captured=capture is not None,
            thread=self.thread(),
            stack=self.stack() if stack is None else stack,
        )

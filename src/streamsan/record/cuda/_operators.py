"""Operators on CUDA machines: each is run once, whatever happens in here, and then reported.

What happens inside of an operator is kept until its own accesses have been reported, since it
touches its bytes before it synchronises (rule C7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import torch

from streamsan.model import records as r
from streamsan.record import _core
from streamsan.record._portable import OWN, UNKNOWN
from streamsan.record.cuda._memory import has_bytes
from streamsan.virtual.face.nodes import current_node
from streamsan.virtual.face.schema import Plan, operands
from streamsan.virtual.memory import NOWHERE

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]

_WRITE = int(r.Mode.WRITE)


class Reported(Protocol):
    """How an operator is reported."""

    stack: int
    """UNKNOWN where all that happens inside has the operator's own stack: torch's operators run no
    Python code of others. OWN where what runs inside may have deeper ones.
    """

    def before(self, args: Arguments, kwargs: Keywords, accesses: list[r.Access]) -> Any:
        """Look at the arguments before the operator runs; what `after` gets, never None."""

    def after(
        self, before: Any, result: Any, args: Arguments, kwargs: Keywords, accesses: list[r.Access]
    ) -> None:
        """Report the operator."""

    def compiled(self) -> _core.Operator | None:
        """The same as the compiled core does it; None where it does not."""


class Running:
    """An operator at work, from before it runs until it and what happened inside are reported."""

    __slots__ = (
        "_accesses", "_args", "_before", "_failure", "_held", "_kwargs", "_outer",
        "_outer_operands", "_outer_where", "_recorder", "_reported",
    )  # fmt: skip

    def __init__(
        self, recorder: CudaRecorder, reported: Reported, args: Arguments, kwargs: Keywords
    ) -> None:
        work = recorder.local
        self._recorder, self._reported, self._args, self._kwargs = recorder, reported, args, kwargs
        self._outer, self._outer_operands = work.inside, work.operands
        self._outer_where = work.stack, work.thread
        self._held: list[Callable[[], None]] = []
        self._accesses: list[r.Access] = []
        self._failure: Exception | None = None
        work.inside, work.stack, work.thread = self._held, reported.stack, reported.stack
        try:
            if recorder.arena is not None:
                work.operands = frozenset(_blocks(args))
            self._before = reported.before(args, kwargs, self._accesses)
        except Exception as error:
            self._before, self._failure = None, error

    def done(self, result: Any) -> None:
        """The operator gave `result`: report it."""
        recorder = self._recorder
        recorder.local.inside = self._outer
        if self._failure is not None:  # not where the operator cannot take its arguments either
            recorder.observer.internal_error(self._failure)
        if self._before is not None:
            try:
                self._reported.after(self._before, result, self._args, self._kwargs, self._accesses)
            except Exception as error:
                recorder.observer.internal_error(error)

    def end(self) -> None:
        """Report what happened inside of it, whether it gave a result or not."""
        work = self._recorder.local
        work.inside = self._outer
        if self._held:
            replay(self._recorder, self._held)
        work.stack, work.thread = self._outer_where
        work.operands = self._outer_operands


def run(
    recorder: CudaRecorder, reported: Reported, func: Any, args: Arguments, kwargs: Keywords
) -> Any:
    """Run an operator; report it, and then what happened inside of it."""
    running = Running(recorder, reported, args, kwargs)
    try:
        result = func(*args, **kwargs)
        running.done(result)
        return result
    finally:
        running.end()


def replay(recorder: CudaRecorder, held: Sequence[Callable[[], None]]) -> None:
    """Let what was kept happen."""
    try:
        for happened in held:
            happened()
    except Exception as error:
        recorder.observer.internal_error(error)


def stack_inside(plan: Plan) -> int:
    """`Reported.stack` of an operator."""
    return UNKNOWN if plan.name.startswith("aten::") else OWN


class Computation:
    """An operator that reads and writes bytes on the current stream."""

    def __init__(self, recorder: CudaRecorder, plan: Plan) -> None:
        self.stack = stack_inside(plan)
        self.plan = plan
        self.fresh = "fresh" in plan.returns
        self._recorder = recorder
        self._touching = recorder.touching

    def compiled(self) -> _core.Operator | None:
        """As the compiled core does it."""
        plan, training = self.plan, self.plan.training
        always = training is not None and not training[1]
        return _core.Operator(
            reported=self,
            places=plan.updating if always else plan.tensors,
            updating=plan.updating,
            training=None if training is None or always else (*training, 0),
            kind=plan.kind,
            name=plan.name,
            copy=0,
            result="output",
            fresh=self.fresh,
            shares=self.stack == UNKNOWN,
            synchronizes=plan.synchronizes,
            uninitialized=plan.uninitialized,
            copies=0,
        )

    def before(self, args: Arguments, kwargs: Keywords, accesses: list[r.Access]) -> int:
        """Add what the arguments touch; the device they lie on."""
        plan = self.plan
        places = plan.tensors if plan.training is None else plan.touched(args, kwargs)
        grad = torch.is_grad_enabled()
        device, wanted = self._touching.arguments(places, args, kwargs, accesses, grad)
        if wanted:
            self._recorder.nodes.note()
        return device

    def after(
        self, before: int, result: Any, args: Arguments, kwargs: Keywords, accesses: list[r.Access]
    ) -> None:
        """Add what is written of the results, and report."""
        device = max(before, self.made(result, kwargs, accesses)) if self.fresh else before
        if accesses:
            self.report(device, args, kwargs, accesses)

    def report(
        self, device: int, args: Arguments, kwargs: Keywords, accesses: list[r.Access]
    ) -> None:
        """Report the operator, which ran on a device or, below 0, on the host."""
        plan, recorder = self.plan, self._recorder
        if device < 0:
            recorder.operation(int(r.OpKind.HOST), plan.name, recorder.thread(), accesses)
            return
        stream = recorder.streams.current(device)
        recorder.operation(plan.kind, plan.name, stream, accesses)
        if recorder.streams.several and current_node() is not None:
            self.engine_records(stream, args, kwargs)
        if plan.synchronizes:
            recorder.synchronized(stream)

    def engine_records(self, stream: int, args: Arguments, kwargs: Keywords) -> None:
        """Note the use of gradients on a stream, as the engine does."""
        recorder = self._recorder
        for tensor, owner, _, _ in operands(self.plan, recorder.owner, args, kwargs):
            if owner >= 0:
                recorder.blocks.engine_records(tensor, stream)

    def made(self, result: Any, kwargs: Keywords, accesses: list[r.Access]) -> int:
        """Add what is written of new tensors; the device they lie on."""
        blocks, uninitialized = self._recorder.blocks, self.plan.uninitialized
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if not isinstance(tensor, torch.Tensor):
                continue
            if not tensor.is_cuda:
                blocks.pinned.fresh(tensor, kwargs)
            elif uninitialized and has_bytes(tensor):
                # who writes it may be known by its address alone
                blocks.seen(tensor, tensor.get_device())
        if uninitialized:
            return NOWHERE
        return self._touching.touch(result, _WRITE, "output", accesses)


class Resizing:
    """``resize_`` of a device tensor or its storage: other memory gets what the old one held (S1).

    `name` is what the report calls it.
    """

    def __init__(self, recorder: CudaRecorder, name: str, storage: torch.UntypedStorage) -> None:
        self.stack = UNKNOWN
        self._recorder = recorder
        self._name = name
        self._storage = storage

    def before(self, args: Arguments, kwargs: Keywords, accesses: list[r.Access]) -> bool:
        """Add what is read where there is to be more memory."""
        self._bytes(int(r.Mode.READ), accesses)
        return bool(accesses)

    def after(
        self, before: bool, result: Any, args: Arguments, kwargs: Keywords, accesses: list[r.Access]
    ) -> None:
        """Report the move, where there was one."""
        self._bytes(_WRITE, accesses)
        old, new = accesses[0] if before else None, accesses[-1] if len(accesses) > before else None
        if old is None or (new is not None and old.address == new.address):
            return
        if new is not None:
            kept = min(old.run, new.run)
            ends = [msgspec.structs.replace(end, run=kept) for end in (old, new)]
            copy = int(r.CopyKind.DEVICE_TO_DEVICE)
            stream = self._recorder.streams.current(new.space)
            self._recorder.operation(int(r.OpKind.COPY), self._name, stream, ends, copy)
        self._recorder.blocks.left(old.address)

    def compiled(self) -> _core.Operator | None:
        """It is rare, and not compiled."""
        return None

    def _bytes(self, mode: int, accesses: list[r.Access]) -> None:
        """Add all bytes of the storage, if it has any."""
        storage = self._storage
        address, size, device = storage.data_ptr(), storage.nbytes(), storage.device.index
        if size:
            self._recorder.blocks.seen_storage(storage, device)
            accesses.append(r.Access(device, address, size, (), (), mode, "self"))


def _blocks(arguments: Sequence[Any]) -> Iterator[int]:
    """Addresses of the blocks of device tensors among the arguments of an operator."""
    for value in arguments:
        if isinstance(value, torch.Tensor):
            if value.is_cuda and value.layout is torch.strided and has_bytes(value):
                yield value.untyped_storage().data_ptr()
        elif isinstance(value, (list, tuple)):
            yield from _blocks(value)

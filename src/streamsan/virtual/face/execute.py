"""Operators on the virtual machine: run at once or queued, and reported either way."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from streamsan.allocator.contract import OutOfMemory
from streamsan.model.records import Access, Mode
from streamsan.virtual.face.below import Below
from streamsan.virtual.face.random import Generator, with_seed
from streamsan.virtual.face.schema import Plan
from streamsan.virtual.face.tensors import Spec, Tensors
from streamsan.virtual.graph import Capture
from streamsan.virtual.memory import NOWHERE, PINNED
from streamsan.virtual.streams import Stream

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face

Operand = tuple[torch.Tensor, int, int, str]
"""A tensor argument: the tensor, its owner, the access mode, the argument's name."""


def operands(
    plan: Plan, tensors: Tensors, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Operand]:
    """The tensor arguments of a call."""
    found: list[Operand] = []
    owner = tensors.owner
    for position, name, mode in plan.tensors:
        value = args[position] if 0 <= position < len(args) else kwargs.get(name)
        if isinstance(value, torch.Tensor):
            found.append((value, owner(value), mode, name))
        elif isinstance(value, (list, tuple)):
            found += [(v, owner(v), mode, name) for v in value if isinstance(v, torch.Tensor)]
    return found


def check_devices(plan: Plan, found: Sequence[Operand], device: int) -> None:
    """Refuse what CUDA builds refuse: tensors of two devices in one operator."""
    for tensor, owner, mode, _ in found:
        if owner == device or mode == 0:
            continue
        if owner < 0 and tensor.dim() == 0 and mode == Mode.READ:
            continue
        if (
            owner < 0
            and plan.host_index
            and tensor.dtype in (torch.int64, torch.int32, torch.bool, torch.uint8)
        ):
            continue
        names = [f"cuda:{o}" if o >= 0 else "cpu" for o in (device, owner)]
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{names[0]} and {names[1]}!"
        )


def out_of_memory(error: OutOfMemory, device: int) -> torch.OutOfMemoryError:
    """The exception a CUDA build raises."""
    gib, mib = 1 << 30, 1 << 20
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {error.requested / mib:.2f} MiB. GPU {device} has a"
        f" total capacity of {error.capacity / gib:.2f} GiB of which"
        f" {(error.capacity - error.reserved) / mib:.2f} MiB is free. Of the allocated memory"
        f" {error.allocated / mib:.2f} MiB is allocated by PyTorch, and"
        f" {(error.reserved - error.allocated) / mib:.2f} MiB is reserved by PyTorch but"
        " unallocated."
    )


class Executor:
    """Runs operators of one virtual machine."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._gpu = face.gpu
        self._tensors = face.tensors
        self._layouts: dict[Any, Any] = {}

    # -- operators with device tensors ------------------------------------------------------------

    def compute(
        self,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        found: list[Operand],
        device: int,
    ) -> Any:
        """Run or queue a plain operator on the current stream of `device`."""
        check_devices(plan, found, device)
        function: Callable[..., Any] = plan.op
        if plan.random:
            function, kwargs = self._random(plan, kwargs, device)
        stream = self._gpu.current_stream(device)
        with self._gpu.monitor:
            waits = plan.synchronizes or (plan.masked and _has_mask(args))
            if waits:
                self._gpu.refuse_capture()
            layout = None
            if stream.capture is not None or not (self._gpu.now or waits):
                layout = self._layout(plan, args, kwargs, stream)
            try:
                if layout is not None:
                    result, fresh = self._queue(
                        plan, function, args, kwargs, stream, device, layout
                    )
                else:
                    self._gpu.finish(stream)
                    result, fresh = self._run(plan, function, args, kwargs, device)
            except OutOfMemory as error:
                raise out_of_memory(error, device) from None
            self.report(plan.kind, plan.name, stream, found, fresh, device)
            if waits:
                self._gpu.sync_stream(stream)
        return result

    def guarded_new(
        self, target: int, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """A fresh tensor; out of memory is what a CUDA build raises."""
        try:
            return self._tensors.new(target, dtype, sizes, strides)
        except OutOfMemory as error:
            raise out_of_memory(error, target) from None

    def produce(
        self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], device: int
    ) -> torch.Tensor:
        """A factory's result on a device: made on the host, written there in stream order."""
        function: Callable[..., Any] = plan.op
        if plan.random:
            function, kwargs = self._random(plan, kwargs, device)
        value: torch.Tensor = function(*args, **kwargs)
        stream = self._gpu.current_stream(device)
        with self._gpu.monitor:
            result = self.guarded_new(device, value.dtype, tuple(value.shape), value.stride())
            spec, view = self._tensors.spec(result), self._tensors.view

            def work() -> None:
                with Below():
                    view(spec).copy_(value)

            if result.numel():
                self._gpu.submit(stream, work)
            self.report(plan.kind, plan.name, stream, (), (result,), device)
        return result

    def _random(
        self, plan: Plan, kwargs: dict[str, Any], device: int
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        generator = kwargs.get("generator")
        if generator is not None and not isinstance(generator, Generator):
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        chosen = generator or self._face.generators[device]
        if generator is not None:
            kwargs = {**kwargs, "generator": None}
        return with_seed(plan.op, chosen.draw()), kwargs

    def report(
        self,
        kind: int,
        name: str,
        stream: Stream,
        found: Sequence[Operand],
        fresh: Sequence[torch.Tensor],
        device: int,
        copy: int = 0,
    ) -> None:
        """Tell the observer what an operator touched, in a capture too."""
        access = self._tensors.access
        accesses = [
            touched
            for tensor, owner, mode, argument in found
            if mode and (owner >= 0 or owner == PINNED)
            if (touched := access(tensor, owner, mode, argument)) is not None
        ]
        accesses += [
            touched
            for tensor in fresh
            if (touched := access(tensor, device, Mode.WRITE, "output")) is not None
        ]
        self.emit(kind, name, stream, tuple(accesses), copy)

    def emit(
        self, kind: int, name: str, stream: Stream, accesses: tuple[Access, ...], copy: int = 0
    ) -> None:
        """Report accesses of `stream`, with the backward node that makes them."""
        node, forward = self._face.backward.nodes.running()
        extra: dict[str, Any] = {}
        outer = self._gpu.thread.outer
        if len(outer) > 1 and outer[-1] is not stream:  # a context inside of another one
            extra["context"] = outer[-1].timeline
        if isinstance(stream.capture, Capture):
            stream.capture.accesses.extend(accesses)
            extra.update(graph=stream.capture.number, captured=True)
        self._gpu.observer.operation(
            kind, name, stream.timeline, accesses, copy=copy, node=node, forward=forward, **extra
        )

    # -- now --------------------------------------------------------------------------------------

    def _run(
        self,
        plan: Plan,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: int,
    ) -> tuple[Any, list[torch.Tensor]]:
        if self._tensors.moved:
            args, kwargs = self._place(args, kwargs)
        result = function(*args, **kwargs)
        fresh: list[torch.Tensor] = []
        if self._tensors.moved:
            result = self._original(plan, result)
        if isinstance(result, torch.Tensor):
            return self._adopt(result, device, fresh), fresh
        if isinstance(result, (list, tuple)):
            return type(result)(
                [
                    self._adopt(r, device, fresh) if isinstance(r, torch.Tensor) else r
                    for r in result
                ]
            ), fresh
        return result, fresh

    def _adopt(self, result: torch.Tensor, device: int, fresh: list[torch.Tensor]) -> torch.Tensor:
        """Move a result of a CPU kernel to the device, unless it is there already."""
        tensors = self._tensors
        if tensors.owner(result) != NOWHERE:
            return result
        moved = tensors.new(
            device,
            result.dtype,
            tuple(result.shape),
            result.stride(),
            result.untyped_storage().nbytes(),
            int(result.storage_offset()),
        )
        storage = result.untyped_storage()
        if storage.nbytes() and moved.numel():
            ctypes.memmove(moved.untyped_storage().data_ptr(), storage.data_ptr(), storage.nbytes())
        fresh.append(moved)
        return moved

    # -- later ------------------------------------------------------------------------------------

    def _queue(
        self,
        plan: Plan,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stream: Stream,
        device: int,
        layout: Any,
    ) -> tuple[Any, list[torch.Tensor]]:
        fresh: list[torch.Tensor] = []
        targets: list[Spec | None] = []

        def make(entry: Any) -> Any:
            if not isinstance(entry, tuple):  # an argument that is returned, or no tensor at all
                targets.append(None)
                return entry.value(args, kwargs) if isinstance(entry, Returned) else entry
            dtype, sizes, strides = entry
            tensor = self._tensors.new(device, dtype, sizes, strides)
            fresh.append(tensor)
            targets.append(self._tensors.spec(tensor))
            return tensor

        result: Any
        if len(layout) == 1 and plan.single:
            result = make(layout[0])
        else:
            result = [make(entry) for entry in layout]
            result = tuple(result) if len(plan.returns) > 1 else result or None
        packed = self._pack(args), {k: self._pack((v,))[0] for k, v in kwargs.items()}
        view = self._tensors.view

        def work() -> None:
            with Below():
                call_args = _unpack(packed[0], view)
                call_kwargs = {k: _unpack((v,), view)[0] for k, v in packed[1].items()}
                outcome = function(*call_args, **call_kwargs)
                many = outcome if isinstance(outcome, (list, tuple)) else (outcome,)
                for spec, value in zip(targets, many):
                    if spec is not None and isinstance(value, torch.Tensor):
                        view(spec).copy_(value)

        self._gpu.submit(stream, work)
        return result, fresh

    def _pack(self, values: Sequence[Any]) -> list[Any]:
        """Arguments with addresses for tensors; host tensors are taken by value, as launches do."""
        packed: list[Any] = []
        for value in values:
            if isinstance(value, torch.Tensor):
                if self._tensors.owner(value) >= 0:
                    packed.append(Place(self._tensors.spec(value)))
                else:
                    packed.append(value.clone())
            elif isinstance(value, (list, tuple)):
                packed.append(self._pack(value))
            else:
                packed.append(value)
        return packed

    def _layout(
        self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], stream: Stream
    ) -> list[Any] | None:
        """What the operator returns, kept by metadata: (dtype, sizes, strides), or which argument.

        None where torch cannot tell before it runs: such an operator runs at once.
        """
        try:
            key: Any = (plan.op, *_describe(args), *_describe(sorted(kwargs.items())))
            known = self._layouts.get(key)
        except TypeError:
            key = known = None
        if known is None:
            try:
                known = infer_layout(plan, args, kwargs)
            except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
                if stream.capture is None:
                    return None  # the real operator says what is wrong, or works
                raise RuntimeError(
                    f"the virtual GPU cannot capture {plan.name}: its result's layout is not known"
                    f" before it runs ({error})"
                ) from error
            if key is not None:
                self._layouts[key] = known
        return known

    # -- storages that moved ----------------------------------------------------------------------

    def _place(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with views of where their bytes are now."""

        def now(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and self._tensors.owner(value) != NOWHERE:
                view = self._tensors.view(self._tensors.spec(value))
                self._face.local.placed[id(view)] = value
                self._face.local.views.append(view)
                return view
            if isinstance(value, (list, tuple)):
                return type(value)([now(v) for v in value])
            return value

        self._face.local.placed.clear()
        self._face.local.views.clear()
        return tuple(now(a) for a in args), {k: now(v) for k, v in kwargs.items()}

    def _original(self, plan: Plan, result: Any) -> Any:
        """The arguments themselves where an operator returned their views."""
        placed = self._face.local.placed
        if isinstance(result, torch.Tensor):
            return placed.get(id(result), result)
        if isinstance(result, (list, tuple)):
            return type(result)([placed.get(id(r), r) for r in result])
        return result


class Place:
    """The address of a tensor argument."""

    __slots__ = ("spec",)

    def __init__(self, spec: Spec) -> None:
        self.spec = spec


class Returned:
    """An argument that the operator returns: its place in the call."""

    __slots__ = ("index", "key")

    def __init__(self, key: int | str, index: int | None) -> None:
        self.key = key
        self.index = index

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The argument of this call."""
        found = args[self.key] if isinstance(self.key, int) else kwargs[self.key]
        return found if self.index is None else found[self.index]


def _unpack(values: Sequence[Any], view: Callable[[Spec], torch.Tensor]) -> list[Any]:
    return [
        view(value.spec)
        if isinstance(value, Place)
        else _unpack(value, view)
        if isinstance(value, list)
        else value
        for value in values
    ]


def _describe(values: Sequence[Any]) -> list[Any]:
    """A hashable description of arguments; TypeError where one has none."""
    out: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            out.append((value.dtype, tuple(value.shape), value.stride()))
        elif isinstance(value, (list, tuple)):
            out.append((len(value), *_describe(value)))
        else:
            hash(value)
            out.append((type(value), value))
    return out


def infer_layout(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Run the operator on meta tensors; an entry for each return.

    Raises RuntimeError or NotImplementedError where torch cannot tell a shape.
    """
    returned: dict[int, Returned] = {}
    keep: list[torch.Tensor] = []

    def meta(value: Any, key: int | str, index: int | None = None) -> Any:
        if isinstance(value, torch.Tensor):
            shadow = torch.empty_strided(
                tuple(value.shape), value.stride(), dtype=value.dtype, device="meta"
            )
            keep.append(shadow)
            returned[id(shadow)] = Returned(key, index)
            return shadow
        if isinstance(value, (list, tuple)):
            return [meta(v, key, i) for i, v in enumerate(value)]
        return value

    shadows = [meta(value, i) for i, value in enumerate(args)]
    options = {k: meta(v, k) for k, v in kwargs.items()}
    outcome = plan.op(*shadows, **options)

    def entry(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return returned.get(id(value)) or (value.dtype, tuple(value.shape), value.stride())

    if isinstance(outcome, (list, tuple)):
        return [entry(value) for value in outcome]
    return [entry(outcome)] if plan.returns else []


def _has_mask(args: Sequence[Any]) -> bool:
    """Whether a boolean mask is among the index tensors."""
    indices = args[1] if len(args) > 1 else ()
    return isinstance(indices, (list, tuple)) and any(
        isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        for index in indices
    )

"""Operators on the virtual machine: run at once or queued, and reported either way."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from streamsan.allocator.contract import OutOfMemory
from streamsan.model.records import Access, Mode
from streamsan.virtual.face.below import Below
from streamsan.virtual.face.layouts import (
    Argument,
    Layout,
    NotCoveredError,
    Place,
    describe,
    infer_layout,
    layout_of,
    overlap,
    overlaps_itself,
    refuse_unusual,
    unpack,
)
from streamsan.virtual.face.random import virtual_generator, with_seed
from streamsan.virtual.face.schema import Operand, Plan
from streamsan.virtual.face.tensors import Spec
from streamsan.virtual.face.waits import host_waits
from streamsan.virtual.face.widened import PRODUCTS
from streamsan.virtual.graph import Capture
from streamsan.virtual.memory import NOWHERE, PINNED
from streamsan.virtual.observer import tells
from streamsan.virtual.streams import Stream

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face


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
        self.observer = face.gpu.observer
        self._tensors = face.tensors
        self._layouts: dict[Any, Layout] = {}

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
        if not self._face.local.mixed:
            check_devices(plan, found, device)
        function: Callable[..., Any] = PRODUCTS.get(plan.op, plan.op)
        if plan.random:
            function, kwargs = self._random(plan, kwargs, device)
        stream = self._gpu.current_stream(device)
        with self._gpu.monitor:
            waits = host_waits(plan, self._tensors, args, kwargs, device)
            if waits:
                self._gpu.refuse_capture()
            captured = stream.capture is not None
            later = captured or not (self._gpu.runs_at_once(stream) or waits or plan.at_once)
            if plan.out and waits:
                layout = self._layout_by_values(plan, args, kwargs, stream)
            else:
                layout = self._layout(plan, args, kwargs, stream) if later or plan.out else None
            try:
                if layout is not None and layout.resized:
                    self._resize(layout, args, kwargs)
                if later and layout is not None and (captured or not self._clash(plan, found)):
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
        stream = self._gpu.current_stream(device)
        at_launch = plan.random and stream.capture is not None  # each launch draws anew
        place = {"device": torch.device("meta")} if at_launch else {}
        value: torch.Tensor = (plan.op if at_launch else function)(*args, **{**kwargs, **place})
        refuse_unusual(plan.name, value)
        with self._gpu.monitor:
            result = self.guarded_new(device, value.dtype, tuple(value.shape), value.stride())
            spec, view = self._tensors.spec(result), self._tensors.view
            # What is queued must not keep the arguments: a gradient's root would keep its graph.
            draw = _on_host(function, args, kwargs) if at_launch else None

            def work() -> None:
                with Below():
                    view(spec).copy_(draw() if draw is not None else value)

            if result.numel():
                self._gpu.submit(stream, work)
            self.report(plan.kind, plan.name, stream, (), (result,), device)
        return result

    def _random(
        self, plan: Plan, kwargs: dict[str, Any], device: int
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        chosen = self._face.generators[device]
        if kwargs.get("generator") is not None:
            given = virtual_generator(kwargs["generator"])
            if given is None:
                raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
            chosen, kwargs = given, {**kwargs, "generator": None}
        capture = self._gpu.current_stream(device).capture
        if isinstance(capture, Capture):
            number = capture.seed(chosen.draw)
            return with_seed(plan.op, lambda: capture.seeds[number]), kwargs
        seed = chosen.draw()
        return with_seed(plan.op, lambda: seed), kwargs

    @tells
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

    @tells
    def emit(
        self, kind: int, name: str, stream: Stream, accesses: tuple[Access, ...], copy: int = 0
    ) -> None:
        """Report accesses of `stream`, with the backward node that makes them."""
        self._gpu.used(stream, accesses)
        node, forward = self._face.backward.nodes.running()
        extra: dict[str, Any] = {}
        outer = self._gpu.thread.outer
        if len(outer) > 1 and outer[-1] is not stream:  # a context inside of another one
            extra["context"] = outer[-1].timeline
        if isinstance(stream.capture, Capture):
            stream.capture.accesses.extend(accesses)
            extra.update(graph=stream.capture.number, captured=True)
        self.observer.operation(
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
        local = self._face.local
        try:
            result = function(*args, **kwargs)
            if local.placed:
                result = self._original(plan, result)
        finally:  # what stood in for the arguments must not keep them alive
            local.placed.clear()
            local.views.clear()
        fresh: list[torch.Tensor] = []
        if isinstance(result, torch.Tensor):
            return self._adopt(plan, result, device, fresh), fresh
        if isinstance(result, (list, tuple)):
            return type(result)(
                [
                    self._adopt(plan, value, device, fresh)
                    if isinstance(value, torch.Tensor) and number not in plan.on_host
                    else value
                    for number, value in enumerate(result)
                ]
            ), fresh
        return result, fresh

    def _adopt(
        self, plan: Plan, result: torch.Tensor, device: int, fresh: list[torch.Tensor]
    ) -> torch.Tensor:
        """Move a result of a CPU kernel to the device, unless it is there already."""
        tensors = self._tensors
        if tensors.owner(result) != NOWHERE:
            return result
        refuse_unusual(plan.name, result)
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

    def _clash(self, plan: Plan, found: Sequence[Operand]) -> bool:
        """Whether a written tensor may overlap itself or another one in part.

        Most operators refuse that when they are called, some work: such a call runs at once.
        """
        if not plan.writes:
            return False
        spec = self._tensors.spec
        places = [(spec(tensor), mode) for tensor, owner, mode, _ in found if owner >= 0 and mode]
        return any(
            overlaps_itself(place) or any(overlap(place, other) for other, _ in places)
            for place, mode in places
            if mode & Mode.WRITE
        )

    # -- later ------------------------------------------------------------------------------------

    def _queue(
        self,
        plan: Plan,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stream: Stream,
        device: int,
        layout: Layout,
    ) -> tuple[Any, list[torch.Tensor]]:
        fresh: list[torch.Tensor] = []
        targets: list[Spec | None] = []

        def make(entry: Any) -> Any:
            if not isinstance(entry, tuple):  # an argument that is returned, or no tensor at all
                targets.append(None)
                return entry.value(args, kwargs) if isinstance(entry, Argument) else entry
            dtype, sizes, strides = entry
            tensor = self._tensors.new(device, dtype, sizes, strides)
            fresh.append(tensor)
            targets.append(self._tensors.spec(tensor))
            return tensor

        result: Any
        if len(layout.returned) == 1 and plan.single:
            result = make(layout.returned[0])
        else:
            result = [make(entry) for entry in layout.returned]
            result = tuple(result) if len(plan.returns) > 1 else result or None
        packed = self._pack(args), {k: self._pack((v,))[0] for k, v in kwargs.items()}
        view = self._tensors.view
        place = self._tensors.alone if plan.whole_storage else view

        def work() -> None:
            with Below():
                call_args = unpack(packed[0], place)
                call_kwargs = {k: unpack((v,), place)[0] for k, v in packed[1].items()}
                outcome = function(*call_args, **call_kwargs)
                many = outcome if isinstance(outcome, (list, tuple)) else (outcome,)
                for spec, value in zip(targets, many):
                    if spec is not None and isinstance(value, torch.Tensor):
                        if value.shape != spec[2]:
                            raise RuntimeError(
                                f"{plan.name} gave a result of sizes {tuple(value.shape)}, which"
                                f" the virtual GPU expected to be {spec[2]}"
                            )
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
    ) -> Layout | None:
        """What the operator returns, kept by metadata of its arguments.

        None where torch cannot tell before it runs: such an operator runs at once.
        """
        try:
            key: Any = (plan.op, *describe(args), *describe(sorted(kwargs.items())))
            known = self._layouts.get(key)
        except TypeError:
            key = known = None
        if known is None:
            try:
                known = infer_layout(plan, args, kwargs)
            except NotCoveredError:
                raise
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                if stream.capture is None:
                    return None  # the real operator says what is wrong, or works
                raise RuntimeError(
                    f"the virtual GPU cannot capture {plan.name}: its result's layout is not known"
                    f" before it runs ({error})"
                ) from error
            if key is not None:
                self._layouts[key] = known
        return known

    def _layout_by_values(
        self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], stream: Stream
    ) -> Layout | None:
        """The same for an operator whose results are as large as values of its arguments say."""

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            return self._tensors.view(self._tensors.spec(tensor)).clone()

        self._gpu.finish(stream)
        with Below(), suppress(RuntimeError, ValueError, TypeError, IndexError):
            return layout_of(plan, args, kwargs, copied)
        return None  # the real operator says what is wrong

    def _resize(self, layout: Layout, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Give the arguments for results the layout that the operator gives them."""
        for argument, sizes, strides in layout.resized:
            tensor = argument.value(args, kwargs)
            if self._tensors.owner(tensor) >= 0:
                self._face.storages.resize_tensor(tensor, sizes, strides)

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

        return tuple(now(a) for a in args), {k: now(v) for k, v in kwargs.items()}

    def _original(self, plan: Plan, result: Any) -> Any:
        """The arguments themselves where an operator returned their views."""
        placed = self._face.local.placed
        if isinstance(result, torch.Tensor):
            return placed.get(id(result), result)
        if isinstance(result, (list, tuple)):
            return type(result)([placed.get(id(r), r) for r in result])
        return result


def _on_host(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call of a factory on the host, with the metadata of its tensor arguments only."""
    bare = [torch.empty_like(a, device="meta") if isinstance(a, torch.Tensor) else a for a in args]
    return partial(function, *bare, **{**kwargs, "device": torch.device("cpu")})

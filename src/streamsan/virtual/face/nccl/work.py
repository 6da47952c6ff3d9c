"""Handles of collectives (rule N2), and their futures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future
from torch.utils._pytree import tree_leaves

from streamsan.autograd.engine import Engine
from streamsan.virtual.face import current, streams
from streamsan.virtual.face.nccl.settings import host_waits
from streamsan.virtual.face.nodes import current_node
from streamsan.virtual.streams import Event


class CollectiveWork(Work):
    """The handle of a collective, or of several that were issued as one.

    `tensors` are kept alive until somebody waits, as PyTorch's NCCL backend keeps them: a free
    earlier than that would let the allocator hand their memory out.
    """

    def __init__(
        self,
        device: int,
        event: Event,
        tensors: Sequence[torch.Tensor],
        result: list[Any],
        source: int = -1,
        barrier: bool = False,
    ) -> None:
        super().__init__()
        self._device = device
        self.event = event
        self.kept: list[torch.Tensor] = list(tensors)
        self._result = result
        self._source = source
        self._barrier = barrier

    def wait(self, timeout: Any = None) -> bool:
        """Rule N2: later work of the current stream comes after the collective.

        The host goes on, but for a barrier, or where the environment wants it to wait.
        """
        gpu = current.face().gpu
        stream = current.native_stream(self._device)
        gpu.wait(stream, self.event)
        if self._barrier:
            gpu.sync_stream(stream)
        elif host_waits(timeout):
            gpu.sync_event(self.event)
        self.release()
        return True

    def synchronize(self) -> None:
        """The same."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same."""
        self.wait()

    def release(self) -> None:
        """Keep the tensors no longer."""
        self.kept.clear()

    def is_completed(self) -> bool:
        """Whether the collective is done; a query as that of an event (E4)."""
        return current.face().gpu.query_event(self.event)

    def is_success(self) -> bool:
        """The same: what fails raises where the host waits."""
        return self.is_completed()

    def exception(self) -> Any:
        """None: what fails raises where the host waits."""
        return None

    def result(self) -> list[Any]:
        """The output tensors; no order comes with them."""
        return self._result

    def source_rank(self) -> int:
        """The rank that a message came from."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> StreamFuture:
        """A future of the output tensors, complete at once; waiting for it is rule N2."""
        future = StreamFuture(self._device, [self.event], self._result)
        if sys._getframe(1).f_code is Engine.run_backward.__code__:
            # The reducer of DistributedDataParallel, in C++ below the engine, waits for a future
            # in C++ too, and does so in a callback at the end of the pass.
            future.join_backward()
        return future


class StreamFuture(Future):  # type: ignore[type-arg]
    """A future of device tensors. As in CUDA builds it is complete when it is made, and its events
    say when the tensors are: whoever waits makes its current stream wait for them.
    """

    def __init__(
        self,
        device: int,
        events: Sequence[Event],
        value: Any,
        error: Exception | None = None,
    ) -> None:
        super().__init__()
        self._device = device
        self._events = list(events)
        self._tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def order(self) -> None:
        """Later work of the current stream comes after the events.

        The stream is recorded on the tensors as well (M2): they may belong to another one.
        """
        face = current.face()
        stream = current.native_stream(self._device)
        for event in self._events:
            face.gpu.wait(stream, event)
        for tensor in self._tensors:
            if face.tensors.owner(tensor) >= 0:
                address = tensor.untyped_storage().data_ptr()
                face.gpu.record_stream(address, stream, explicit=False)

    def wait(self) -> Any:
        """The value, ordered before later work of the current stream (N2)."""
        self.order()
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Call back at once, on a stream of the pool that comes after the events."""
        gpu = current.face().gpu
        stream = gpu.new_stream(self._device)
        value, error = None, None
        with current.stream_context(streams.Stream.of(stream)):
            self.order()
            try:
                value = callback(self)
            except Exception as raised:
                error = raised
        event = gpu.new_event()
        gpu.record(event, stream)
        return StreamFuture(self._device, [event], value, error=error)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """The same, without a future of its result."""
        self.then(callback)

    def join_backward(self) -> None:
        """The caller's streams come after the value at the end of the backward pass at work."""
        if current_node() is None:  # the end has come
            self.order()
        else:
            current.face().backward.engine.queue_callback(self.order)

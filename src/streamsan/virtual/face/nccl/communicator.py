"""Communicators: their streams, and how collectives are enqueued on them (rule N1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from streamsan.model.records import OpKind
from streamsan.virtual.face import current
from streamsan.virtual.face.nccl.steps import Outline, Step, operands
from streamsan.virtual.face.nccl.transport import Exchange, Transport
from streamsan.virtual.face.nccl.work import CollectiveWork
from streamsan.virtual.streams import Event, Stream, Task

GROUP = -1
"""In the place of a peer: the stream of the whole group."""


class Communicator:
    """The streams of one process group on this process's devices.

    Messages between two ranks have a stream of their own for each peer, as in PyTorch's backend,
    unless they are issued together.
    """

    def __init__(self, transport: Transport, name: Callable[[], str]) -> None:
        self.transport = transport
        self._name = name
        self._streams: dict[tuple[int, int], Stream] = {}
        self._last: Task | None = None
        self._held: list[tuple[Event, Stream, list[torch.Tensor]]] = []

    def stream(self, device: int, peer: int) -> Stream:
        """The stream for a device and a peer (or GROUP)."""
        known = self._streams.get((device, peer))
        if known is None:
            name = f"nccl {self._name()}" + (f" rank {peer}" if peer != GROUP else "")
            known = self._streams[device, peer] = current.face().gpu.own_stream(device, name)
        return known

    def drain(self) -> None:
        """The host waits for everything, as NCCL lets it at the end of a communicator."""
        for stream in self._streams.values():
            current.face().gpu.sync_stream(stream)
        self._forget_done()

    def enqueue(
        self,
        name: str,
        device: int,
        steps: Sequence[Step],
        result: list[Any],
        peer: int = GROUP,
        barrier: bool = False,
        blocking: bool = False,
    ) -> CollectiveWork | None:
        """Enqueue collectives as one piece of work.

        Rule N1: it runs on the communicator's stream, after what the caller's current stream has
        been given so far. The blocking form runs on the current stream itself, as it does since
        release 2.8, and has no handle.
        """
        face = current.face()
        gpu = face.gpu
        with gpu.monitor:
            self._forget_done()
            caller = current.native_stream(device)
            stream = caller if blocking else self.stream(device, peer)
            if not blocking:
                self._order(caller, stream)
            found = operands(steps, face.tensors)
            self._submit(stream, [step.outline(face.tensors) for step in steps], peer)
            face.executor.report(int(OpKind.COLLECTIVE), f"nccl::{name}", stream, found, (), device)
            if blocking:
                if barrier:
                    gpu.sync_stream(stream)
                return None
            event = gpu.new_event()
            gpu.record(event, stream)
            tensors = [tensor for tensor, _, _, _ in found]
            if any(step.message for step in steps):
                _mark(tensors, stream)
                tensors = []
            work = CollectiveWork(device, event, tensors, result, source=peer, barrier=barrier)
            self._held.append((event, stream, work.kept))
        return work

    def _forget_done(self) -> None:
        """Keep tensors no longer whose collective is done, though nobody has waited for it.

        PyTorch's watchdog sees to that. It gives the program no order with the collective, so the
        allocator, and nobody else, hears that the collective's stream comes first (M2).
        """
        held = []
        for event, stream, kept in self._held:
            if kept and event.done:
                _mark(kept, stream)
                kept.clear()
            elif kept:
                held.append((event, stream, kept))
        self._held = held

    def _order(self, first: Stream, then: Stream) -> None:
        gpu = current.face().gpu
        event = gpu.new_event()
        gpu.record(event, first)
        gpu.wait(then, event)

    def _submit(self, stream: Stream, outlines: list[Outline], peer: int) -> None:
        gpu = current.face().gpu
        transport = self.transport
        if transport.size == 1:
            gpu.submit(stream, lambda: _alone(outlines))
            return
        if stream.capture is not None:
            raise NotImplementedError(
                "the virtual GPU cannot capture a collective of several processes in a graph"
            )
        pending = Pending(outlines, transport)
        self._last = gpu.submit_exchange(
            stream, pending.begin, pending, pending.end, self._last if peer == GROUP else None
        )


def _alone(outlines: Sequence[Outline]) -> None:
    """What one rank does with itself: messages arrive in the order in which they were sent."""
    messages = [outline for outline in outlines if outline.message]
    sent = deque(outline.taken() for outline in messages if outline.targets)
    for outline in outlines:
        if not outline.message:
            outline.put(outline.taken())
        elif not outline.targets:
            if not sent:
                raise RuntimeError("a message to this rank itself is received that nobody sent")
            outline.put(sent.popleft())


def _mark(tensors: Sequence[torch.Tensor], stream: Stream) -> None:
    for tensor in tensors:
        address = tensor.untyped_storage().data_ptr()
        current.face().gpu.record_stream(address, stream, explicit=False)


class Pending:
    """Collectives under way to other processes: what their stream's next task waits for."""

    def __init__(self, outlines: list[Outline], transport: Transport) -> None:
        self._outlines = outlines
        self._channels = [
            transport.messages(outline.targets, [r for r, size in enumerate(outline.sizes) if size])
            if outline.message
            else transport
            for outline in outlines
        ]
        self._exchanges: list[Exchange] | None = None
        self._failed = False

    def begin(self) -> None:
        """Take the inputs and send them."""
        try:
            self._exchanges = [
                channel.exchange(outline.taken(), outline.sizes)
                for channel, outline in zip(self._channels, self._outlines)
            ]
        except BaseException:
            self._failed = True
            raise

    @property
    def done(self) -> bool:
        """Whether all is there, or will never be."""
        if self._exchanges is None:
            return self._failed
        return all(exchange.done for exchange in self._exchanges)

    def wait(self) -> None:
        """Let a moment pass."""
        current.face().gpu.transfers.pass_time()

    def end(self) -> None:
        """Write the outputs."""
        for outline, exchange in zip(self._outlines, self._exchanges or ()):
            outline.put(exchange.received())

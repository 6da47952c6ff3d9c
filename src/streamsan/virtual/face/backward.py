"""The streams of forward operations, and the virtual machine as the streaming engine needs it.

A backward node runs on the stream that was current when its forward operation ran (rule A1). torch
knows no streams of the virtual machine, so they are noted here, by the sequence numbers of nodes.
What a backward pass does with them is `streamsan.autograd`'s to say.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from streamsan.autograd.engine import install
from streamsan.autograd.leaves import accumulator
from streamsan.autograd.machine import Streams
from streamsan.autograd.parts import parts
from streamsan.virtual.face.nodes import Nodes, current_node, sequence_number
from streamsan.virtual.graph import Capture
from streamsan.virtual.memory import NOWHERE
from streamsan.virtual.streams import Event, Stream

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face

Node = Any
_KEY = "streamsan.streams"
_NOTHING: AbstractContextManager[None] = nullcontext()


class Local(threading.local):
    """Per thread: when streams changed, and leaves used since.

    From the sequence number `since[k]` on, nodes were made under `streams[k]`. `switched` says that
    the thread has ever left its first streams.
    """

    def __init__(self) -> None:
        self.since: list[int] = [0]
        self.streams: list[Streams] = [{}]
        self.switched = False
        self.leaves: dict[int, weakref.ref[torch.Tensor]] = {}


class Backward:
    """Notes of the forward pass of all threads, and the engine of the backward pass."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self.local = Local()
        self.nodes = Nodes(face.gpu.observer.stack)
        self.engine = install(VirtualMachine(face, self))

    # -- notes of the forward pass ----------------------------------------------------------------

    def forward(self, found: Sequence[tuple[torch.Tensor, int, int, str]]) -> None:
        """An operator is about to run: note leaves, and the stack of the node it makes."""
        if not torch.is_grad_enabled():
            return
        wanted = False
        local = self.local
        for tensor, _, _, _ in found:
            if tensor.requires_grad:
                wanted = True
                if tensor.grad_fn is None and id(tensor) not in local.leaves:
                    local.leaves[id(tensor)] = weakref.ref(tensor)
        if wanted:
            self.nodes.note((local.since, local.streams))

    def switching(self) -> None:
        """The calling thread's current streams are about to change."""
        leaves, self.local.leaves = self.local.leaves, {}
        streams = self.local.streams[-1]
        for reference in leaves.values():
            leaf = reference()
            if leaf is None or not leaf.requires_grad or leaf.grad_fn is not None:
                continue
            node = accumulator(leaf)
            if node is not None:
                node.metadata.setdefault(_KEY, streams)

    def switched(self) -> None:
        """They have changed."""
        local = self.local
        local.switched = True
        number = sequence_number()
        streams = dict(self._face.gpu.thread.current)
        if local.since[-1] == number:
            local.streams[-1] = streams
        else:
            local.since.append(number)
            local.streams.append(streams)

    def streams_of(self, node: Node) -> Streams:
        """The streams that were current when `node` was made (A1)."""
        known = node.metadata.get(_KEY)
        if known is not None:
            return known  # type: ignore[no-any-return]
        if node.name().endswith("AccumulateGrad"):
            return self.local.streams[-1]
        local = self.local
        number = node._sequence_nr()
        since, streams = local.since, local.streams
        if number >= sequence_number() or not local.switched:  # made by another thread
            since, streams = self.nodes.maker(number) or (since, streams)
        return streams[bisect_right(since, number) - 1]

    # -- the backward pass ------------------------------------------------------------------------

    def follow(self) -> None:
        """Let the node at work have its stream, also when a hook of the user's comes first."""
        work = self.engine.placed
        if work is None:
            return
        node: Node = current_node()
        if node is None and torch._C._current_graph_task_id() >= 0:  # a callback at the pass's end
            work.end()
            work.machine.make_current(work.caller)
        work.follow(node)

    def summing(self, name: str) -> AbstractContextManager[None]:
        """The context for the operator `name`: the sum's stream, where it is a gradient sum."""
        work = self.engine.placed
        if work is not None and work.sums and name.startswith("aten::add"):
            return work.sum_context()
        return _NOTHING


class VirtualMachine:
    """The virtual GPU as the streaming engine needs it."""

    places = False

    def __init__(self, face: Face, notes: Backward) -> None:
        self._face = face
        self._gpu = face.gpu
        self._notes = notes
        self._names: dict[int, str] = {}

    def begins(self) -> bool:
        """A pass begins: leaves used since the last switch get their streams."""
        self._notes.switching()
        return True

    def capturing(self) -> bool:
        """Whether a current stream is being captured into a graph."""
        return any(isinstance(s.capture, Capture) for s in self._gpu.thread.current.values())

    def devices(self) -> Sequence[int]:
        """All devices."""
        return range(len(self._gpu.devices))

    def default(self, device: int) -> Stream:
        """The default stream of a device."""
        return self._gpu.devices[device].default

    def device(self, stream: Stream) -> int:
        """The device of a stream."""
        return stream.device

    def current(self) -> Streams:
        """The calling thread's streams, but for default ones."""
        return dict(self._gpu.thread.current)

    def make_current(self, streams: Streams) -> None:
        """Make these streams current; nodes that a pass makes are made under them (A1)."""
        current = self._gpu.thread.current
        wanted = {d: s for d, s in streams.items() if not s.default}
        if current != wanted:
            self._notes.switching()
            current.clear()
            current.update(wanted)
            self._notes.switched()

    def record(self, stream: Stream) -> Event:
        """A new event on a stream."""
        event = self._gpu.new_event()
        self._gpu.record(event, stream)
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        """Later work of the stream waits for the event."""
        self._gpu.wait(stream, event)

    def owner(self, tensor: torch.Tensor) -> int:
        """The device of a tensor, or a negative number."""
        return next((owner for _, owner in self._blocks(tensor)), NOWHERE)

    def record_stream(self, tensor: torch.Tensor, stream: Stream) -> None:
        """The allocator keeps the tensor's block until the stream is done with it (M2)."""
        for address, _ in self._blocks(tensor):
            self._gpu.record_stream(address, stream, explicit=False)

    def _blocks(self, tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
        """Addresses and devices of the device memory that a gradient consists of."""
        tensors = self._face.tensors
        for part in parts(tensor):
            owner = tensors.owner(part)
            if owner >= 0:
                yield tensors.storage_address(part), owner

    def name(self, stream: Stream) -> str:
        """What the program calls the stream, made unique."""
        known = self._names.get(id(stream))
        if known is None:
            known = stream.name or f"stream {stream.handle:#x}"
            if len(self._gpu.devices) > 1:
                known += f" of cuda:{stream.device}"
            if known in self._names.values():
                known += f" ({stream.handle:#x})"
            self._names[id(stream)] = known
        return known

    def streams_of(self, node: Node) -> Streams:
        """The streams that were current when `node` was made (A1)."""
        return self._notes.streams_of(node)

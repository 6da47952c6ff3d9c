"""The streams of a backward pass on the virtual machine (rules A1 to A5).

torch's CPU engine runs the nodes on the calling thread and knows no streams. Where a graph spans
several streams, hooks on its nodes do what the engine of a CUDA build does at the same points
(torch/csrc/autograd/engine.cpp and input_buffer.cpp, as of 2.8): each node on the stream of its
forward operation, an event from the producer of each gradient to its consumer, sums on the
consumer's stream, and the caller's streams after all leaf streams. With one stream there is
nothing to do, and nothing is done.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from streamsan.virtual.face.below import Unseen
from streamsan.virtual.face.nodes import Nodes, current_node, sequence_number
from streamsan.virtual.streams import Event, Stream

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face

Node = Any
Slot = tuple[Node, int]
Streams = dict[int, Stream]
"""The current stream of each device; devices on their default stream are left out."""

_KEY = "streamsan.streams"
_NOTHING: AbstractContextManager[None] = nullcontext()


class Local(threading.local):
    """Per thread: when streams changed, leaves used since, and the backward passes at work.

    From the sequence number `since[k]` on, nodes were made under `streams[k]`. `switched` says that
    the thread has ever left its first streams.
    """

    def __init__(self) -> None:
        self.since: list[int] = [0]
        self.streams: list[Streams] = [{}]
        self.switched = False
        self.leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        self.passes: list[Pass] = []


class Backward:
    """Notes of the forward pass, and the backward passes of all threads."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self.local = Local()
        self.nodes = Nodes(face.gpu.observer.stack)

    # -- notes of the forward pass ----------------------------------------------------------------

    def forward(self, found: Sequence[tuple[torch.Tensor, int, int, str]]) -> None:
        """An operator is about to run: note leaves, and the stack of the node it makes."""
        if not torch.is_grad_enabled() or transforming():
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
        if transforming():
            return
        leaves, self.local.leaves = self.local.leaves, {}
        streams = self.local.streams[-1]
        for reference in leaves.values():
            leaf = reference()
            if leaf is None or not leaf.requires_grad or leaf.grad_fn is not None:
                continue
            node = _accumulator(leaf)
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
        passes = self.local.passes
        if passes:
            passes[-1].follow(current_node())

    def summing(self, name: str, device: int) -> AbstractContextManager[None]:
        """The context for the operator `name`: the sum's stream, where it is a gradient sum."""
        passes = self.local.passes
        if passes and passes[-1].sums and name.startswith("aten::add"):
            return passes[-1].sum_context(device)
        return _NOTHING

    def run(self, engine: Any, roots: Sequence[Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """Call the engine on `roots`; args as those of ``_engine_run_backward``."""
        if transforming():
            return engine(roots, *args, **kwargs)
        self.switching()
        inputs = args[3] if len(args) > 3 else ()
        work = Pass(self, self._face, roots, inputs)
        if not work.needed:
            return engine(roots, *args, **kwargs)
        self.local.passes.append(work)
        try:
            work.begin()
            result = engine(roots, *args, **kwargs)
            work.end()
            return result
        finally:
            self.local.passes.pop()
            work.close()


def transforming() -> bool:
    """Whether a transform of torch.func is at work, whose tensors have no nodes for us."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _accumulator(leaf: torch.Tensor) -> Node | None:
    """The node that accumulates the gradient of a leaf; None for what a transform has left over."""
    with Unseen(), torch.enable_grad():
        view = leaf.view_as(leaf)
    return None if view.grad_fn is None else view.grad_fn.next_functions[0][0]


def _edge(root: Any) -> Slot | None:
    """The node and output number that a root, an input or a gradient edge stands for."""
    if isinstance(root, torch.Tensor):
        if root.grad_fn is not None:
            return root.grad_fn, root.output_nr
        node = _accumulator(root) if root.requires_grad else None
        return None if node is None else (node, 0)
    return root.node, root.output_nr


class SlotState:
    """A gradient on its way into a node.

    `ready` is the stream it is ready on, `event` says when, `sums_on` is where sums are computed.
    """

    __slots__ = ("event", "ready", "sums_on")

    def __init__(self, sums_on: Stream, ready: Stream, event: Event | None) -> None:
        self.sums_on = sums_on
        self.ready = ready
        self.event = event


class Pass:
    """One backward pass over a graph that spans several streams."""

    def __init__(
        self, owner: Backward, face: Face, roots: Sequence[Any], inputs: Sequence[Any]
    ) -> None:
        self._owner = owner
        self._face = face
        self._gpu = face.gpu
        self._caller: Streams = dict(self._gpu.thread.current)
        self._roots = [edge for root in roots if (edge := _edge(root)) is not None]
        self._inputs = [edge for value in inputs or () if (edge := _edge(value)) is not None]
        self._streams: dict[Node, Streams] = {}
        self._collect()
        self._slots: dict[Node, dict[int, SlotState]] = {}
        self._at: dict[Node, Stream] = {}
        self._leaves: list[Stream] = []
        self._hooks: list[Any] = []
        self._node: Node = None
        self.sums: list[tuple[Slot, Stream]] = []

    def _collect(self) -> None:
        stack = [node for node, _ in self._roots]
        while stack:
            node = stack.pop()
            if node in self._streams:
                continue
            self._streams[node] = self._owner.streams_of(node)
            stack += [following for following, _ in node.next_functions if following is not None]

    @property
    def needed(self) -> bool:
        """Whether streams differ at all, among the nodes and the caller."""
        return any(streams != self._caller for streams in self._streams.values())

    def _stream(self, node: Node, device: int) -> Stream:
        streams = self._streams.get(node, self._caller)
        return streams.get(device) or self._gpu.devices[device].default

    def _device(self, gradients: Sequence[Any]) -> int | None:
        for gradient in gradients:
            if isinstance(gradient, torch.Tensor):
                owner = self._face.tensors.owner(gradient)
                if owner >= 0:
                    return owner
        return None

    # -- from the call to its end -----------------------------------------------------------------

    def begin(self) -> None:
        """Hook the nodes, and let the roots' gradients arrive from the caller's streams (A2)."""
        for node in self._streams:
            self._hooks.append(node.register_prehook(self._before(node)))
            self._hooks.append(node.register_hook(self._after(node)))
        for slot in self._roots:
            for device in range(len(self._gpu.devices)):
                caller = self._caller.get(device) or self._gpu.devices[device].default
                if self._streams[slot[0]].get(device) != self._caller.get(device):
                    self._arrive(slot, caller, self._stream(slot[0], device))

    def end(self) -> None:
        """The caller's streams wait for the streams of the leaves (A4)."""
        for node, number in self._inputs:
            for device in range(len(self._gpu.devices)):
                stream = self._stream(node, device)
                self._take(node, stream, number)
                self._leaves.append(stream)
        for leaf in dict.fromkeys(self._leaves):
            caller = self._caller.get(leaf.device) or self._gpu.devices[leaf.device].default
            if leaf is not caller:
                self._gpu.wait(caller, self._event(leaf))

    def close(self) -> None:
        """Take the hooks away and restore the caller's streams."""
        for hook in self._hooks:
            hook.remove()
        self._restore()

    def _restore(self) -> None:
        self._node = None
        self._gpu.thread.current.clear()
        self._gpu.thread.current.update(self._caller)

    # -- one node ---------------------------------------------------------------------------------

    def follow(self, node: Node) -> None:
        """Enter `node` if it is another than the last one."""
        if node is not None and node is not self._node and node in self._streams:
            self._enter(node, None)

    def _before(self, node: Node) -> Any:
        def prehook(gradients: Sequence[Any]) -> None:
            if self._node is not node:
                self._enter(node, self._device(gradients))

        return prehook

    def _enter(self, node: Node, device: int | None) -> None:
        """Rule A1 and A3: onto the node's stream, which waits for the gradients of all slots."""
        self._restore()
        self._node = node
        self.sums.clear()
        self._gpu.thread.current.clear()
        self._gpu.thread.current.update(self._streams[node])
        for index in range(len(self._gpu.devices)):
            self._take(node, self._stream(node, index), None)
        stream = self._stream(node, device if device is not None else self._gpu.thread.device)
        self._at[node] = stream
        if not node.next_functions:
            self._leaves.append(stream)

    def _take(self, node: Node, stream: Stream, number: int | None) -> None:
        for index, state in self._slots.get(node, {}).items():
            if number not in (None, index) or state.event is None or state.ready is stream:
                continue
            if state.sums_on.device == stream.device:
                self._gpu.wait(stream, state.event)

    def _after(self, node: Node) -> Any:
        def hook(gradients: Sequence[Any], _: Sequence[Any]) -> None:
            producer = self._at.get(node)
            self._gpu.thread.current.clear()
            self._gpu.thread.current.update(self._streams[node])
            if producer is None:
                return
            for gradient, (consumer, number) in zip(gradients, node.next_functions):
                if consumer is None or not isinstance(gradient, torch.Tensor):
                    continue
                owner = self._face.tensors.owner(gradient)
                if owner >= 0 and consumer in self._streams:
                    self._send(
                        gradient, producer, (consumer, number), self._stream(consumer, owner)
                    )

        return hook

    # -- one gradient (input_buffer.cpp) ----------------------------------------------------------

    def _event(self, stream: Stream) -> Event:
        event = self._gpu.new_event()
        self._gpu.record(event, stream)
        return event

    def _arrive(self, slot: Slot, producer: Stream, consumer: Stream) -> None:
        event = self._event(producer) if producer is not consumer else None
        self._slots.setdefault(slot[0], {})[slot[1]] = SlotState(consumer, producer, event)

    def _send(self, gradient: torch.Tensor, producer: Stream, slot: Slot, consumer: Stream) -> None:
        state = self._slots.get(slot[0], {}).get(slot[1])
        if state is None:
            if producer is not consumer:
                self._gpu.record_stream(
                    gradient.untyped_storage().data_ptr(), consumer, explicit=False
                )
            self._arrive(slot, producer, consumer)
            return
        sums_on = state.sums_on
        if sums_on is not producer:
            self._gpu.wait(sums_on, self._event(producer))
            self._gpu.record_stream(gradient.untyped_storage().data_ptr(), sums_on, explicit=False)
        if sums_on is not state.ready and state.event is not None:
            self._gpu.wait(sums_on, state.event)
        state.ready = sums_on
        self.sums.append((slot, sums_on))

    @contextmanager
    def sum_context(self, device: int) -> Iterator[None]:
        """The engine computes the next sum of a slot, on the slot's stream."""
        slot, stream = self.sums.pop(0)
        current = self._gpu.thread.current
        before = current.get(device)
        current[device] = stream
        yield
        if before is None:
            del current[device]
        else:
            current[device] = before
        self.summed(slot)

    def summed(self, slot: Slot) -> None:
        """The sum has been enqueued: its consumer waits for it, if it runs elsewhere."""
        state = self._slots[slot[0]][slot[1]]
        consumer = self._stream(slot[0], state.sums_on.device)
        state.event = self._event(state.sums_on) if consumer is not state.sums_on else None

"""A pass whose nodes run where the engine puts them: on machines that torch knows no streams of.

torch's engine then runs all nodes on the calling thread. Hooks on the nodes do what the engine of
a CUDA build does at the same points (torch/csrc/autograd/engine.cpp and input_buffer.cpp): each
node on the stream of its forward operation (A1), an event from the producer of each gradient to
its consumer, sums on a stream of the slot's own (A3). With one stream there is nothing to do.
Nothing orders what nodes and hooks do on streams that they switch to by themselves (A5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from streamsan.autograd.machine import PlacingMachine, Stream, Streams
from streamsan.autograd.passes import Call, Node, Pass, Recorded, Slot, label
from streamsan.autograd.plan import Plan
from streamsan.autograd.policy import CALLER, DEFAULT, NOBODY, Policy


class SlotState:
    """A gradient on its way into a node.

    `ready` is the stream it is ready on, `event` says when (None: the consumer's stream knows
    already), `sums_on` is where sums are computed, `rule` who asks for the wait.
    """

    __slots__ = ("event", "ready", "rule", "sums_on")

    def __init__(
        self, sums_on: Stream, ready: Stream, event: Recorded | None, rule: str = "A3"
    ) -> None:
        self.sums_on = sums_on
        self.ready = ready
        self.event = event
        self.rule = rule


class Placed(Pass):
    """One pass over a graph, with hooks on all its nodes."""

    machine: PlacingMachine

    def __init__(
        self, machine: PlacingMachine, policy: Policy, call: Call, plan: Plan | None
    ) -> None:
        super().__init__(machine, policy, call, plan)
        self._streams: dict[Node, Streams] = {
            node: machine.streams_of(node) if policy.streams else {} for node in call.nodes()
        }
        self._slots: dict[Node, dict[int, SlotState]] = {}
        self._at: dict[Node, Stream] = {}
        self._leaves: list[Stream] = []
        self._hooks: list[Any] = []
        self._node: Node = None
        self.sums: list[tuple[Slot, Stream]] = []
        """Sums that the engine computes next, with their streams."""

    @property
    def needed(self) -> bool:
        """Whether streams differ at all: among nodes, caller and those that the policy names."""
        ours = [self.caller, *self._streams.values()]
        if DEFAULT in (*self.policy.ends, self.policy.roots):
            ours.append({})
        return self.plan is not None or any(streams != ours[0] for streams in ours)

    def _stream(self, node: Node, device: int) -> Stream:
        return self.stream(self._streams.get(node, self.caller), device)

    # -- from the call to its end -----------------------------------------------------------------

    def begin(self) -> None:
        """Hook the nodes, and let the roots' gradients arrive (A2)."""
        for node in self._streams:
            self._hooks.append(node.register_prehook(self._before(node)))
            self._hooks.append(node.register_hook(self._after(node)))
        told: set[int] = set()
        for slot, gradient in self.call.roots:
            device = self.device_of([gradient])
            if device is None:
                continue
            if device not in told:
                told.add(device)
                self.tell("call", "backward is called", self.whose(CALLER, device))
            consumer = self._stream(slot[0], device)
            producer = consumer
            if self.policy.roots != NOBODY:
                producer = self.whose(self.policy.roots, device)
            self._send(gradient, producer, slot, consumer, self.policy.root_rule)

    def join(self) -> None:
        """The streams of leaves and of the inputs asked for are waited for."""
        for node, number in self.call.inputs:
            state = self._slots.get(node, {}).get(number)
            if state is not None:
                stream = self._stream(node, self.machine.device(state.sums_on))
                self._take(node, stream, number)
                self.tell("node", f"gradient of {label(node)}", stream, id(node))
                self._leaves.append(stream)
        self.join_leaves(self._leaves)

    def close(self) -> None:
        """Take the hooks away and restore the caller's streams."""
        for hook in self._hooks:
            hook.remove()
        super().close()

    # -- one node ---------------------------------------------------------------------------------

    def follow(self, node: Node) -> None:
        """Enter `node` if it is another than the last one: a hook of the user's may come first."""
        if node is not None and node is not self._node and node in self._streams:
            self._enter(node)

    def _enter(self, node: Node) -> None:
        """Rules A1 and A3: onto the node's stream, which waits for the gradients of all slots."""
        self._node = node
        self.sums.clear()
        self.machine.make_current(self._streams[node])
        for device in self.machine.devices():
            self._take(node, self._stream(node, device), None)

    def _take(self, node: Node, stream: Stream, number: int | None) -> None:
        for index, state in self._slots.get(node, {}).items():
            if number not in (None, index) or state.event is None or state.ready == stream:
                continue
            if self.machine.device(state.sums_on) == self.machine.device(stream):
                self.wait(stream, state.event, state.rule, id(node))

    def _before(self, node: Node) -> Any:
        def prehook(gradients: Sequence[Any]) -> None:
            self.follow(node)
            device = self.device_of(gradients)
            if device is None:
                self._at.pop(node, None)
                self.tell("node", label(node), None, id(node))
                return
            stream = self._at[node] = self._stream(node, device)
            self.tell("node", label(node), stream, id(node))
            if not node.next_functions:
                self._leaves.append(stream)

        return prehook

    def _after(self, node: Node) -> Any:
        def hook(gradients: Sequence[Any], _: Sequence[Any]) -> None:
            self.machine.make_current(self._streams[node])
            for gradient, (consumer, number) in zip(gradients, node.next_functions):
                if consumer is None or not isinstance(gradient, torch.Tensor):
                    continue
                owner = self.machine.owner(gradient)
                if owner >= 0 and consumer in self._streams:
                    producer = self._at.get(node)
                    if producer is None:  # it took no gradient from a device
                        producer = self._stream(node, owner)
                    slot = consumer, number
                    self._send(gradient, producer, slot, self._stream(consumer, owner), "A3")

        return hook

    # -- one gradient -----------------------------------------------------------------------------

    def _send(
        self, gradient: torch.Tensor, producer: Stream, slot: Slot, consumer: Stream, rule: str
    ) -> None:
        """A gradient is enqueued on `producer`, for a slot whose node runs on `consumer` (A3)."""
        state = self._slots.get(slot[0], {}).get(slot[1])
        if not self.policy.delayed:
            if producer != consumer:
                self.order(producer, consumer, rule, id(slot[0]))
                self.machine.record_stream(gradient, consumer)
            if state is not None:
                self.sums.append((slot, consumer))
            self._put(slot, SlotState(consumer, consumer, None))
        elif state is None:
            event = None
            if producer != consumer:
                event = self.record(producer)
                self.machine.record_stream(gradient, consumer)
            self._put(slot, SlotState(consumer, producer, event, rule))
        else:
            self._add(gradient, producer, slot, state)

    def _put(self, slot: Slot, state: SlotState) -> None:
        self._slots.setdefault(slot[0], {})[slot[1]] = state

    def _add(self, gradient: torch.Tensor, producer: Stream, slot: Slot, state: SlotState) -> None:
        sums_on = state.sums_on
        if sums_on != producer:
            self.order(producer, sums_on, "A3", ("sum", id(slot[0]), slot[1]))
            self.machine.record_stream(gradient, sums_on)
        if sums_on != state.ready and state.event is not None:
            self.wait(sums_on, state.event, state.rule, ("sum", id(slot[0]), slot[1]))
        state.ready = sums_on
        self.sums.append((slot, sums_on))

    @contextmanager
    def sum_context(self) -> Iterator[None]:
        """The engine computes the next sum of a slot, on the slot's stream."""
        slot, stream = self.sums.pop(0)
        before = self.machine.current()
        self.machine.make_current({**before, self.machine.device(stream): stream})
        yield
        self.machine.make_current(before)
        self._summed(slot, stream)

    def _summed(self, slot: Slot, stream: Stream) -> None:
        """The sum has been enqueued: its consumer waits for it, if it runs elsewhere."""
        node, number = slot
        self.tell("sum", f"sum for {label(node)}", stream, ("sum", id(node), number))
        state = self._slots[node][number]
        consumer = self._stream(node, self.machine.device(stream))
        state.event = self.record(stream) if consumer != stream else None
        state.rule = "A3"

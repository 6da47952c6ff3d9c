"""A pass whose nodes torch's own engine puts on their streams: on real CUDA devices.

There the engine lets the streams that are current at the call wait for the leaves (A4), and takes
the roots to be produced on them (A2). To get another release's ends, it is called under streams of
nobody's: what comes before the roots, and what waits for the leaves, is then ours to say. Nodes
that shall run on the default stream are moved there by hooks; the engine's own events name the
streams that it thinks they run on, so these are joined with the default stream around each node.
That is more order than the release had: within the pass nothing races. Nothing orders other
streams, the host, or what nodes and hooks do on streams that they switch to by themselves (A5).

What the engine does between the nodes (A1, A3) is that of the torch installed, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from streamsan.autograd.machine import ScratchMachine, Stream, Streams
from streamsan.autograd.passes import Call, Node, Pass, Slot, follow, label
from streamsan.autograd.plan import Plan
from streamsan.autograd.policy import CALLER, NOBODY, Policy

_ELSEWHERE = "the stream of its leaf"
"""Where an input's gradient is captured: no node is run there that could be watched."""


class Native(Pass):
    """One pass of torch's CUDA engine, with the ends of a policy."""

    machine: ScratchMachine

    def __init__(
        self, machine: ScratchMachine, policy: Policy, call: Call, plan: Plan | None
    ) -> None:
        super().__init__(machine, policy, call, plan)
        self._scratch: Streams = {} if policy.as_torch else machine.scratch(self.caller)
        self._hooks: list[Any] = []
        self._account = None if plan is None else Account(self, plan)

    def begin(self) -> None:
        """Let the scratch streams stand for what comes before the roots (A2); hook the nodes."""
        for device, stream in self._scratch.items():
            if self.policy.roots != NOBODY:
                follow(self.machine, stream, self.whose(self.policy.roots, device))
        if self._scratch:
            self.machine.make_current(self._scratch)
            self._hooks += [node.register_prehook(self._kept) for (node, _), _ in self.call.roots]
        if not self.policy.streams:
            moved = [Moved(self, node) for node in self.call.nodes()]
            self._hooks += [handle for mover in moved for handle in mover.hook()]
        if self._account is not None:
            self._hooks += self._account.hook()

    def _kept(self, gradients: Sequence[Any]) -> None:
        """The root's block outlives its use (M2). The engine sees to that too, where no recorder
        can see it; and the caller's stream, which owns the block, may not wait for the pass.
        """
        for gradient in gradients:
            device = self.device_of([gradient])
            if device is not None:
                self.machine.record_stream(gradient, self.machine.current()[device])

    def join(self) -> None:
        """Who the policy names waits for the scratch streams, which wait for all leaves (A4)."""
        for device, stream in self._scratch.items():
            for waiter in self.waiters(device):
                follow(self.machine, waiter, stream)
        if self._account is not None:
            self._account.ends()

    def close(self) -> None:
        """Take the hooks away and restore the caller's streams."""
        for hook in self._hooks:
            hook.remove()
        super().close()


class Moved:
    """A node moved to its device's default stream."""

    def __init__(self, work: Native, node: Node) -> None:
        self._machine = work.machine
        self._node = node
        self._device = work.device_of
        self._before: tuple[int, Streams] | None = None

    def hook(self) -> list[Any]:
        """Register; the handles. What the user registered before runs on the node's own stream."""
        return [self._node.register_prehook(self._enter), self._node.register_hook(self._leave)]

    def _enter(self, gradients: Sequence[Any]) -> None:
        device = self._device(gradients)
        if device is None:
            return
        streams, default = self._machine.current(), self._machine.default(device)
        self._before = device, streams
        follow(self._machine, default, streams[device])
        self._machine.make_current({**streams, device: default})
        self._used(gradients, default)

    def _leave(self, gradients: Sequence[Any], _: Sequence[Any]) -> None:
        if self._before is None:
            return
        device, streams = self._before
        self._before = None
        self._machine.make_current(streams)
        follow(self._machine, streams[device], self._machine.default(device))
        self._used(gradients, streams[device])

    def _used(self, gradients: Sequence[Any], stream: Stream) -> None:
        for gradient in gradients:
            if isinstance(gradient, torch.Tensor) and self._machine.owner(gradient) >= 0:
                self._machine.record_stream(gradient, stream)


class Account:
    """Watches the nodes of a pass, and writes down what torch's engine does between them (A3).

    Its events cannot be seen from here. Which there are follows from the streams that the nodes
    are seen to run on, by the rules of its ``input_buffer.cpp``.
    """

    def __init__(self, work: Native, plan: Plan) -> None:
        self._work = work
        self._machine = work.machine
        self._plan = plan
        self._arrived: dict[Slot, list[tuple[str, int, str]]] = {}
        self._leaves: list[Stream] = []
        self._at: dict[Node, Stream] = {}
        self._device = 0

    def hook(self) -> list[Any]:
        """Write the call down and register; the handles."""
        for slot, gradient in self._work.call.roots:
            device = self._work.device_of([gradient])
            if device is not None:
                self._device = device
                caller = self._work.whose(CALLER, device)
                self._work.tell("call", "backward is called", caller)
                if self._work.policy.roots != NOBODY:
                    source = self._work.whose(self._work.policy.roots, device)
                    self._arrive(slot, source, self._work.policy.root_rule)
        nodes = self._work.call.nodes()
        handles = [node.register_prehook(self._before(node)) for node in nodes]
        return [*handles, *(node.register_hook(self._after(node)) for node in nodes)]

    def _arrive(self, slot: Slot, producer: Stream, rule: str) -> None:
        name = self._machine.name(producer)
        self._arrived.setdefault(slot, []).append((name, self._plan.last(name), rule))

    def _taken(self, slot: Slot, name: str) -> None:
        """What arrived in a slot is waited for by the stream called `name`."""
        for producer, row, rule in self._arrived.pop(slot, []):
            if producer != name:
                self._plan.wait(self._plan.mark(producer, row), rule, id(slot[0]))

    def ends(self) -> None:
        """The pass is over: write down who waits for the leaves (A4)."""
        for slot in self._work.call.inputs:
            if slot in self._arrived:
                self._taken(slot, _ELSEWHERE)
                self._plan.add("node", f"gradient of {label(slot[0])}", _ELSEWHERE, id(slot[0]))
                self._end(_ELSEWHERE, self._device)
        for leaf in dict.fromkeys(self._leaves):
            self._end(self._machine.name(leaf), self._machine.device(leaf))
        called = self._work.whose(CALLER, self._device)
        self._work.tell_ends(self._leaves or [called])

    def _end(self, leaf: str, device: int) -> None:
        for waiter in self._work.waiters(device):
            if self._machine.name(waiter) != leaf:
                self._plan.wait(self._plan.mark(leaf), "A4", ("end", waiter))

    def _current(self, gradients: Sequence[Any]) -> Stream | None:
        device = self._work.device_of(gradients)
        return None if device is None else self._machine.current()[device]

    def _before(self, node: Node) -> Callable[[Sequence[Any]], None]:
        def prehook(gradients: Sequence[Any]) -> None:
            stream = self._current(gradients)
            name = "CPU" if stream is None else self._machine.name(stream)
            for number in range(len(gradients)):
                self._taken((node, number), name)
            self._plan.add("node", label(node), name, id(node))
            if stream is not None:
                self._at[node] = stream
                if not node.next_functions:
                    self._leaves.append(stream)

        return prehook

    def _after(self, node: Node) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(gradients: Sequence[Any], _: Sequence[Any]) -> None:
            stream = self._at.get(node, self._current(gradients))
            for gradient, (consumer, number) in zip(gradients, node.next_functions):
                if consumer is not None and gradient is not None and stream is not None:
                    self._arrive((consumer, number), stream, "A3")

        return hook

"""A backward pass: what all kinds of passes share.

`Pass` is the frame around torch's engine: it knows the policy, the caller's streams and the roots,
issues events and waits, and writes the account if somebody wants one. Its kinds differ in who puts
the nodes on their streams: `Placed` does it itself, `Native` leaves it to torch's engine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from streamsan.autograd.leaves import accumulator
from streamsan.autograd.machine import Event, Machine, Stream, Streams
from streamsan.autograd.plan import Mark, Plan, collected
from streamsan.autograd.policy import CALLER, Policy

Node = Any
Slot = tuple[Node, int]
"""A node and the number of one of its inputs."""


@dataclass(frozen=True)
class Call:
    """What a pass was called with: roots with their gradients, and the inputs asked for.

    Accumulators of leaves among them are kept, and made before any stream changes (A1).
    """

    roots: tuple[tuple[Slot, Any], ...]
    inputs: tuple[Slot, ...]

    @classmethod
    def of(cls, roots: Sequence[Any], args: tuple[Any, ...]) -> Call:
        """From the arguments of ``run_backward``: roots, then gradients, two flags, inputs."""
        gradients: Sequence[Any] = args[0] if args else ()
        gradients = [*gradients, *[None] * (len(roots) - len(gradients))]
        found = [
            (slot, gradient)
            for root, gradient in zip(roots, gradients)
            if (slot := slot_of(root)) is not None
        ]
        inputs = args[3] if len(args) > 3 else ()
        return cls(tuple(found), tuple(s for v in inputs or () if (s := slot_of(v)) is not None))

    def nodes(self) -> list[Node]:
        """All nodes that the roots lead to."""
        seen: dict[Node, None] = {}
        stack = [node for (node, _), _ in self.roots]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen[node] = None
                stack += [after for after, _ in node.next_functions if after is not None]
        return list(seen)


def slot_of(root: Any) -> Slot | None:
    """The slot that a tensor or a gradient edge stands for, if it has one."""
    if not isinstance(root, torch.Tensor):
        return root.node, root.output_nr
    if root.grad_fn is not None:
        return root.grad_fn, root.output_nr
    node = accumulator(root) if root.requires_grad else None
    return None if node is None else (node, 0)


@dataclass
class Recorded:
    """An event of a pass, and its mark in the account."""

    event: Event
    mark: Mark | None


class Pass:
    """One backward pass: `begin`, the engine, `end`, and in any case `close`."""

    def __init__(self, machine: Machine, policy: Policy, call: Call, plan: Plan | None) -> None:
        self.machine = machine
        self.policy = policy
        self.call = call
        self.caller = machine.current()
        self.plan = plan
        self._ended = False

    # -- from the call to its end -----------------------------------------------------------------

    def begin(self) -> None:
        """Take over the streams, and let the roots come after what rule A2 says."""
        raise NotImplementedError

    def end(self) -> None:
        """All nodes have run: give the caller's streams back and let them wait (A4). Once only."""
        if not self._ended:
            self._ended = True
            self.machine.make_current(self.caller)
            self.join()

    def join(self) -> None:
        """Rule A4: what has to wait for the leaf gradients waits."""
        raise NotImplementedError

    def close(self) -> None:
        """The pass is over, well or not."""
        self.machine.make_current(self.caller)
        if self.plan is not None:
            self.plan.seal()
            collected(self.plan)

    def finishing(self, callback: Callable[[], Any]) -> Callable[[], Any]:
        """A callback for the end of the pass, under the caller's streams and after their waits.

        It may run in a thread of torch's engine, whose own streams are put back.
        """

        def call() -> Any:
            before = self.machine.current()
            self.end()
            self.machine.make_current(self.caller)
            try:
                return callback()
            finally:
                self.machine.make_current(before)

        return call

    # -- streams, events and the account of them --------------------------------------------------

    def stream(self, streams: Streams, device: int) -> Stream:
        """The stream of a device among `streams`."""
        found = streams.get(device)
        return self.machine.default(device) if found is None else found

    def whose(self, who: str, device: int) -> Stream:
        """The stream that a policy names CALLER or DEFAULT."""
        return self.stream(self.caller, device) if who == CALLER else self.machine.default(device)

    def record(self, stream: Stream) -> Recorded:
        """A new event on a stream."""
        mark = None if self.plan is None else self.plan.mark(self.machine.name(stream))
        return Recorded(self.machine.record(stream), mark)

    def wait(self, stream: Stream, recorded: Recorded, rule: str, key: Hashable) -> None:
        """Let a stream wait for an event, on account of the row of `key`."""
        self.machine.wait(stream, recorded.event)
        if self.plan is not None and recorded.mark is not None:
            self.plan.wait(recorded.mark, rule, key)

    def order(self, first: Stream, then: Stream, rule: str, key: Hashable) -> None:
        """Let `then` wait for all that `first` was given so far."""
        if first != then:
            self.wait(then, self.record(first), rule, key)

    def tell(self, kind: str, label: str, stream: Stream | None, key: Hashable = None) -> None:
        """A row of the account, on a stream or on the host."""
        if self.plan is not None:
            name = "CPU" if stream is None else self.machine.name(stream)
            self.plan.add(kind, label, name, key)

    def device_of(self, gradients: Sequence[Any]) -> int | None:
        """The device of the first gradient that lives on one."""
        for gradient in gradients:
            if isinstance(gradient, torch.Tensor) and (owner := self.machine.owner(gradient)) >= 0:
                return owner
        return None

    def waiters(self, device: int) -> list[Stream]:
        """The streams of a device that the policy lets wait for the leaves (A4)."""
        return list(dict.fromkeys(self.whose(who, device) for who in self.policy.ends))

    def join_leaves(self, leaves: Sequence[Stream]) -> None:
        """These streams wait for the streams `leaves`."""
        for leaf in dict.fromkeys(leaves):
            for waiter in self.waiters(self.machine.device(leaf)):
                self.order(leaf, waiter, "A4", ("end", waiter))
        self.tell_ends(leaves)

    def tell_ends(self, leaves: Sequence[Stream]) -> None:
        """A row for each stream that goes on after the pass; the caller's in any case."""
        for device in sorted({self.machine.device(leaf) for leaf in leaves}):
            waiters, caller = self.waiters(device), self.whose(CALLER, device)
            others = [s for s in leaves if self.machine.device(s) == device and s != caller]
            if caller not in waiters:
                self.tell("left" if others else "end", "goes on", caller, ("end", caller))
            for waiter in waiters:
                self.tell("end", "goes on", waiter, ("end", waiter))


def follow(machine: Machine, then: Stream, first: Stream) -> None:
    """Let `then` wait for all that `first` was given so far."""
    if first != then:
        machine.wait(then, machine.record(first))


def label(node: Node) -> str:
    """The name of a node without its namespace."""
    return str(node.name()).rsplit("::", 1)[-1]

"""The engine: torch's own, with a pass of ours around each of its runs.

torch calls its engine through one object, ``Variable._execution_engine``. `Engine` takes its place
and is one of its kind, so that every pass of the process comes here: ``Tensor.backward``,
``torch.autograd.grad``, those of checkpoints and of hooks inside of other passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.autograd import Variable

from streamsan.autograd.cuda import CudaMachine
from streamsan.autograd.machine import Machine, PlacingMachine, ScratchMachine
from streamsan.autograd.native import Native
from streamsan.autograd.passes import Call, Pass
from streamsan.autograd.placed import Placed
from streamsan.autograd.plan import Plan, collected, wanted
from streamsan.autograd.policy import POLICIES, TORCH, Policy
from streamsan.autograd.site import call_site
from streamsan.errors import UsageError
from streamsan.tracebacks import hide_our_frames


class Local(threading.local):
    """Per thread: the policy asked for, and the passes at work, the innermost last."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self.passes: list[Pass] = []


class Engine(torch._C._ImperativeEngine):
    """torch's engine with streams by a policy. `policy` holds where a call names none."""

    def __init__(self) -> None:
        super().__init__()
        self.machine: Machine = CudaMachine()
        self.policy = TORCH
        self.local = Local()
        self._passes: dict[int, Pass] = {}  # by the id of torch's graph task

    @property
    def placed(self) -> Placed | None:
        """The pass at work in the calling thread, where it places the nodes."""
        passes = self.local.passes
        return passes[-1] if passes and isinstance(passes[-1], Placed) else None

    @contextmanager
    def under(self, policy: Policy) -> Iterator[None]:
        """Passes called from the block, and inside of these, follow `policy`."""
        before, self.local.policy = self.local.policy, policy
        try:
            yield
        finally:
            self.local.policy = before

    def run_backward(self, roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """Run a pass; roots and arguments as torch's engine takes them.

        Raises what it raises, and UsageError where a CUDA graph cannot capture the policy's waits.
        """
        work = self._pass(roots, args)
        if work is None:
            return super().run_backward(roots, *args, **kwargs)
        first = [node.register_prehook(self._begun(work)) for (node, _), _ in work.call.roots]
        self.local.passes.append(work)
        try:
            work.begin()
            result = super().run_backward(roots, *args, **kwargs)
            work.end()
            return result
        except BaseException as error:
            hide_our_frames(error)
            raise
        finally:
            self.local.passes.pop()
            for hook in first:
                hook.remove()
            for task in [task for task, other in self._passes.items() if other is work]:
                del self._passes[task]
            work.close()

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """A callback for the end of the pass at work, under the streams of its caller."""
        work = self._at_work()
        super().queue_callback(callback if work is None else work.finishing(callback))

    def _begun(self, work: Pass) -> Callable[[Any], None]:
        """Passes inside of this one, maybe in threads of torch's, know it by its graph task."""

        def prehook(_: Any) -> None:
            self._passes[torch._C._current_graph_task_id()] = work

        return prehook

    def _at_work(self) -> Pass | None:
        """The pass whose node runs in this thread. Hooks of its first node may come before ours."""
        task = torch._C._current_graph_task_id()
        if task < 0:
            return None
        if task in self._passes:
            return self._passes[task]
        return self.local.passes[-1] if self.local.passes else None

    def _pass(self, roots: Sequence[Any], args: tuple[Any, ...]) -> Pass | None:
        """The pass for a call; None where nothing is to do, so that torch's engine runs alone."""
        outer = self._at_work()
        policy = self.local.policy or (outer.policy if outer is not None else self.policy)
        plan = Plan(policy.name, call_site()) if wanted() else None
        machine = self.machine
        if not machine.begins():
            if plan is not None:
                plan.remark = "no streams: no GPU is in use"
                collected(plan)
            return None
        if not policy.as_torch and machine.capturing():
            possible = " or ".join(p.name for p in POLICIES.values() if p.as_torch)
            raise UsageError(
                f"a CUDA graph cannot capture a backward pass under the engine {policy.name}, whose"
                f" waits leave the capture: use {possible} for it"
            )
        if machine.places:
            if policy.as_torch and plan is None:
                return None
            return Native(cast(ScratchMachine, machine), policy, Call.of(roots, args), plan)
        work = Placed(cast(PlacingMachine, machine), policy, Call.of(roots, args), plan)
        return work if work.needed else None


_engine: Engine | None = None


def install(machine: Machine | None = None, policy: Policy | None = None) -> Engine:
    """Put the engine in the place of torch's, for the rest of the process, and return it.

    `machine` and `policy` stay what they were where they are None.
    """
    global _engine  # noqa: PLW0603 - torch has one engine
    if _engine is None:
        _engine = Engine()
        Variable._execution_engine = _engine
    if machine is not None:
        _engine.machine = machine
    if policy is not None:
        _engine.policy = policy
    return _engine


def reset() -> None:
    """The process's passes are as torch's own again; nothing where they always were."""
    if _engine is not None:
        _engine.policy = TORCH

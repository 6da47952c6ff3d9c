"""What the engine adds around torch's on devices that torch places nodes on, as CUDA's are.

The devices are stand-ins that write down each event and wait; the graphs are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from streamsan import autograd
from streamsan.autograd import engine
from streamsan.autograd.cuda import CudaMachine
from streamsan.errors import UsageError

DEFAULT, CALLER, NODE, SCRATCH = "default", "caller", "node", "scratch"


class Machine:
    """One device whose streams are words. All nodes run on `NODE`, as torch's engine would have it.

    `waits` holds each wait as (stream waited for, stream that waits).
    """

    places = True

    def __init__(self) -> None:
        self.now = {0: CALLER}
        self.waits: list[tuple[str, str]] = []
        self.kept: list[str] = []
        self.seen: list[str] = []
        self.captures = False

    def begins(self) -> bool:
        """There are streams."""
        return True

    def capturing(self) -> bool:
        """As the test says."""
        return self.captures

    def devices(self) -> Sequence[int]:
        """One."""
        return [0]

    def default(self, device: int) -> str:
        """Its default stream."""
        assert device == 0
        return DEFAULT

    def device(self, stream: str) -> int:
        """Of any stream."""
        assert stream
        return 0

    def current(self) -> dict[int, str]:
        """In a node, its stream; else what was made current."""
        running = torch._C._current_autograd_node() is not None
        return {0: NODE} if running and self.now[0] != DEFAULT else dict(self.now)

    def make_current(self, streams: dict[int, str]) -> None:
        """Make it current."""
        self.now = dict(streams)

    def record(self, stream: str) -> str:
        """An event is its stream's name."""
        return stream

    def wait(self, stream: str, event: str) -> None:
        """Write it down."""
        self.waits.append((event, stream))

    def owner(self, tensor: Any) -> int:
        """All tensors live on the device."""
        assert isinstance(tensor, torch.Tensor)
        return 0

    def record_stream(self, tensor: Any, stream: str) -> None:
        """Write it down."""
        assert isinstance(tensor, torch.Tensor)
        self.kept.append(stream)

    def name(self, stream: str) -> str:
        """Its name."""
        return stream

    def scratch(self, taken: dict[int, str]) -> dict[int, str]:
        """A stream of nobody's."""
        assert SCRATCH not in taken.values()
        return {0: SCRATCH}


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A stand-in that the engine works on meanwhile."""
    stand_in: Any = Machine()
    installed = engine.install()
    before, installed.machine = installed.machine, stand_in
    yield stand_in
    installed.machine = before


def _loss() -> tuple[Any, Any]:
    weight = torch.ones(3, requires_grad=True)
    return weight, (weight * 2).exp()


AROUND = [(NODE, DEFAULT), (DEFAULT, NODE)]
"""A node that is moved to the default stream: joined with the stream that it was to run on."""

WAITS = {
    "pre-streaming": AROUND * 4,
    "torch-1.6": [(DEFAULT, SCRATCH), (SCRATCH, DEFAULT)],
    "torch-1.9": [(CALLER, SCRATCH), (SCRATCH, CALLER), (SCRATCH, DEFAULT)],
    "torch-1.10": [],
    "torch-2.8": [],
}


@pytest.mark.parametrize("policy", WAITS)
def test_who_waits(machine: Machine, policy: str) -> None:
    _, product = _loss()
    autograd.backward(product.sum(), policy=policy)
    assert machine.waits == WAITS[policy]
    assert machine.now == {0: CALLER}


@pytest.mark.parametrize("policy", WAITS)
def test_the_engine_runs_under_streams_of_nobody(machine: Machine, policy: str) -> None:
    weight, product = _loss()
    seen: list[str] = []
    weight.register_hook(lambda _: seen.append(machine.now[0]))
    autograd.backward(product.sum(), policy=policy)
    chosen = autograd.POLICIES[policy]
    assert seen == [CALLER if chosen.as_torch else SCRATCH if chosen.streams else NODE]
    assert (NODE in machine.kept) != chosen.as_torch  # the root gradient's block


def test_a_moved_node_runs_on_the_default_stream(machine: Machine) -> None:
    weight, product = _loss()
    weight.register_post_accumulate_grad_hook(lambda _: machine.seen.append(machine.now[0]))
    autograd.backward(product.sum(), policy="pre-streaming")
    assert machine.seen == [DEFAULT]


def test_a_failing_node_leaves_the_callers_streams(machine: Machine) -> None:
    weight, product = _loss()

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    weight.register_hook(fail)
    for policy in autograd.POLICIES:
        with pytest.raises(ZeroDivisionError):
            autograd.backward(product.sum(), retain_graph=True, policy=policy)
        assert machine.now == {0: CALLER}
    assert not engine.install()._passes


def test_callbacks_run_under_the_callers_streams(machine: Machine) -> None:
    """They come after the waits of rule A4, though torch's engine knows our streams only."""
    _, product = _loss()
    loss = product.sum()
    seen: list[Any] = []

    def at_end() -> None:
        seen.append((machine.now[0], machine.waits[-2:]))

    loss.register_hook(lambda _: _engine().queue_callback(at_end))
    autograd.backward(loss, policy="torch-1.9")
    assert seen == [(CALLER, [(SCRATCH, CALLER), (SCRATCH, DEFAULT)])]
    assert machine.waits == WAITS["torch-1.9"]


def _engine() -> Any:
    return torch.autograd.Variable._execution_engine


@pytest.mark.parametrize("call", [autograd.backward, autograd.grad], ids=["backward", "grad"])
def test_a_capture_refuses_what_leaves_it(machine: Machine, call: Callable[..., Any]) -> None:
    machine.captures = True
    for name, policy in autograd.POLICIES.items():
        weight, product = _loss()
        arguments = (product.sum(),) if call is autograd.backward else (product.sum(), weight)
        if policy.as_torch:
            call(*arguments, policy=name)
        else:
            with pytest.raises(UsageError, match=f"capture a backward pass .* engine {name},"):
                call(*arguments, policy=name)


def test_account(machine: Machine) -> None:
    """What torch's engine orders by itself is written down too."""
    _, product = _loss()
    with autograd.plans() as found:
        autograd.backward(product.sum(), policy="torch-1.6")
    lines = [" ".join(line.split()) for line in str(found).splitlines()]
    assert lines[0].startswith("backward pass at ")
    assert lines[0].endswith("test_engine_native.py:" + lines[0].rsplit(":", 1)[1])
    assert lines[2:] == [
        "caller backward is called",
        "default earlier work event 1",
        "node SumBackward0 event 1 of default (A3)",
        "node ExpBackward0",
        "node MulBackward0",
        "node AccumulateGrad event 2",
        "caller goes on nothing",
        "default goes on event 2 of node (A4)",
    ]
    assert machine.now == {0: CALLER}


def test_account_of_captured_gradients(machine: Machine) -> None:
    weight, product = _loss()
    with autograd.plans() as found:
        autograd.grad(product.sum(), [weight], policy="torch-1.9")
    ends = [row for row in found.last.rows if row.kind == "end"]
    assert {row.stream for row in ends} == {CALLER, DEFAULT}
    assert {arrow.rule for row in ends for arrow in row.waits} == {"A4"}
    assert machine.now == {0: CALLER}


def test_without_a_gpu_there_is_nothing_to_order() -> None:
    weight, product = _loss()
    with autograd.plans() as found:
        autograd.backward(product.sum(), policy="torch-1.6")
    assert "no streams: no GPU is in use" in str(found)
    assert weight.grad is not None


def test_torch_is_called_with_its_own_arguments() -> None:
    """Positional and by name, as torch's functions take them."""
    weight, product = _loss()
    autograd.backward([product], [torch.ones(3)], True, False, None, [weight], policy="torch-1.9")
    ones = torch.ones(3)
    (gradient,) = autograd.grad([product], [weight], [ones], True, False, True, False, False, False)
    assert torch.equal(gradient, weight.grad)
    with pytest.raises(UsageError, match="no engine policy 'torch-3'"):
        autograd.grad(product, weight, policy="torch-3")


def test_the_block_of_a_batched_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transforms are not to see a use being recorded: to ``torch.func.grad`` it is a write."""
    recorded: list[Any] = []

    def record_stream(tensor: torch.Tensor, stream: Any) -> None:
        below = torch._C._functorch.peek_interpreter_stack() is None
        recorded.append((tensor.data_ptr(), stream, below))

    def row_used(row: torch.Tensor) -> torch.Tensor:
        machine.record_stream(row, side)
        return row * 2

    machine = CudaMachine()
    side: Any = object()
    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    rows = torch.ones(2, 3)
    torch.func.vmap(row_used)(rows)
    torch.func.grad(lambda t: row_used(t).sum())(rows)
    assert recorded == [(rows.data_ptr(), side, True)] * 2


def test_cuda_machine_without_cuda() -> None:
    machine = CudaMachine()
    if not torch.cuda.is_available():
        assert not machine.begins()
        assert list(machine.devices()) == []
        assert machine.owner(torch.ones(1)) < 0

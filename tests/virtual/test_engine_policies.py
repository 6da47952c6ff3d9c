"""What each engine policy orders: which programs race under which, and between which lines.

Rules A1 to A5 and the table of policies in docs/rules.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamsan.autograd import POLICIES
from tests.virtual.programs import ROOT, Done, Programs

_HEAD = """
import torch
weight = torch.full((64,), 3.0, device="cuda", requires_grad=True)
data = torch.ones(64, device="cuda")
side = torch.cuda.Stream()
ambient = torch.cuda.Stream()
torch.cuda.synchronize()
"""

PROGRAMS = """
# Called and used on the default stream, which did not wait for the forward pass.
with torch.cuda.stream(side):
    loss = (weight * data).exp().sum()  # joined: forward
loss.backward()  # joined: backward
weight.grad.sum()

# Used on a stream that has nothing to do with the pass (A5).
weight.grad = None
torch.cuda.synchronize()
loss = (weight * data).sum()
loss.backward()  # elsewhere: backward
with torch.cuda.stream(ambient):
    weight.grad.sum()  # elsewhere: use

# The root's gradient is made on the caller's stream (A2).
torch.cuda.synchronize()
with torch.cuda.stream(side):
    loss = weight * data
torch.cuda.synchronize()
with torch.cuda.stream(ambient):
    seed = data * 2  # root: seed
    loss.backward(seed)  # root: backward

# A gradient that is returned counts as a leaf's (A4).
torch.cuda.synchronize()
with torch.cuda.stream(side):
    loss = (weight * data).sum()
    seed = torch.ones((), device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    (gradient,) = torch.autograd.grad(loss, [weight], [seed])  # returned: backward
gradient.sum()  # returned: use

# x's node sends to z's, on the stream of y's node, which runs between them and needs no x (A3).
# Before 2.8 that stream waited as soon as x's gradient was enqueued.
note = torch.zeros(64, device="cuda")
with torch.cuda.stream(ambient):
    z = weight * 2
    y = weight * 3
torch.cuda.synchronize()
with torch.cuda.stream(side):
    x = z * 4
torch.cuda.synchronize()
def write(_):
    note.fill_(1)  # early: write
def read(_):
    note.sum()  # early: read
x.register_hook(write)
y.register_hook(read)
(x + y).sum().backward()
torch.cuda.synchronize()
"""
"""Each is on its own: what is not to race is synchronised."""

_RETURNED = ("returned: backward", "returned: use")
RACES = {
    "pre-streaming": {
        ("joined: forward", "joined: backward"),
        ("root: seed", "root: backward"),
    },
    "torch-1.6": {("root: seed", "root: backward")},
    "torch-1.9": set(),
    "torch-1.10": {_RETURNED},
    "torch-2.8": {_RETURNED, ("early: write", "early: read")},
}
"""What races in `PROGRAMS`, beside the use elsewhere, which always does."""

_SEED, _USED = ("loss.backward()", "loss.backward()"), ("loss.backward()", "weight.grad.mean()")
EXAMPLES = {
    "backward_other_stream.py": {
        "pre-streaming": {_SEED, _USED},
        "torch-1.6": {_SEED, _USED},
        "torch-1.9": set(),
        "torch-1.10": set(),
        "torch-2.8": set(),
    },
    "backward_default_stream.py": {
        "pre-streaming": {_SEED},
        "torch-1.6": set(),
        "torch-1.9": set(),
        "torch-1.10": {_USED},
        "torch-2.8": {_USED},
    },
}
"""What races in the first report's programs."""


def _check(done: Done, text: str, pairs: set[tuple[str, str]], policy: str) -> None:
    """Exactly the races between lines with these pieces of text were found, all of kind R06."""
    lines = text.splitlines()

    def number(piece: str) -> int:
        return next(n for n, line in enumerate(lines, 1) if piece in line)

    assert set(done.lines) == {(number(first), number(second)) for first, second in pairs}
    assert {race["kind"] for race in done.races} <= {"R06-AUTOGRAD-STREAM"}
    assert (done.status, done.errors) == (66 if pairs else 0, [])
    assert done.report["summary"]["engine"] == policy


def _options(policy: str, schedule: str) -> tuple[str, ...]:
    return ("--schedule", schedule, *(("--engine", policy) if policy else ()))


@pytest.mark.parametrize("schedule", ["program", "late", "random:3"])
@pytest.mark.parametrize("policy", [*POLICIES, ""])
def test_races(programs: Programs, policy: str, schedule: str) -> None:
    done = programs.run(_HEAD + PROGRAMS, options=_options(policy, schedule))
    text = Path(programs.folder / "program.py").read_text(encoding="utf-8")
    expected = RACES[policy or "torch-2.8"] | {("elsewhere: backward", "elsewhere: use")}
    _check(done, text, expected, policy)


@pytest.mark.parametrize("schedule", ["program", "late"])
@pytest.mark.parametrize("policy", [*POLICIES, ""])
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples(programs: Programs, example: str, policy: str, schedule: str) -> None:
    """A race is found under each schedule; a late device prints what it does."""
    path = ROOT / "examples" / example
    done = programs.run_file(str(path), options=_options(policy, schedule))
    expected = EXAMPLES[example][policy or "torch-2.8"]
    _check(done, path.read_text(encoding="utf-8"), expected, policy)
    (mean,) = re.findall(r"gradient: (\S+)", done.stdout)
    assert (float(mean) == 1.0) == (schedule == "program" or not expected)


REENTRANT = """
from torch.utils.checkpoint import checkpoint
with torch.cuda.stream(side):
    loss = checkpoint(lambda w: (w * data).exp(), weight, use_reentrant=True).sum()
    loss.backward()
weight.grad.sum()
"""


@pytest.mark.parametrize(("policy", "races"), [("torch-1.9", 0), ("torch-2.8", 1)])
def test_a_pass_inside_of_a_pass_follows_its_policy(
    programs: Programs, policy: str, races: int
) -> None:
    done = programs.run(_HEAD + REENTRANT, options=("--engine", policy))
    assert len(done.races) == races
    call = f"import streamsan.autograd\n{_HEAD}{REENTRANT}".replace(
        "loss.backward()", f"streamsan.autograd.backward(loss, policy='{policy}')"
    )
    assert len(programs.run(call).races) == races


CALLBACK = """
from torch.autograd import Variable
with torch.cuda.stream(side):
    product = weight * data
def at_end():
    print(torch.cuda.current_stream() == ambient, weight.grad.sum().item())
product.register_hook(lambda g: Variable._execution_engine.queue_callback(at_end))
with torch.cuda.stream(ambient):
    ambient.wait_stream(side)
    product.sum().backward()
    print(torch.cuda.current_stream() == ambient)
"""


def test_callbacks_run_under_the_streams_of_the_caller(programs: Programs) -> None:
    """They come after what the caller's streams wait for (A4), as in torch's engine."""
    done = programs.run(_HEAD + CALLBACK, options=("--schedule", "late"))
    assert (done.status, done.stdout) == (0, "True 64.0\nTrue\n")


CAPTURE = """
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    (weight * data).sum().backward()
graph.replay()
torch.cuda.synchronize()
print(weight.grad.sum().item())
"""


@pytest.mark.parametrize("policy", POLICIES)
def test_graph_capture(programs: Programs, policy: str) -> None:
    """A policy whose waits would leave the capture is refused, in one sentence."""
    done = programs.run(_HEAD + CAPTURE, options=("--engine", policy))
    if POLICIES[policy].as_torch:
        assert (done.status, done.stdout) == (0, "64.0\n")
    else:
        assert done.status == 1
        assert f"under the engine {policy}" in done.stderr
        assert "use torch-1.10 or torch-2.8" in done.stderr


@pytest.mark.parametrize(
    "how",
    [
        ("run", "--engine", "torch-1.7", "-c", "pass"),
        ("run", "-c", "from streamsan import autograd\nautograd.grad(1, 2, policy='torch-1.7')"),
    ],
    ids=["option", "call"],
)
def test_an_unknown_policy_is_one_sentence(programs: Programs, how: tuple[str, ...]) -> None:
    done = programs.streamsan(*how)
    assert done.status in (1, 2)
    assert "there is no engine policy 'torch-1.7': choose from pre-streaming, " in done.stderr

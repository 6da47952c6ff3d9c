"""What `overhead.py` measures: two training programs, and the ways to watch them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

Step = Callable[[], None]


def vit(batch: int = 64) -> Step:
    """A training step of torchvision's ViT-B/16 in bf16, AdamW."""
    import torch
    import torchvision  # type: ignore[import-not-found]

    torch.manual_seed(0)
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    model = torchvision.models.vit_b_16().to(**kind)
    optimizer = torch.optim.AdamW(model.parameters())
    images = torch.randn(batch, 3, 224, 224, **kind)  # type: ignore[call-overload]
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def vit_on_host() -> Step:
    """The same with a batch of 1: the GPU waits for the host."""
    return vit(1)


def mlp() -> Step:
    """A training step of small layers, which the launches of its kernels take the time of."""
    import torch

    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(18):
        layers += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, targets = (torch.randn(32, 64, device="cuda") for _ in range(2))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    return step


PROGRAMS = {
    "vit": (vit, "ViT-B/16 training step, bf16, batch 64, AdamW", 8),
    "vit-host": (vit_on_host, "The same with a batch of 1: what the host takes", 8),
    "mlp": (mlp, "MLP training step, 18 small layers, SGD", 40),
}
"""By name: what makes the step, what the table calls it, and steps of a turn."""


def _count_operators(step: Step) -> int:
    """How many operators a step is made of."""
    from torch.utils._python_dispatch import TorchDispatchMode

    counted = 0

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal counted
            counted += 1
            return func(*args, **(kwargs or {}))

    counting: Any = Counting
    with counting():
        step()
    return counted


def count_operators(program: str) -> int:
    """How many operators a step of a program is made of, in its steady state."""
    step = PROGRAMS[program][0]()
    for _ in range(3):
        step()
    return _count_operators(step)


# -- ways to watch --------------------------------------------------------------------------------


def empty_mode() -> AbstractContextManager[Any]:
    """A dispatch mode that only passes operators on."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Empty(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    kind: Any = Empty
    mode: AbstractContextManager[Any] = kind()
    return mode


def trace_alone() -> AbstractContextManager[Any]:
    """The GPU trace of torch, with callbacks that do nothing."""
    import torch
    from torch.cuda import _gpu_trace

    torch.cuda.init()
    for name, register in vars(_gpu_trace).items():
        if name.startswith("register_callback_for_"):
            register(lambda *_: None)
    torch._C._activate_gpu_trace()
    return nullcontext()


@contextmanager
def dropped() -> Iterator[None]:
    """The recorder, whose records are dropped."""
    from streamsan.record import Options, open_recorder

    recorder = open_recorder(Options(device="cuda"), lambda _record: None)
    try:
        yield
    finally:
        recorder.stop()


@contextmanager
def checked(beside: bool) -> Iterator[None]:
    """Recorded and checked, in a process beside this one or inside of it."""
    from streamsan.record import Options
    from streamsan.session import Session

    session = Session(Options(device="cuda"), beside=beside)
    session.start()
    try:
        yield
    finally:
        session.stop()
        if session.report.verdict != "clean" or session.report.summary.internal_errors:
            raise SystemExit(session.render())


def torchs_sanitizer() -> AbstractContextManager[Any]:
    """The sanitizer that torch brings."""
    from torch.cuda import _sanitizer

    _sanitizer.enable_cuda_sanitizer()
    return nullcontext()


def _replace(owner: Any, name: str, result: object) -> None:
    """Have a function or method do nothing but give a result."""
    setattr(owner, name, lambda *_: result)


def by_mode() -> AbstractContextManager[Any]:
    """The recorder with a dispatch mode, as without a C++ compiler; records are dropped."""
    from streamsan.record.cuda import _recorder as _cuda

    _replace(_cuda, "open_dispatch", None)
    return dropped()


def portable() -> AbstractContextManager[Any]:
    """The same without any compiled part."""
    from streamsan.record import _core, _portable

    vars(_core).update(
        _compiled=None,
        Work=_portable.Work,
        Born=_portable.Born,
        LiveBlocks=_portable.LiveBlocks,
        Outlet=_portable.Outlet,
    )
    return by_mode()


def microseconds_of_a_walk(depth: int) -> float:
    """What it takes to find the number of a Python stack so deep."""
    from streamsan.record import _core

    stacks, calls = _core.stacks(lambda _: 0), 20_000

    def walk(left: int) -> float:
        if left:
            return walk(left - 1)
        begin = time.perf_counter()
        for _ in range(calls):
            stacks.number()
        return 1e6 * (time.perf_counter() - begin) / calls

    return walk(depth)


def without_operators() -> AbstractContextManager[Any]:
    """Operators are passed on unseen: what is left is the dispatcher's part and the trace."""
    from streamsan.record.cuda import _mode as _cuda_mode

    _replace(_cuda_mode.Routes, "_reported", None)
    return dropped()


def without_trace() -> AbstractContextManager[Any]:
    """The same, without torch's GPU trace."""
    from streamsan.record.cuda import _patches as _cuda_patches

    _replace(_cuda_patches, "install_trace", None)
    return without_operators()


VARIANTS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "bare": (nullcontext, "bare"),
    "empty": (empty_mode, "an empty dispatch mode"),
    "trace": (trace_alone, "torch's GPU trace alone, its callbacks empty"),
    "checked": (lambda: checked(True), "**recorded and checked** beside the program"),
    "inside": (lambda: checked(False), "recorded and checked inside the program"),
    "dropped": (dropped, "recorded, the records dropped"),
    "no-operators": (without_operators, "the same, allocations and frees only"),
    "no-trace": (without_trace, "the same, nothing: the way through the dispatcher"),
    "mode": (by_mode, "recorded by a dispatch mode, without a C++ compiler; records dropped"),
    "portable": (portable, "recorded without any compiler; records dropped"),
    "sanitizer": (torchs_sanitizer, "torch's own sanitizer, `torch.cuda._sanitizer`"),
}
"""By name: what a program runs within, and what the table calls it."""


def memory_kib() -> dict[str, int]:
    """Resident memory of this process and of the checker beside it, in KiB."""
    found = {"program": _resident("self")}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(os.getpid()).encode() in words and os.fsencode(sys.executable) == words[0]:
            found["checker"] = _resident(folder.name)
    return found


def _resident(process: str) -> int:
    for line in Path("/proc", process, "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0

"""Runs small programs on the CPU and on the virtual GPU, and holds their results side by side.

A process can install one virtual GPU only. So every run is a process of its own, forked from one
that has imported torch already.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

SCHEDULES = ("program", "late", "hold:default", "random:1", "random:2", "random:3")
SECONDS = 300
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "streamsan.session", "streamsan.record._torch"])


def same_as_cpu(program: Callable[[str], Any]) -> Callable[[], None]:
    """A test that a program of a device gives on ``cuda`` what it gives on ``cpu``.

    Results are compared bit by bit, under every schedule; the run must be free of races and of
    internal errors.
    """
    return _test(program, compare=True, devices=1, schedules=SCHEDULES)


def on_virtual_gpu(
    *schedules: str, devices: int = 1
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A test whose body runs on a fresh virtual GPU, once under each of `schedules` (or all)."""

    def decorate(body: Callable[[], None]) -> Callable[[], None]:
        return _test(body, compare=False, devices=devices, schedules=schedules or SCHEDULES)

    return decorate


def raised(function: Callable[[], object]) -> tuple[str, str]:
    """Type and text of the exception that `function` raises."""
    try:
        function()
    except Exception as error:  # whatever it is, the caller compares it
        return type(error).__name__, str(error)
    raise AssertionError("nothing was raised")


def _test(program: Callable[..., Any], **how: Any) -> Callable[[], None]:
    def test() -> None:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "problems.json"
            process = _CONTEXT.Process(
                target=_child, args=(program.__module__, program.__name__, str(output))
            )
            process.start()
            process.join(SECONDS)
            if process.exitcode is None:
                process.kill()
            assert output.exists(), f"no end within {SECONDS} s, or exit code {process.exitcode}"
            problems = json.loads(output.read_text(encoding="utf-8"))
        assert not problems, "\n".join(problems)

    test.__name__, test.__doc__ = program.__name__, program.__doc__
    test.__module__ = program.__module__
    test.run = lambda: _all_schedules(program, **how)  # type: ignore[attr-defined]
    return test


def _child(module: str, name: str, output: str) -> None:
    """In the process forked from the preloaded one."""
    test: Any = getattr(importlib.import_module(module), name)
    try:
        problems = test.run()
    except BaseException:  # the reference run failed
        problems = [traceback.format_exc()]
    Path(output).write_text(json.dumps(problems), encoding="utf-8")


def _all_schedules(
    program: Callable[..., Any], compare: bool, devices: int, schedules: tuple[str, ...]
) -> list[str]:
    torch.manual_seed(0)
    expected = program("cpu") if compare else None
    problems: dict[str, list[str]] = {}
    for schedule in schedules:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(_one_schedule(program, expected, compare, devices, schedule), pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = json.loads(text) if not status else [f"the process ended with {status}"]
        for problem in found:
            problems.setdefault(problem, []).append(schedule)
    return [f"[{', '.join(where)}] {problem}" for problem, where in problems.items()]


def _one_schedule(
    program: Callable[..., Any], expected: Any, compare: bool, devices: int, schedule: str
) -> list[str]:
    from streamsan.session import watch

    with watch(device="virtual", devices=devices, memory="2GiB", schedule=schedule) as session:
        torch.manual_seed(0)
        try:
            got = program("cuda") if compare else program()
            problems = list(differences(expected, got)) if compare else []
            torch.cuda.synchronize()
        except BaseException:  # `pytest.raises` fails with one; told to the test's process
            problems = [traceback.format_exc()]
    report = session.report
    problems += [f"internal error: {text}" for text in report.summary.internal_errors]
    if compare and report.races:
        problems.append(session.render())
    return problems


def differences(expected: Any, got: Any, path: str = "result") -> Iterator[str]:
    """What is not the same in two results; a tensor of ``cuda`` may stand for one of ``cpu``."""
    if type(expected) is not type(got):
        yield f"{path}: {type(got).__name__} for {type(expected).__name__}"
    elif isinstance(expected, torch.Tensor):
        yield from _tensor_differences(expected, got, path)
    elif isinstance(expected, dict):
        if list(expected) != list(got):
            yield f"{path}: keys {list(got)} for {list(expected)}"
        for key in expected:
            yield from differences(expected[key], got[key], f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(got):
            yield f"{path}: {len(got)} items for {len(expected)}"
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            yield from differences(one, other, f"{path}[{index}]")
    elif expected != got and not (expected != expected and got != got):  # or both are NaN
        yield f"{path}: {got!r} for {expected!r}"


def _tensor_differences(expected: torch.Tensor, got: torch.Tensor, path: str) -> Iterator[str]:
    for name in ("dtype", "shape", "requires_grad", "is_leaf", "layout"):
        one, other = getattr(expected, name), getattr(got, name)
        if one != other:
            yield f"{path}.{name}: {other} for {one}"
    if expected.layout != torch.strided or expected.shape != got.shape:
        return
    if expected.stride() != got.stride():
        yield f"{path}.stride(): {got.stride()} for {expected.stride()}"
    ours, theirs = _bytes(expected), _bytes(got.cpu())
    if not torch.equal(ours, theirs):
        yield f"{path}: {got.cpu()} for {expected}"


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.dtype.is_floating_point:  # one NaN is as good as another
        plain = torch.where(plain.isnan(), torch.full_like(plain, torch.nan), plain)
    return plain.reshape(-1).view(torch.uint8)

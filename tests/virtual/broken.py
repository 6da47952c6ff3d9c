"""Runs under plain Python: breaks each function of the recording path in turn, and tells on it.

The program under test is the same each time. One line of JSON for each function: what the program
printed and returned, and the errors of ours in the report.
"""

from __future__ import annotations

import json
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import streamsan
from streamsan.errors import TraceError
from streamsan.trace import read
from tests.virtual.hooks import find, hooks


def program() -> list[Any]:
    """Work on two streams, two threads, in graphs, pinned memory and backward passes."""
    import threading

    side = torch.cuda.Stream()
    weight = torch.ones(8, device="cuda", requires_grad=True)
    event = torch.cuda.Event()
    with torch.cuda.stream(side):
        loss = (weight * 2).sum()
    event.record(side)
    torch.cuda.current_stream().wait_event(event)
    loss.backward()
    host = torch.ones(8).pin_memory()
    array = host.numpy()
    device = host.to("cuda", non_blocking=True)
    device.record_stream(side)
    event.synchronize()
    torch.cuda.synchronize()
    found: list[Any] = [float(array.sum())]
    del array
    thread = threading.Thread(target=lambda: found.append((device + 1).sum().item()))
    thread.start()
    thread.join()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.add_(1)
    graph.replay()
    side.query()
    graph.reset()
    with torch.cuda.stream(side):  # a race, and a block dropped early
        device.mul_(2)
    device.add_(1)
    torch.cuda.Event().wait()
    torch.cuda.empty_cache()
    gradient = weight.grad
    return [*found, device.tolist(), gradient.tolist() if gradient is not None else None]


def raise_injected(*_: Any, **__: Any) -> Any:
    """Fail, and leave a sign. This code is put where only the names of Python itself are known."""
    import sys

    sys.audit("streamsan.injected")
    raise BufferError("injected")


_calls: list[int] = []


def count(event: str, _: object) -> None:
    """Count the calls of broken functions."""
    if event == "streamsan.injected":
        _calls.append(1)


def broken(function: types.FunctionType) -> Iterator[None]:
    """Break a function while the generator waits."""
    code = function.__code__
    free = code.co_freevars
    function.__code__ = raise_injected.__code__.replace(co_freevars=free)
    try:
        yield
    finally:
        function.__code__ = code


def run(function: types.FunctionType | None, folder: Path) -> dict[str, Any]:
    """Run the program once, with a function broken."""
    _calls.clear()
    trace = folder / "trace"
    with streamsan.watch(device="virtual", trace=trace, force=True) as session:
        breaking = broken(function) if function else iter([None])
        next(breaking)
        result = program()
        live = session.report  # with the function broken
        for _ in breaking:
            pass
    assert live is not None
    cut = ""
    try:
        for _ in read(trace):
            pass
    except TraceError as error:
        cut = str(error)
    return {
        "result": result,
        "errors": session.report.summary.internal_errors,
        "shown": session.render().count("BufferError"),
        "races": len(session.report.races),
        "calls": len(_calls),
        "trace": cut,
    }


def main() -> None:
    """Break all hooks."""
    sys.addaudithook(count)
    with tempfile.TemporaryDirectory() as name:
        for hook in ("", *hooks()):
            print(json.dumps({"hook": hook, **run(find(hook) if hook else None, Path(name))}))
            sys.stdout.flush()


if __name__ == "__main__":
    main()

"""What a labelled program has computed when it ends, under a schedule."""

from __future__ import annotations

import hashlib
import multiprocessing
import runpy
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

CASES = Path(__file__).parents[2] / "cases"

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "streamsan.session", "streamsan.virtual.face"])


def of(case: str, schedule: str) -> dict[str, str]:
    """Digests of the tensors that the program's ``main`` has in its variables, by their names."""
    reader, writer = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(case, schedule, writer))
    process.start()
    writer.close()
    found: dict[str, str] = reader.recv()
    process.join()
    return found


def _run(case: str, schedule: str, answer: Any) -> None:
    from streamsan.session import watch

    kept: dict[str, Any] = {}
    with watch(device="virtual", devices=2, memory="1GiB", schedule=schedule):
        program = runpy.run_path(str(CASES / f"{case}.py"), run_name="program")
        main = program["main"]

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "return" and frame.f_code is main.__code__:
                kept.update(frame.f_locals)

        sys.setprofile(note)
        main()
        sys.setprofile(None)
        torch.cuda.synchronize()
        answer.send(
            {
                name: _digest(value)
                for name, value in kept.items()
                if isinstance(value, torch.Tensor)
            }
        )


def _digest(tensor: torch.Tensor) -> str:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(bytes(data.tolist())).hexdigest()

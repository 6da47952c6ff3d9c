"""Runs programs in processes forked from this one, which has imported torch for all of them.

It reads one JSON request a line and answers with the process id, then with how it ended. The
forked process leaves the loop and becomes the program at the top level, so that it ends exactly
as Python ends: thread shutdown, exit handlers, the status.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from types import TracebackType
from typing import Any

import torch

import streamsan.commands
from streamsan.session import _session


def become(request: dict[str, Any]) -> None:
    """Take folder, environment and files of the request, as if started with them."""
    os.setsid()  # so that all of the program can be ended at once
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    for number, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv[:] = request["words"]


def serve() -> dict[str, Any] | None:
    """Fork for each request; a request in the child, None at the end of the input."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            answers.close()
            become(request)
            return request
        print(child, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
    return None


def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an exception without the frames that led to the program."""
    while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, RUNPY):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


RUNPY = "<frozen runpy>"

if __name__ == "__main__":
    assert torch.__version__
    chosen = serve()
    if chosen and chosen["beside"]:  # as on a machine with a GPU
        vars(_session)["device_of"] = lambda _: "cuda"
    if chosen and chosen["sanitize"]:
        sys.exit(streamsan.commands.main(sys.argv[1:]))
    elif chosen:
        sys.path[0] = chosen["folder"]
        sys.excepthook = hook
        runpy.run_path(sys.argv[0], run_name="__main__")

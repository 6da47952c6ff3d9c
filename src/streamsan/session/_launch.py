"""Starting the process that checks beside the program, so that the program does not notice it.

It is no child of the program's, or `os.wait` would find it: a process in between forks it and ends.
It has a session of its own, so that no key of the terminal reaches it; none of the program's files
but its end of the connection; and a fresh Python without the program's environment and site
packages, which finds only what it needs. All that the program could see is the end of the process
in between (SIGCHLD), where a session starts in its midst.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import msgspec
import zstandard

import streamsan
from streamsan.errors import UsageError
from streamsan.session._link import Kind, Link, connect

_SECONDS = 60.0
"""How long it may take to start, on a machine that is busy with other things."""

_CODE = """\
import os, sys
between = os.getpid()
if os.fork():
    os._exit(0)
os.setsid()
sys.path += sys.argv[5:]
from streamsan.session._process import main
main(between, *sys.argv[1:5])
"""


class NoProcessError(Exception):
    """This program cannot have a process beside it, and that is nobody's fault; says why."""


def start_process(trace: Path | None, force: bool) -> Link:
    """Start the process, which writes `trace` if there is one; the connection to it.

    Raises UsageError where the trace cannot be written, NoProcessError, and OSError where it fails.
    """
    if getattr(sys, "frozen", False) or "python" not in os.path.basename(sys.executable or ""):
        raise NoProcessError("this program is no Python that can be started again")
    end, other = connect()
    link = Link(end)
    try:
        with other:
            _spawn(other, trace, force)
        _await_start(link)
    except BaseException:
        link.close()
        raise
    return link


def _spawn(other: socket.socket, trace: Path | None, force: bool) -> None:
    """Start the process in between, and see it end. Raises OSError."""
    import subprocess  # not at the top: the program shall find it as Python would load it

    number = other.fileno()
    folders = dict.fromkeys(
        os.path.dirname(os.path.dirname(os.path.abspath(str(module.__file__))))
        for module in (streamsan, msgspec, zstandard)
    )
    words = [sys.executable, "-I", "-S", *(["-B"] if sys.dont_write_bytecode else []), "-c", _CODE]
    words += [str(number), str(os.getpid())]
    words += [os.path.abspath(trace) if trace else "", "force" if force else "", *folders]
    status = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(number,),
        cwd="/",
    ).wait()
    if status:
        raise OSError(f"Python ended with status {status}")


def _await_start(link: Link) -> None:
    kind, payload = link.receive(_SECONDS) or (Kind.FAILED, b"it did not start")
    if kind == Kind.REFUSED:
        raise UsageError(payload.decode("utf-8", "surrogateescape"))
    if kind == Kind.CHILD:
        os.waitpid(int(payload), 0)
        raise NoProcessError("all orphaned processes become this program's children")
    if kind != Kind.READY:
        raise OSError(payload.decode())

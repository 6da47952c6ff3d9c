"""A program killed at any moment leaves a readable trace, and no two share a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamsan.errors import TraceError, UsageError
from streamsan.model.records import AnyRecord, End, Note
from streamsan.trace import Writer, read

ENDLESS = """
import sys
from pathlib import Path
from streamsan.model.records import Note
from streamsan.trace import Writer

writer = Writer(Path(sys.argv[1]), batch=int(sys.argv[2]))
number = 0
while True:
    for _ in range(int(sys.argv[2])):
        writer.write(Note("info", str(number)))
        number += 1
    print(number, flush=True)
"""


def start(path: Path, batch: int) -> subprocess.Popen[str]:
    """A program that writes numbered records until it is killed; it says how many so far."""
    return subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path), str(batch)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("batch", "lines"), [(1, 1), (1, 400), (7, 50), (64, 9), (4096, 3)])
def test_a_kill_leaves_all_that_was_handed_over(tmp_path: Path, batch: int, lines: int) -> None:
    path = tmp_path / "t"
    with start(path, batch) as program:
        assert program.stdout is not None
        told = [int(program.stdout.readline()) for _ in range(lines)]
        program.send_signal(signal.SIGKILL)
    records: list[AnyRecord] = []
    with pytest.raises(TraceError, match=r"stops before its program ended|cut short"):
        records.extend(read(path))
    assert len(records) >= told[-1]
    assert records == [Note("info", str(number)) for number in range(len(records))]


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with start(path, 1) as program:
        assert program.stdout is not None
        program.stdout.readline()
        with pytest.raises(UsageError, match="is being written by another run"):
            Writer(path, force=True)
        with pytest.raises(UsageError, match="exists already"):
            Writer(path)
        program.stdout.readline()
        program.kill()
    before = path.read_bytes()
    assert before
    writer = Writer(path, force=True)  # whoever is dead writes no more
    writer.write(End(0, 1.0))
    writer.close()
    assert list(read(path)) == [End(0, 1.0)]


def test_a_forked_child_that_lives_on_keeps_no_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    ready, go = os.pipe()
    script = (
        "import os, sys; from pathlib import Path; from streamsan.trace import Writer\n"
        "writer = Writer(Path(sys.argv[1]))\n"
        "if os.fork() == 0: os.read(int(sys.argv[2]), 1); os._exit(0)\n"
        "writer.close()\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", script, str(path), str(ready)]
    subprocess.run(words, check=True, pass_fds=(ready,))
    Writer(path, force=True).close()
    os.write(go, b"x")
    os.close(ready)
    os.close(go)

"""Programs under ``streamsan run --device virtual``, and the same under plain Python."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("server.py")
SECONDS = 300
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "STREAMSAN"))},
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
    "OMP_NUM_THREADS": "1",
}


@dataclass
class Done:
    """A program that has ended; `report` is there where it was sanitized and told one."""

    status: int
    stdout: str
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def blind_spots(self) -> str:
        """All blind spots in one text."""
        return "\n".join(self.report["summary"]["blind_spots"])

    @property
    def lines(self) -> list[tuple[int, int]]:
        """The line pairs of the races."""
        return [(r["first"]["site"]["line"], r["second"]["site"]["line"]) for r in self.races]

    @property
    def races(self) -> list[dict[str, Any]]:
        """The races of the report."""
        races: list[dict[str, Any]] = self.report["races"]
        return races

    @property
    def errors(self) -> list[str]:
        """Errors of our own."""
        errors: list[str] = self.report["summary"]["internal_errors"]
        return errors


class Server:
    """The process that imported torch; programs are forked from it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def run(
        self,
        folder: Path,
        words: list[str],
        *,
        sanitize: bool,
        meanwhile: Meanwhile,
        beside: bool,
        **environ: str,
    ) -> Done:
        """Run a program; `meanwhile` is called with its process id.

        With `beside`, the checker runs in a process beside it, as on a real GPU.
        """
        out, err = folder / ".stdout", folder / ".stderr"
        request = {
            "words": words, "folder": str(folder), "environment": environ, "stdout": str(out),
            "stderr": str(err), "sanitize": sanitize, "beside": beside,
        }  # fmt: skip
        pipes: tuple[IO[str], IO[str]] = (self._process.stdin, self._process.stdout)  # type: ignore[assignment]
        print(json.dumps(request), file=pipes[0], flush=True)
        process = int(pipes[1].readline())
        meanwhile(process)
        if not select.select([pipes[1]], [], [], SECONDS)[0]:
            os.killpg(process, signal.SIGKILL)
        status = int(pipes[1].readline())
        return Done(status, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the server."""
        self._process.communicate()


Meanwhile = Callable[[int], None]


class Programs:
    """Runs programs written in a test, in a folder of the test's own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self.folder = folder

    def write(self, text: str, name: str = "program.py") -> str:
        """Write a file of the program; its path."""
        path = self.folder / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return str(path)

    def plain(self, text: str, *arguments: str, **environ: str) -> Done:
        """What plain Python makes of a program, on the CPU."""
        return self.plain_file(self.write(text), *arguments, **environ)

    def plain_file(self, path: str, *arguments: str, **environ: str) -> Done:
        """What plain Python makes of a script, on the CPU."""
        words = [path, *arguments]
        return self._server.run(
            self.folder, words, sanitize=False, meanwhile=lambda _: None, beside=False, **environ
        )

    def streamsan(
        self,
        *words: str,
        meanwhile: Meanwhile = lambda _: None,
        beside: bool = False,
        **environ: str,
    ) -> Done:
        """Run the command line."""
        words = ("streamsan", *words)
        return self._server.run(
            self.folder, [*words], sanitize=True, meanwhile=meanwhile, beside=beside, **environ
        )

    def run(
        self,
        text: str,
        *arguments: str,
        options: tuple[str, ...] = (),
        meanwhile: Meanwhile = lambda _: None,
        beside: bool = False,
    ) -> Done:
        """Run a program under StreamSan; its report is in the result."""
        path = self.write(text)
        return self.run_file(path, *arguments, options=options, meanwhile=meanwhile, beside=beside)

    def run_file(
        self,
        path: str,
        *arguments: str,
        options: tuple[str, ...] = (),
        meanwhile: Meanwhile = lambda _: None,
        beside: bool = False,
    ) -> Done:
        """Run a script under StreamSan; its report is in the result."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        reporting = ("--device", "virtual", "--format", "json", "-o", str(report))
        words = ("run", *reporting, *options, path, *arguments)
        done = self.streamsan(*words, meanwhile=meanwhile, beside=beside)
        if report.exists():
            done.report = json.loads(report.read_text())
        return done


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of this test process."""
    started = Server()
    yield started
    started.close()


@pytest.fixture
def programs(server: Server, tmp_path: Path) -> Programs:
    """Runs programs in a folder of the test's own."""
    return Programs(server, tmp_path)

"""The command line, in processes of its own, with a recorder that needs no framework."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAUNCH = Path(__file__).with_name("launch.py")
RACE = "import launch; launch.recorder.race()\n"

Done = subprocess.CompletedProcess[str]
Streamsan = Callable[..., Done]


def python(folder: Path, *words: str | Path, **environment: str) -> Done:
    """Run Python in `folder`."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "PYTHONIOENCODING": "utf-8",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def streamsan(tmp_path: Path) -> Streamsan:
    """Runs the command line in a folder of the test's own."""

    def run(*words: str | Path, **environment: str) -> Done:
        return python(tmp_path, LAUNCH, *words, **environment)

    return run


def script(folder: Path, text: str, name: str = "script.py") -> str:
    """Write a script and return its name."""
    (folder / name).write_text(text)
    return name


# The program's own world

SHOW = """
import sys, pickle, __main__
class Thing: pass
assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
assert __main__.Thing is Thing
package = __package__ or None
print(sys.argv, sys.path[0], __name__, package, __spec__ and __spec__.name)
print(globals().get("__file__"))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["script.py", "--device", "-v"],
        ["./folder/../script.py"],
        ["-m", "script", "a"],
        ["-mpackage", "a"],
        ["-m", "package.script"],
        ["-c", SHOW, "-m", "x"],
    ],
    ids=["script", "relative", "module", "package", "submodule", "text"],
)
def test_a_program_sees_what_it_sees_under_python(
    tmp_path: Path, streamsan: Streamsan, words: list[str]
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "folder").mkdir()
    for name in ("script.py", "package/__main__.py", "package/script.py"):
        script(tmp_path, SHOW, name)
    script(tmp_path, "", "package/__init__.py")
    expected = python(tmp_path, *words)
    done = streamsan("run", *words)
    assert expected.returncode == 0
    assert (done.returncode, done.stdout) == (0, expected.stdout)
    assert done.stderr.startswith("streamsan: no races found")


ENDINGS = {
    "well": "pass",
    "status": "raise SystemExit(3)",
    "none": "raise SystemExit",
    "message": "raise SystemExit('enough')",
    "wrapped": "raise SystemExit(256)",
    "exception": "def f():\n    1/0\nf()",
    "cause": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError(1) from e",
    "syntax": "print(1",
    "interrupt": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0])\n1/0",
    "bad hook": "import sys\nsys.excepthook = lambda *a: {}[1]\n1/0",
    "hook exits": "import sys\nsys.excepthook = lambda *a: sys.exit(9)\n1/0",
    "at once": "import os, sys\nprint('x', flush=True)\nos._exit(5)",
    "thread": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "thread exits": "import threading, sys\nthreading.Thread(target=lambda: sys.exit(4)).start()",
    "handlers": "import atexit\natexit.register(print, 'bye')\nraise SystemExit(2)",
    "forks": "import os\nchild = os.fork()\nif child: os.wait(); print('parent')",
    "forks and fails": "import os\nchild = os.fork()\nif child: print(os.wait()[1])\nelse: 1/0",
    "other directory": "import os\nos.chdir('/')\nprint(os.getcwd())",
    "spawns": "import multiprocessing as m\nclass A: pass\ndef f(q): q.put(A())\n"
    "if __name__ == '__main__':\n    c = m.get_context('spawn'); q = c.Queue()\n"
    "    p = c.Process(target=f, args=(q,)); p.start(); print(type(q.get())); p.join()",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_ends_as_under_python(tmp_path: Path, streamsan: Streamsan, ending: str) -> None:
    name = script(tmp_path, ending)
    expected = python(tmp_path, name)
    done = streamsan("run", name)
    told, separator, _ = done.stderr.partition("streamsan: ")
    assert done.returncode == expected.returncode
    assert done.stdout == expected.stdout
    assert told == expected.stderr
    assert separator or ending.startswith("print(1")  # not even compiled, so never recorded


def test_interrupted_like_python(tmp_path: Path, streamsan: Streamsan) -> None:
    done = streamsan("run", script(tmp_path, ENDINGS["interrupt"]))
    assert done.returncode == -signal.SIGINT


# Exit status and report


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (RACE, 66),
        (RACE + "raise SystemExit(7)", 7),
        (RACE + "1/0", 1),
        (RACE + "import os; os._exit(0)", 66),
        ("import atexit, launch; atexit.register(launch.recorder.race)", 66),
        ("import launch; launch.recorder.fail()", 0),
    ],
    ids=["race", "own status", "exception", "at once", "handler", "internal error"],
)
def test_status(tmp_path: Path, streamsan: Streamsan, text: str, status: int) -> None:
    done = streamsan("run", script(tmp_path, text))
    assert done.returncode == status
    assert done.stderr.count("streamsan: ") == 1
    assert ("race 1 of 1" in done.stderr) == ("race" in text)


def test_strict_makes_an_internal_error_count(tmp_path: Path, streamsan: Streamsan) -> None:
    done = streamsan("run", "--strict", script(tmp_path, "import launch; launch.recorder.fail()"))
    assert done.returncode == 1


def test_output_is_flushed_before_the_status_is_changed(
    tmp_path: Path, streamsan: Streamsan
) -> None:
    done = streamsan("run", script(tmp_path, RACE + "print('hello')"))
    assert (done.returncode, done.stdout) == (66, "hello\n")


def test_internal_errors_are_told_once(tmp_path: Path, streamsan: Streamsan) -> None:
    text = "import launch\nfor _ in range(3): launch.recorder.fail()\nprint('done')"
    done = streamsan("run", script(tmp_path, text))
    assert done.stdout == "done\n"
    assert done.stderr.count("StreamSan failed inside: checking: ") == 1
    assert "(and 2 more)" in " ".join(done.stderr.split())


def test_fail_fast(tmp_path: Path, streamsan: Streamsan) -> None:
    name = script(tmp_path, "print('before')\n" + RACE + "print('after')")
    done = streamsan("run", "--fail-fast", "--trace", "t", name)
    assert (done.returncode, done.stdout) == (66, "before\n")
    assert "race 1 of 1" in done.stderr
    assert streamsan("check", "t").returncode == 66


def test_output_file_and_json(tmp_path: Path, streamsan: Streamsan) -> None:
    name = script(tmp_path, "import os; os.chdir('/')\n" + RACE)
    done = streamsan("run", "--format", "json", "-o", "r.json", name)
    assert (done.returncode, done.stderr) == (66, "")
    value = json.loads((tmp_path / "r.json").read_text())
    assert value["verdict"] == "races"
    assert value["summary"]["exit_status"] == 0


def test_environment_and_flags(tmp_path: Path, streamsan: Streamsan) -> None:
    name = script(tmp_path, "import launch; print(launch.recorder.options)")
    setting = {"STREAMSAN": "device=virtual,devices=3,schedule=hold:side,engine=torch-1.9"}
    done = streamsan("run", "--devices=2", "--memory", "1GiB", name, **setting)
    assert "device='virtual', devices=2, schedule='hold:side'" in done.stdout
    assert "engine='torch-1.9', driver='auto', memory=1073741824" in done.stdout


# Traces


def test_trace_and_check(tmp_path: Path, streamsan: Streamsan) -> None:
    done = streamsan("run", "--trace", "my run", script(tmp_path, RACE))
    assert done.stderr.endswith("check it again with: streamsan check 'my run'\n")
    (tmp_path / "script.py").unlink()
    check = streamsan("check", "my run")
    assert check.returncode == 66
    assert "│ loss = weight * batch" in check.stdout
    assert check.stderr == ""
    show = streamsan("report", "--format", "markdown", "my run")
    assert show.returncode == 0
    assert show.stdout.startswith("# StreamSan: 1 race\n")


def test_a_killed_program_leaves_a_trace(tmp_path: Path, streamsan: Streamsan) -> None:
    kill = "import os, signal, time; time.sleep(1.5); os.kill(os.getpid(), signal.SIGKILL)"
    done = streamsan("run", "--trace", "t", script(tmp_path, RACE + kill))
    assert done.returncode == -signal.SIGKILL
    check = streamsan("check", "t")
    assert check.returncode == 3
    assert "race 1 of 1" in check.stdout
    assert "stops before the program's end" in check.stdout
    assert "stops before its program ended" in check.stderr


# Errors in one sentence

MISTAKES = {
    "no verb": (["verify", "x"], 2, "choose from run, check, report, doctor"),
    "script for verb": (["train.py"], 2, "did you mean `streamsan run train.py`?"),
    "option": (["run", "--devcie", "virtual", "x"], 2, "did you mean --device?"),
    "device": (["run", "--device", "gpu", "x"], 2, "choose from auto, cuda, virtual"),
    "format": (["check", "--format", "xml", "x"], 2, "choose from text, json"),
    "no value": (["run", "--device"], 2, "expected one argument"),
    "no script named": (["run"], 2, "there is no script to run"),
    "no code": (["run", "-c"], 2, "-c names no code"),
    "no script": (["run", "missing.py"], 2, "there is no script missing.py"),
    "directory": (["run", "."], 2, ". is a directory"),
    "no module": (["run", "-m", "missing.module"], 2, "there is no module missing.module"),
    "no folder": (["run", "-o", "a/b", "here.py"], 2, "make a first"),
    "output exists": (["run", "-o", "here.py", "here.py"], 2, "exists already"),
    "trace exists": (["run", "--trace", "here.py", "here.py"], 2, "exists already"),
    "one file twice": (["run", "--trace", "x", "-o", "./x", "here.py"], 2, "name two files"),
    "no trace": (["check", "missing"], 3, "there is no trace missing"),
    "foreign trace": (["check", "here.py"], 3, "not a StreamSan trace"),
    "two bad traces": (["check", "here.py", "missing"], 3, "there is no trace missing"),
    "two traces, one report": (["check", "-o", "x", "here.py", "b"], 2, "report of one trace"),
    "no number of jobs": (["check", "--jobs", "0", "here.py"], 2, "give 1 to 999, or auto"),
}


@pytest.mark.parametrize(("words", "status", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(
    tmp_path: Path, streamsan: Streamsan, words: list[str], status: int, message: str
) -> None:
    script(tmp_path, "print('ran')", "here.py")
    done = streamsan(*words)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_environment(tmp_path: Path, streamsan: Streamsan) -> None:
    done = streamsan("run", script(tmp_path, ""), STREAMSAN="colour=red")
    assert done.returncode == 2
    assert "STREAMSAN has no option 'colour'" in done.stderr


# Help


def test_help_starts_with_examples(streamsan: Streamsan) -> None:
    for words in (["--help"], ["run", "--help"], ["check", "-h"], ["report", "-h"]):
        done = streamsan(*words)
        assert done.returncode == 0
        assert done.stdout.splitlines()[2] == "examples"
        assert "usage: " not in done.stdout
    assert "--schedule NAME[:ARG]" in streamsan("run", "--help").stdout
    assert streamsan().returncode == 2


def test_version(streamsan: Streamsan) -> None:
    assert streamsan("--version").stdout == "streamsan 0.1.0\n"


def test_a_closed_pipe_is_no_error(tmp_path: Path, streamsan: Streamsan) -> None:
    streamsan("run", "--trace", "t", script(tmp_path, RACE))
    command = f"'{sys.executable}' '{LAUNCH}' report --format json t | head -c 1"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("{", "")


def test_a_fault_of_ours_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from streamsan import commands

    def broken(_: list[str]) -> int:
        raise KeyError("left over")

    monkeypatch.setattr(commands, "_dispatch", broken)
    assert commands.main(["check", "x"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("streamsan: internal error")
    assert "KeyError" in told


# Input that must survive, and output that cannot be written


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--trace", "./s.py", "--force", "s.py"],
        ["run", "--output", "link.py", "--force", "./s.py"],
        ["run", "--trace", "s.py", "--force", "-m", "s"],
        ["check", "--output", "./t", "--force", "t"],
        ["report", "--output", "t", "--force", "./t"],
    ],
)
def test_force_spares_the_input(tmp_path: Path, streamsan: Streamsan, words: list[str]) -> None:
    name = script(tmp_path, RACE, "s.py")
    (tmp_path / "link.py").symlink_to(name)
    streamsan("run", "--trace", "t", name)
    before = (tmp_path / "t").read_bytes()
    done = streamsan(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "which is the input" in done.stderr
    assert (tmp_path / "s.py").read_text() == RACE
    assert (tmp_path / "t").read_bytes() == before


def test_force_overwrites_anything_else(tmp_path: Path, streamsan: Streamsan) -> None:
    name = script(tmp_path, RACE, "s.py")
    (tmp_path / "r").write_text("old")
    assert streamsan("run", "--force", "--trace", "t", "-o", "r", name).returncode == 66
    assert (tmp_path / "r").read_text().startswith("race 1 of 1")
    assert streamsan("check", "t", STREAMSAN="trace=t,force").returncode == 66


@pytest.mark.parametrize("path", ["/proc/x", "/dev/full", "x" * 300])
def test_output_is_tried_before_the_run(tmp_path: Path, streamsan: Streamsan, path: str) -> None:
    done = streamsan("run", "--output", path, script(tmp_path, "print('ran')"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cannot be written" in done.stderr


def test_the_trial_leaves_nothing(tmp_path: Path, streamsan: Streamsan) -> None:
    name = script(tmp_path, "import os; print(os.path.exists('r'), os.path.getsize('old'))")
    (tmp_path / "old").write_text("old")
    assert streamsan("run", "-o", "r", name).stdout == "False 3\n"
    assert streamsan("run", "--force", "-o", "old", "-c", "1/0").returncode == 1
    assert (tmp_path / "old").read_text().startswith("streamsan: no races")


@pytest.mark.parametrize(("end", "status"), [("", 2), ("raise SystemExit(7)", 7)])
def test_a_report_that_is_lost(tmp_path: Path, streamsan: Streamsan, end: str, status: int) -> None:
    name = script(tmp_path, "import os; os.mkdir('r')\n" + end)
    done = streamsan("run", "-o", "r", name)
    assert done.returncode == status
    assert "cannot write" in done.stderr
    assert "no races found" in done.stderr


def shell(folder: Path, words: str, redirection: str) -> Done:
    """Run the command line in a shell; prints its status."""
    line = f"{{ '{sys.executable}' '{LAUNCH}' {words}; echo $? >&3; }} 3>status {redirection}"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    done.returncode = int((folder / "status").read_text())
    return done


@pytest.mark.parametrize("words", ["check t", "report t", "--help", "check --help", "--version"])
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_stdout_that_cannot_be_written(
    tmp_path: Path, streamsan: Streamsan, words: str, redirection: str
) -> None:
    streamsan("run", "--trace", "t", script(tmp_path, RACE))
    done = shell(tmp_path, words, redirection)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("streamsan: the output cannot be written: ")


def test_stderr_that_cannot_be_written(tmp_path: Path) -> None:
    script(tmp_path, RACE)
    assert shell(tmp_path, "run script.py", "2>/dev/full").returncode == 2
    assert shell(tmp_path, "run script.py", "2>&-").returncode == 66


@pytest.mark.parametrize(("words", "status"), [("check t", 66), ("report t", 0)])
def test_a_closed_pipe_keeps_the_status(
    tmp_path: Path, streamsan: Streamsan, words: str, status: int
) -> None:
    streamsan("run", "--trace", "t", script(tmp_path, RACE))
    done = shell(tmp_path, words, "| true")
    assert (done.returncode, done.stderr) == (status, "")


def test_help_lists_what_there_is(streamsan: Streamsan) -> None:
    assert "the files of --output, --trace and --plan" in streamsan("run", "--help").stdout
    for verb in ("check", "report"):
        page = streamsan(verb, "--help").stdout
        assert "--trace" not in page
        assert ("--strict" in page) == (verb == "check")

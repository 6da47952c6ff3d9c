"""Source lines: whose they are, how their file is named, which variable they assign."""

from __future__ import annotations

import importlib.util
import os
import site
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamsan
from streamsan.record import _sites

STDLIB = sysconfig.get_path("stdlib")
PURELIB = sysconfig.get_path("purelib")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder of installed packages that is reached through a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path / "link")])
    _clear()
    yield tmp_path
    _clear()


def _clear() -> None:
    for cached in (_sites._installed, _sites.is_user, _sites.portable):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("file", "user", "shown"),
    [
        (threading.__file__, False, "threading.py"),
        (os.path.join(STDLIB, "asyncio", "events.py"), False, "asyncio/events.py"),
        (os.path.join(PURELIB, "torch", "nn", "modules", "x.py"), False, "torch/nn/modules/x.py"),
        (os.path.join(PURELIB, "six.py"), False, "six.py"),
        ("<frozen runpy>", False, "<frozen runpy>"),
        ("<string>", True, ""),
        ("<stdin>", True, ""),
        ("<ipython-input-3-8f>", True, ""),
        ("<__array_function__ internals>", False, "<__array_function__ internals>"),
        (__file__, True, ""),
        ("train.py", True, ""),
        ("/srv/job/train.py", True, ""),
    ],
)
def test_whose_a_file_is(file: str, user: bool, shown: str) -> None:
    assert _sites.is_user(file, ()) == user
    if not user:
        assert _sites.portable(file) == shown


def test_packages_behind_a_link(installed: Path) -> None:
    for folder in ("link", "real"):
        file = str(installed / folder / "package" / "module.py")
        assert not _sites.is_user(file, ())
        assert _sites.portable(file) == "package/module.py"
    assert _sites.is_user(str(installed / "other" / "module.py"), ())


def test_packages_inside_of_the_standard_library_are_not_named_after_it() -> None:
    file = os.path.join(STDLIB, "site-packages", "torch", "storage.py")
    expected = (
        "torch/storage.py" if PURELIB.startswith(STDLIB) else "site-packages/torch/storage.py"
    )
    assert _sites.portable(file) == expected


def test_a_script_is_the_users_wherever_it_lies() -> None:
    script = os.path.join(PURELIB, "package", "train.py")
    assert not _sites.is_user(script, ())
    assert _sites.is_user(script, (script,))


def test_our_own_files_are_nobodys() -> None:
    assert streamsan.__file__ is not None
    assert _sites.is_ours(streamsan.__file__)
    assert not _sites.is_ours(__file__)
    spec = importlib.util.find_spec("streamsan.commands._program")
    assert spec is not None
    assert spec.origin is not None
    assert _sites.is_launcher(spec.origin)
    assert not _sites.is_launcher(streamsan.__file__)


SOURCE = """\
side = make()
a.b = make()
a[0] = make()
with make() as name:
    pass
for item in make():
    make()
one, two = make(), make()
x = (
    make()
)
x += make()
y: int = make()
if (z := make()):
    pass
make()
"""


@pytest.mark.parametrize(
    ("line", "target"),
    [
        (1, "side"), (2, "a.b"), (3, "a[0]"), (4, "name"), (5, ""), (6, "item"), (7, ""), (8, ""),
        (9, "x"), (10, "x"), (12, "x"), (13, "y"), (14, "z"), (16, ""), (99, ""),
    ],
)  # fmt: skip
def test_the_variable_of_a_statement(tmp_path: Path, line: int, target: str) -> None:
    file = tmp_path / "source.py"
    file.write_text(SOURCE)
    assert _sites.assigned_name(str(file), line) == target


@pytest.mark.parametrize("text", ["x = (", "\0", "x = 1\n" + "(" * 5000])
def test_a_file_that_is_no_python(tmp_path: Path, text: str) -> None:
    file = tmp_path / "source.py"
    file.write_text(text)
    assert _sites.assigned_name(str(file), 1) == ""


def test_text_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "source.py"
    file.write_text("    " + "x" * 500 + "\n")
    assert _sites.line_text(str(file), 1) == "x" * 200
    assert _sites.line_text(str(file), 2) == ""
    assert _sites.line_text("nowhere.py", 1) == ""

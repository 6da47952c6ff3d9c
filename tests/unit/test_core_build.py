"""Building the compiled core: in place where there is a compiler, and a reason where not."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from pathlib import Path

import pytest

import hatch_build
from streamsan.record import core_is_compiled
from streamsan.record._built import fingerprint

needs_compiler = pytest.mark.skipif(
    hatch_build.compiler() is None or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="there is no C compiler, or no interpreter lock",
)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, in the folder where they are built."""
    shutil.copytree(hatch_build.RECORD / "compiled", tmp_path / "compiled")
    shutil.copy(hatch_build.RECORD / "_built.py", tmp_path)
    monkeypatch.setattr(hatch_build, "RECORD", tmp_path)
    return tmp_path


@needs_compiler
def test_this_install_has_the_compiled_core() -> None:
    assert core_is_compiled()


@needs_compiler
def test_it_is_built_and_can_be_imported(record: Path) -> None:
    library, reason = hatch_build.build()
    assert (library is not None, reason) == (True, "")
    assert library is not None
    assert library.parent == record
    spec = importlib.util.spec_from_file_location("streamsan.record._compiled", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.Stacks(lambda _: 5).number() == 5
    assert module.SOURCES == fingerprint(record / "compiled") != 0
    (record / "compiled" / "core.h").write_text("another\n")
    assert fingerprint(record / "compiled") != module.SOURCES
    assert fingerprint(record / "nowhere") == 0


@needs_compiler
def test_a_failing_compiler_leaves_no_library_and_a_reason(record: Path) -> None:
    hatch_build.build()
    (record / "compiled" / "module.c").write_text("this is no C\n")
    library, reason = hatch_build.build()
    assert library is None
    assert "failed" in reason
    assert sorted(path.name for path in record.iterdir()) == ["_built.py", "compiled"]


def test_no_compiler_is_a_reason(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record.is_dir()
    monkeypatch.setattr(hatch_build, "compiler", lambda: None)
    library, reason = hatch_build.build()
    assert library is None
    assert reason

"""Builds the compiled core, `streamsan.record._compiled`, where there is a C compiler.

Hatchling calls the hook below for wheels and editable installs. Where nothing can be compiled, it
says so and the install is a pure one: `streamsan.record._portable` does the same in Python.
``python hatch_build.py`` builds in place, for a checkout that is used without being installed.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent / "src" / "streamsan" / "record"
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-shared", "-fPIC")


def compiler() -> list[str] | None:
    """The command of a C compiler, or None."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


def fingerprint() -> str:
    """The compiler's option that tells the library what it is built from."""
    spec = importlib.util.spec_from_file_location("_built", RECORD / "_built.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return f"-DSTREAMSAN_SOURCES={module.fingerprint()}u"


def build() -> tuple[Path | None, str]:
    """The library built, and where there is none, why."""
    target = RECORD / f"_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "the compiled core relies on the interpreter lock, which this Python lacks"
    command = compiler()
    if command is None:
        return None, "there is no C compiler"
    sources = sorted(str(path) for path in (RECORD / "compiled").glob("*.c"))
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    include = f"-I{sysconfig.get_path('include')}"
    try:
        subprocess.run(
            [*command, *FLAGS, fingerprint(), include, *sources, "-o", str(unfinished)],
            check=True,
            capture_output=True,
            text=True,
        )
        unfinished.replace(target)
    except (OSError, subprocess.CalledProcessError) as error:
        for library in (unfinished, target):  # an earlier one would be no good either
            library.unlink(missing_ok=True)
        said = getattr(error, "stderr", "") or str(error)
        return None, f"{shlex.join(command)} failed: {said.strip()[-800:]}"
    return target, ""


try:
    from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found]
        BuildHookInterface,
    )
except ImportError:  # run by itself
    pass
else:

    class CompiledCore(BuildHookInterface):  # type: ignore[misc]
        """Adds the library to a wheel; an editable install finds it where it was built."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
            """Build, before hatchling collects the files."""
            if self.target_name != "wheel":
                return
            library, reason = build()
            if library is None:
                self.app.display_warning(f"StreamSan without its compiled core: {reason}")
                return
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"].append(library.relative_to(self.root).as_posix())


if __name__ == "__main__":
    built, why = build()
    print(built or why)
    sys.exit(built is None)

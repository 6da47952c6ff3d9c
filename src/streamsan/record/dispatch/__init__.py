"""The part of the CUDA recorder that lives inside of torch's dispatcher, in C++ (``dispatch.cpp``).

It does what a dispatch mode does, at a small part of the cost: a mode takes every operator of the
program to Python and back. Since torch's C++ interface changes with each release, it is compiled
against the torch that is installed, once, when a GPU is first recorded, and kept in the user's
cache. Without a C++ compiler, or with a torch that it does not fit, the mode does the work.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

NAME = "_streamsan_dispatch"
SOURCE = Path(__file__).with_name("dispatch.cpp")
_CORE = SOURCE.parent.with_name("compiled")
_STANDARDS = ("-std=c++20", "-std=c++17")  # newer torch needs the first, older compilers the second


class BuildError(Exception):
    """There is no library; the text says why."""


def compiler() -> list[str] | None:
    """The command of a C++ compiler, or None."""
    for command in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


def library(*options: str) -> Path:
    """Where the library for this Python, this torch and these sources is kept, built or not."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    sources = (SOURCE, *SOURCE.parent.glob("*.hpp"), *_CORE.glob("*.h"))
    names = (torch.__version__, str(torch.__file__), *options)
    what = [*(path.read_bytes() for path in sorted(sources)), *(name.encode() for name in names)]
    digest = hashlib.sha256(b"\0".join(what)).hexdigest()[:16]
    return Path(cache) / "streamsan" / f"{NAME}-{digest}{sysconfig.get_config_var('EXT_SUFFIX')}"


def load(*options: str) -> ModuleType:
    """The library, built first if need be, with further options of the compiler (for tests).

    Raises BuildError.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("this Python has no interpreter lock")
    target = library(*options)
    if target.exists():
        return _loaded(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _build(target, options)
        return _loaded(target)
    except OSError:  # a home that cannot be written: build for this process alone
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / target.name
            _build(target, options)
            return _loaded(target)


def problem() -> str:
    """Why there is no library, or an empty string."""
    try:
        load()
    except BuildError as error:
        return str(error)
    return ""


def _build(target: Path, options: Sequence[str]) -> None:
    command = compiler()
    if command is None:
        raise BuildError("there is no C++ compiler")
    print(
        f"streamsan: compiling its recorder for torch {torch.__version__}, once (about 20 s)",
        file=sys.stderr,
        flush=True,
    )
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    errors = ""
    for standard in _STANDARDS:
        done = subprocess.run(
            [
                *command,
                standard,
                *_options(),
                *options,
                str(SOURCE),
                "-o",
                str(unfinished),
                *_libraries(),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            unfinished.replace(target)
            return
        errors = errors or next(
            (line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:]
        )
    unfinished.unlink(missing_ok=True)
    raise BuildError(f"the C++ compiler says: {errors.strip()[:300]}")


def _folder() -> Path:
    return Path(torch.__file__).parent


def _options() -> list[str]:
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    include = _folder() / "include"
    return [
        "-O2", "-shared", "-fPIC", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-I{sysconfig.get_path('include')}",
    ]  # fmt: skip


def _libraries() -> list[str]:
    folder = _folder() / "lib"
    return [f"-L{folder}", "-ltorch_python", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder}"]


def _loaded(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise BuildError(f"the compiled part cannot be loaded ({error})") from None
    return module

"""Source lines: which are the user's, what they say, and which variable they assign."""

from __future__ import annotations

import ast
import linecache
import os
import site
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType

import streamsan

_OURS = os.path.dirname(os.path.abspath(streamsan.__file__)) + os.sep
_LAUNCHER = os.path.join(_OURS, "commands", "_program.py")


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages, longest first."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    try:
        folders.update(site.getsitepackages())
        folders.add(site.getusersitepackages())
    except AttributeError:  # a site module of an embedded interpreter
        pass
    found = {os.path.realpath(folder) + os.sep for folder in folders if folder}
    return tuple(sorted(found, key=len, reverse=True))


def is_ours(file: str) -> bool:
    """Whether a file belongs to StreamSan."""
    return file.startswith(_OURS)


def is_launcher(file: str) -> bool:
    """Whether a frame of this file started the program: its callers are none of the program's."""
    return file == _LAUNCHER


_generated: set[str] = set()
_compiled: list[Callable[[CodeType], bool]] = []


def compiled(test: Callable[[CodeType], bool]) -> None:
    """Code for which `test` is true stands in for the user's: a compiler made it of a function."""
    _compiled.append(test)


def is_user_frame(frame: FrameType, user_files: tuple[str, ...]) -> bool:
    """Whether a frame is at a line of the user's program.

    A compiled function calls what was compiled with its own first line, which is none that runs;
    what was left uncompiled keeps its lines. Code made from a string is the user's in the main
    module only (``python -c``): dataclasses, and launchers of kernels, are made so too.
    """
    code = frame.f_code
    if not is_user(code.co_filename, user_files):
        return False
    if code.co_filename == "<string>":
        return frame.f_globals.get("__name__") == "__main__"
    return frame.f_lineno != code.co_firstlineno or not any(test(code) for test in _compiled)


def generated(file: str) -> None:
    """A file that a compiler of the program wrote, and that nobody reads: not the user's."""
    if file not in _generated:
        _generated.add(file)
        is_user.cache_clear()
        portable.cache_clear()


@lru_cache(maxsize=4096)
def is_user(file: str, user_files: tuple[str, ...]) -> bool:
    """Whether a file belongs to the user's program: not installed, not the standard library."""
    if file in user_files or os.path.realpath(file) in user_files:
        return True
    if file in _generated:
        return False
    if file.startswith("<"):
        return file in ("<string>", "<stdin>") or file.startswith("<ipython")
    return not os.path.realpath(file).startswith((*_installed(), _OURS))


@lru_cache(maxsize=4096)
def portable(file: str) -> str:
    """An installed file or one of the standard library, relative to where it is installed.

    ``torch/autograd/__init__.py`` and ``threading.py`` mean the same on every machine.
    """
    if file.startswith("<"):
        return file
    if file in _generated:
        return f"torch/_inductor/<generated>/{os.path.basename(file)}"
    path = os.path.realpath(file)
    folder = next((folder for folder in _installed() if path.startswith(folder)), "")
    return path[len(folder) :].replace(os.sep, "/")


def line_text(file: str, line: int) -> str:
    """The source line without its indentation; empty where the source is not to be had."""
    try:
        return linecache.getline(file, line).strip()[:200]
    except Exception:
        return ""


@lru_cache(maxsize=512)
def _targets(file: str) -> dict[int, str]:
    """Lines of a file and the variable their innermost statement assigns."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[int, tuple[int, str]] = {}
    for node in ast.walk(tree):
        name = _assigned(node)
        if not name or not isinstance(node, (ast.stmt, ast.NamedExpr)):
            continue
        start, end = node.lineno, _head_end(node)
        for line in range(start, end + 1):
            if line not in found or found[line][0] >= end - start:
                found[line] = (end - start, name)
    return {line: name for line, (_, name) in found.items()}


def _head_end(node: ast.stmt | ast.NamedExpr) -> int:
    """Last line of a statement, of a compound one's head only."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return int(max(node.lineno, body[0].lineno - 1))
    return int(node.end_lineno or node.lineno)


def _assigned(node: ast.AST) -> str:
    """The first name or attribute that a statement binds, as it is written."""
    target: ast.AST | None = None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For)):
        target = node.target
    elif isinstance(node, ast.With):
        target = node.items[0].optional_vars
    if isinstance(target, (ast.Tuple, ast.List)):
        target = target.elts[0] if target.elts else None
    if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
        return ast.unparse(target)
    return ""


def assigned_name(file: str, line: int) -> str:
    """The variable that the statement on a line assigns, or an empty string.

    ``a, b = f(), f()`` names the first only, so lines with several targets give none.
    """
    name = _targets(file).get(line, "")
    text = line_text(file, line)
    head = text.split("=", 1)[0]
    return "" if "," in head and not head.startswith(("for ", "with ")) else name

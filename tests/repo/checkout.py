"""The repository as its own tests see it: root, tracked files, parsed sources."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "streamsan"

GENERATED = {".git", ".venv", "__pycache__", "build", "dist", ".mypy_cache", ".ruff_cache"}


@cache
def tracked() -> tuple[Path, ...]:
    """All files that git tracks or would track; outside a git checkout, all but generated ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [p for p in ROOT.rglob("*") if not GENERATED & set(p.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in files if path.is_file()))


def name(path: Path) -> str:
    """A file's path as a message shows it."""
    return path.relative_to(ROOT).as_posix()


def text(path: Path) -> str | None:
    """The text of a file, or None where it is binary."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


@cache
def modules() -> tuple[Path, ...]:
    """All modules of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))

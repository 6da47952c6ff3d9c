"""Rules for the package's source files: documented, small, spelled out in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, SOURCE, modules, name, tracked, tree

MOST_LINES = 500

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Public classes, functions and methods of a body, with their dotted names."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def is_overload(node: Definition) -> bool:
    """Whether a definition is one of several signatures of the function that follows."""
    names = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
    return "overload" in names


@pytest.mark.parametrize("path", modules(), ids=name)
def test_documented(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module), "the module has no docstring"
    bare = [
        f"{node.lineno}: {what}"
        for what, node in public(module.body)
        if not ast.get_docstring(node) and not is_overload(node)
    ]
    assert not bare, "public names without a docstring"


@pytest.mark.parametrize("path", [p for p in tracked() if p.suffix == ".py"], ids=name)
def test_short_enough(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", modules(), ids=name)
def test_nothing_left_undone(path: Path) -> None:
    words = ("TODO", "FIXME", "XXX")
    source = path.read_text(encoding="utf-8")
    assert not [word for word in words if word in source]


def test_every_package_has_a_contract() -> None:
    packages = {path.parent for path in modules()}
    missing = [name(folder) for folder in packages if not (folder / "__init__.py").is_file()]
    assert not missing
    assert (SOURCE / "py.typed").is_file()


def test_version_is_said_once_and_in_the_changelog() -> None:
    import streamsan

    assert f"## {streamsan.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in settings

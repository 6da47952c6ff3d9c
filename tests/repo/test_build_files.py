"""The build's own files agree with one another: layers, extras, continuous integration."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from typing import Any

import pytest

from tests.repo.checkout import ROOT, SOURCE

tomllib = pytest.importorskip("tomllib", reason="in the standard library from Python 3.11 on")


def settings() -> dict[str, Any]:
    """What pyproject.toml says."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file))


def layers() -> list[str]:
    """The layers of the import contract, top first."""
    contract = settings()["tool"]["importlinter"]["contracts"][0]
    return [name.strip(" ()") for row in contract["layers"] for name in row.split("|")]


def test_every_part_of_the_package_is_in_a_layer() -> None:
    parts = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    parts |= {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert parts <= set(layers())


def test_layers_are_those_of_the_design() -> None:
    page = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    packages = [name for name in layers() if (SOURCE / name / "__init__.py").is_file()]
    section = page.partition("## Layers")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == packages


def test_each_dependency_is_imported() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    for requirement in settings()["project"]["dependencies"]:
        module = re.split(r"[<>=;\s]", requirement)[0]
        assert re.search(rf"^\s*(?:import|from) {module}\b", source, re.MULTILINE), module


def test_each_dependency_has_a_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    first = lines.index("dependencies = [") + 1
    block = lines[first : lines.index("]", first)]
    assert block[0].lstrip().startswith("#")
    pairs = itertools.pairwise(block)
    assert not [b for a, b in pairs if a.strip().startswith('"') and b.strip().startswith('"')]


@pytest.mark.parametrize("script", [".ci/run", "tools/demo.sh", "tools/smoke.sh"])
def test_scripts_are_sound(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = "bash" if "bash" in path.read_text(encoding="utf-8").splitlines()[0] else "sh"
    subprocess.run([shell, "-n", str(path)], check=True)


def test_continuous_integration_stops_at_the_first_failure() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    assert "|| true" not in script
    for stage in ("make --no-print-directory lint", "make --no-print-directory test"):
        assert stage in script

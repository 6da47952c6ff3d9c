"""What a tracked file must not hold: paths of one machine, hosts of one network, secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repo.checkout import name, text, tracked

MACHINE_PATH = re.compile(
    r"(?<![\w./~-])/(?:home|Users|root|work|opt|private)/(?!(?:me|you)/)[\w.-]+"
)
"""An absolute path into somebody's machine; made-up ones of tests belong to `me` and `you`."""

REGISTRY = re.compile(
    r"files\.pythonhosted|download\.pytorch\.org|pypi\.org/simple"
    r"|--(?:extra-)?index-url|--find-links|\bPIP_INDEX_URL\b"
)
"""Where packages come from is the reader's own choice."""

SECRET = re.compile(r"\b(?:ghp_|hf_|sk-|AKIA)[A-Za-z0-9]{16,}|BEGIN [A-Z ]*PRIVATE KEY")

RULES = {"machine path": MACHINE_PATH, "registry": REGISTRY, "secret": SECRET}

HERE = Path(__file__).resolve()


@pytest.mark.parametrize("rule", RULES)
def test_tracked_files_are_neutral(rule: str) -> None:
    found = [
        f"{name(path)}:{number}: {match.group()}"
        for path in tracked()
        if path != HERE
        for number, line in enumerate((text(path) or "").splitlines(), 1)
        for match in RULES[rule].finditer(line)
    ]
    assert not found


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("machine path", 'open("/home/ada/train.py")'),
        ("machine path", "see /root/.cache/torch"),
        ("registry", "pip install --index-url somewhere torch"),
        ("secret", "token = 'hf_" + "a1" * 12 + "'"),
    ],
)
def test_the_rules_match(rule: str, line: str) -> None:
    assert RULES[rule].search(line)


@pytest.mark.parametrize("line", ["a/home/page", "docs/root/index.md", "/tmp/x", "~/work/main"])
def test_ordinary_paths_pass(line: str) -> None:
    assert not MACHINE_PATH.search(line)


def test_no_large_file() -> None:
    large = [name(path) for path in tracked() if path.stat().st_size > 1 << 20]
    assert not large, "files over 1 MiB"

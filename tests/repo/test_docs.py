"""The documentation against the program: commands and options exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from streamsan.model import findings
from tests.repo.checkout import ROOT, name, tracked

PAGES = [path for path in tracked() if path.suffix == ".md" and "cases" not in path.parts]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
VERBS = {"run", "check", "report", "doctor"}


def shell_lines(page: Path) -> list[str]:
    """The commands of a page's shell blocks, without prompts, comments and program output."""
    lines: list[str] = []
    for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
        if fence["language"] not in {"console", "sh", "bash", "shell"}:
            continue
        body = fence["body"].replace("\\\n", " ")
        prompts = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
        lines += prompts or body.splitlines()
    return [line.split(" #")[0].strip() for line in lines if line.strip()]


@cache
def help_of(*arguments: str) -> str:
    """What `streamsan ARGUMENTS --help` prints."""
    command = [sys.executable, "-m", "streamsan", *arguments, "--help"]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout


def make_targets() -> set[str]:
    """The targets that the Makefile declares."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def own_arguments(words: list[str]) -> list[str]:
    """The options in a `streamsan VERB` command that are ours, not the script's."""
    options: list[str] = []
    for word in words:
        if word.endswith(".py") or word in {"-m", "-c"}:
            break
        if word.startswith("--"):
            options.append(word.split("=")[0])
    return options


def complaint(line: str) -> str | None:
    """What is wrong with a documented command, or None."""
    words = shlex.split(line)
    while words and "=" in words[0]:
        words.pop(0)
    if words[:1] == ["make"]:
        unknown = [w for w in words[1:] if "=" not in w and w not in make_targets()]
        return f"no make target {unknown}" if unknown else None
    if words[:3] == ["python", "-m", "streamsan"]:
        words = ["streamsan", *words[3:]]
    if words[:1] == ["python"] and len(words) > 1 and words[1].startswith("examples/"):
        return None if (ROOT / words[1]).is_file() else f"no file {words[1]}"
    if words[:1] != ["streamsan"] or len(words) == 1:
        return None
    if words[1].startswith("-"):
        return None if words[1] in help_of() else f"no option {words[1]}"
    if words[1] not in VERBS:
        return f"no verb {words[1]}"
    unknown = [o for o in own_arguments(words[2:]) if o not in help_of(words[1])]
    return f"no option {unknown}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    wrong = [f"{line}: {why}" for line in shell_lines(page) if (why := complaint(line))]
    assert not wrong


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("streamsan run --device virtual train.py --racy", False),
        ("STREAMSAN=1 python train.py", False),
        ("streamsan run --no-such-option train.py", True),
        ("streamsan frobnicate", True),
        ("make no-such-target", True),
        ("python examples/no_such_example.py", True),
    ],
)
def test_a_wrong_command_is_noticed(line: str, wrong: bool) -> None:
    assert bool(complaint(line)) == wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [t.split("#")[0] for t in targets if not re.match(r"\w+:|#", t)]
    assert not [target for target in local if not (page.parent / target).exists()]


def test_the_two_commands_open_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_verb_is_explained(verb: str) -> None:
    assert verb in help_of()
    assert f"streamsan {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_option_of_run_is_explained() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_of("run"))) - {"--help"}
    assert not {option for option in options if option not in pages}


def test_report_schema_is_documented() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    assert findings.SCHEMA in page
    for struct in (
        findings.Report,
        findings.Finding,
        findings.Side,
        findings.Memory,
        findings.Summary,
        findings.Site,
    ):
        for field in msgspec.structs.fields(struct):
            assert re.search(rf"\b{field.encode_name}\b", page), (
                f"{struct.__name__}.{field.encode_name} is not described"
            )


def test_exit_statuses_are_documented() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    for status in ("0", "1", "2", "3", "66"):
        assert re.search(rf"^\|\s*`?{status}`?\s*\|", page, re.MULTILINE), (
            f"no row for exit status {status}"
        )

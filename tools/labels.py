"""The labels of the programs in ``cases/``: headers, markers, and what a collection must hold.

The format is described in ``cases/README.md``. Lines count from 1.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

Pair = tuple[int, int]
"""Two line numbers, the lower one first."""

VERDICTS = ("race", "clean", "latent", "possible")
FIELDS = ("kind", "verdict", "source", "twin", "why")
"""Header fields of every labelled program; those of this repository have ``rule`` as well."""

_MARKER = re.compile(r"#\s*(RACE|LATENT|POSSIBLE|MAYBE)((?:\s+[A-Za-z0-9]+)+)\s*$")
_FIELD = re.compile(r"([a-z]+): (.+)")
_RULE_ROW = re.compile(r"^\| ([A-Z]\d{1,2}) \|", re.MULTILINE)
_KIND = re.compile(r"R\d\d(-[A-Z0-9]+)+")


class LabelError(Exception):
    """A program whose labels cannot be read; the text names the file and what is wrong."""


@dataclass(frozen=True)
class Case:
    """A labelled program. `race`, `latent`, `possible` and `maybe` are the pairs that its markers
    name.
    """

    path: Path
    fields: dict[str, str]
    race: frozenset[Pair]
    latent: frozenset[Pair]
    maybe: frozenset[Pair]
    possible: frozenset[Pair] = frozenset()

    @property
    def name(self) -> str:
        """File name without its suffix, as the ``twin`` field of another program gives it."""
        return self.path.stem

    @property
    def rules(self) -> tuple[str, ...]:
        """Ids of the rules that decide it, the most decisive first; none where bytes decide."""
        value = self.fields.get("rule", "none")
        return () if value == "none" else _listed(value)

    @property
    def twins(self) -> tuple[str, ...]:
        """Names of the same program with the order repaired, or broken."""
        return _listed(self.fields.get("twin", ""))

    @property
    def only(self) -> str:
        """The one ``--device`` on which StreamSan sees it, or an empty string."""
        return self.fields.get("only", "")

    @property
    def devices(self) -> int:
        """How many devices it needs."""
        return int(self.fields.get("devices", "1"))


def read_case(path: Path) -> Case:
    """The labels of one program; raises LabelError where a marker does not name one pair."""
    text = path.read_text(encoding="utf-8")
    document = ast.get_docstring(ast.parse(text)) or ""
    matches = (_FIELD.fullmatch(line) for line in document.splitlines())
    fields = {match[1]: match[2].strip() for match in matches if match}
    lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, line in enumerate(text.splitlines(), 1):
        if marker := _MARKER.search(line):
            for label in marker[2].split():
                lines[marker[1]][label].append(number)

    def pairs(marker: str) -> frozenset[Pair]:
        return frozenset(_pair(path, marker, *entry) for entry in lines[marker].items())

    return Case(path, fields, pairs("RACE"), pairs("LATENT"), pairs("MAYBE"), pairs("POSSIBLE"))


def find_cases(paths: Iterable[Path]) -> list[Case]:
    """The programs at `paths`; a folder stands for all programs in it and below."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [read_case(file) for file in files]


def table_rules(text: str) -> list[str]:
    """Rule ids in the first column of the Markdown tables of `text`, in order."""
    return _RULE_ROW.findall(text)


def faults(cases: list[Case]) -> list[str]:
    """What is wrong with the headers, the names and the twins of `cases`, one line each."""
    found = [f"{case.name}: {fault}" for case in cases for fault in _own_faults(case)]
    counts = Counter(case.name for case in cases)
    found += [
        f"{name}: {count} programs of that name" for name, count in counts.items() if count > 1
    ]
    by_name = {case.name: case for case in cases}
    for case in cases:
        for twin in case.twins:
            if twin not in by_name:
                found.append(f"{case.name}: its twin {twin} does not exist")
            elif case.name not in by_name[twin].twins:
                found.append(f"{case.name}: its twin {twin} does not name it")
            elif "clean" not in (case.fields.get("verdict"), by_name[twin].fields.get("verdict")):
                found.append(f"{case.name}: neither it nor its twin {twin} is clean")
    return found


def uncovered(cases: list[Case], rules: Iterable[str], excused: Iterable[str]) -> list[str]:
    """Faults in the coverage of `rules`: each has a pair of programs or is `excused`, not both.

    A pair is a racy or latent program and a clean one whose first rule it is.
    """
    verdicts: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        for rule in case.rules[:1]:
            verdicts[rule].add(case.fields.get("verdict", ""))
    known, spared = list(rules), set(excused)
    found = [f"{rule}: not a rule" for rule in sorted((spared | set(verdicts)) - set(known))]
    for rule in known:
        paired = "clean" in verdicts[rule] and len(verdicts[rule]) > 1
        if rule in spared and paired:
            found.append(f"{rule}: listed as without a program, and has a pair")
        elif rule not in spared and not paired:
            found.append(f"{rule}: no pair of programs, and not listed as without one")
    return found


def _own_faults(case: Case) -> list[str]:
    fields = case.fields
    found = [f"no field {name}" for name in (*FIELDS, "rule") if name not in fields]
    verdict = fields.get("verdict", "")
    if verdict not in VERDICTS:
        found.append(f"verdict {verdict!r} is none of {', '.join(VERDICTS)}")
    elif not case.name.endswith("_" + verdict):
        found.append(f"its name does not end with _{verdict}")
    if not _KIND.fullmatch(fields.get("kind", "")):
        found.append(f"{fields.get('kind')!r} is not a kind")
    expected = tuple(verdict == sort for sort in ("race", "latent", "possible"))
    if (bool(case.race), bool(case.latent), bool(case.possible)) != expected:
        found.append(f"its markers do not say {verdict}")
    return found


def _pair(path: Path, marker: str, label: str, numbers: list[int]) -> Pair:
    if len(numbers) > 2:
        raise LabelError(f"{path}: {marker} {label} stands on {len(numbers)} lines, not on 1 or 2")
    return min(numbers), max(numbers)


def _listed(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())

"""Law 3: one rule of order lives in one place, and nothing gets around it.

All order is made by the methods of `Order`; each names its rules; one place asks for each.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter

import pytest

from streamsan.order import Order
from tests.repo.checkout import ROOT, modules

PACKAGE = ROOT / "src" / "streamsan"
SOURCES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules()}
OUTSIDE = {p: tree for p, tree in SOURCES.items() if PACKAGE / "order" not in p.parents}

SEVERAL = {
    "E4": 2,  # a query of an event, and of a stream
    "H3": 2,  # whose order it is: of a stream's synchronisation, and of a device's
    "T1": 4,  # start of a thread, release, acquire, the last reference to a block
    "T2": 2,  # the same two for the threads of a backward pass
    "D1": 2,  # which streams are paired, and what an operation waits for
}
"""Rules that are about several facts of a run, with how many methods take one."""

REACHED = {"operate": 3}
"""Methods asked for in several places: an operation of the run, of a capture, of an allocator."""


def _methods() -> dict[str, tuple[str, ...]]:
    """The public methods of `Order` that make order, with their rules."""
    found = {}
    for name, function in inspect.getmembers(Order, inspect.isfunction):
        first = (inspect.getdoc(function) or "").split(":")[0]
        if not name.startswith("_") and re.match(r"Rules? ", first):
            found[name] = tuple(re.findall(r"\b[A-Z]\d\b", first))
    return found


def _calls(tree: ast.AST, names: set[str]) -> list[str]:
    """Calls of methods called `names` on something called order."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).rsplit(".", 1)[-1].lstrip("_")
            if owner == "order" and node.func.attr in names:
                found.append(node.func.attr)
    return found


def test_the_rules_are_found() -> None:
    rules = {rule for rules in _methods().values() for rule in rules}
    assert rules >= {"S1", "S2", "S3", "E1", "E2", "E3", "E4", "E5", "H1", "H2", "H3", "D1"}
    assert rules >= {"M2", "M3", "M4", "M5", "G4", "T1", "T2"}


def test_a_rule_is_one_method() -> None:
    counts = Counter(rule for rules in _methods().values() for rule in rules)
    assert {rule: n for rule, n in counts.items() if n > 1} == {
        rule: n for rule, n in SEVERAL.items() if counts[rule] > 1
    }


@pytest.mark.parametrize("method", _methods())
def test_a_method_is_asked_for_in_one_place(method: str) -> None:
    calls = [call for tree in OUTSIDE.values() for call in _calls(tree, {method})]
    assert len(calls) == REACHED.get(method, 1)


def test_nothing_else_makes_order() -> None:
    """Only the package of the rules changes clocks, epochs and versions."""
    for path, tree in OUTSIDE.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not node.module.startswith("streamsan.order._"), path
                if node.module == "streamsan.order":
                    assert {alias.name for alias in node.names} <= {
                        "Clock", "Edge", "Edges", "Order", "Timeline", "Version",
                    }, path  # fmt: skip
            if PACKAGE / "detect" in path.parents:  # there the clocks are those of the rules
                assert not _changes_a_clock(node), f"{path.name}:{getattr(node, 'lineno', 0)}"


def _changes_a_clock(node: ast.AST) -> bool:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    for target in targets:
        owner = target.value if isinstance(target, ast.Subscript) else target
        text = ast.unparse(owner)
        if isinstance(target, ast.Subscript) and re.search(r"\bclocks?$", text):
            return True
        if isinstance(target, ast.Attribute) and target.attr in ("clock", "epoch", "gained"):
            return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        changes = node.func.attr in ("update", "setdefault", "pop", "clear")
        return changes and bool(re.search(r"\bclock$", ast.unparse(node.func.value)))
    return False

"""The account of a backward pass: texts and pictures, without a framework."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from streamsan.autograd import POLICIES, Plan, Plans, parse_policy, picture
from streamsan.autograd.plan import KEPT, ROWS
from streamsan.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"


def _plan(site: str = "train.py:7") -> Plan:
    """A pass under torch 1.6: a node on a side stream; the default stream waits for its leaf."""
    plan = Plan("torch-1.6", site)
    plan.add("call", "backward is called", "ambient")
    plan.wait(plan.mark("default"), "A3", "root")
    plan.add("node", "MulBackward0", "side", "root")
    plan.add("node", "Accumulate<Grad>", "side", "leaf")
    plan.wait(plan.mark("side"), "A4", "end")
    plan.add("left", "goes on", "ambient")
    plan.add("end", "goes on", "default", "end")
    plan.seal()
    return plan


def test_policies_are_those_of_the_rule_book() -> None:
    assert list(POLICIES) == ["pre-streaming", "torch-1.6", "torch-1.9", "torch-1.10", "torch-2.8"]
    assert [name for name, policy in POLICIES.items() if policy.as_torch] == list(POLICIES)[3:]
    assert parse_policy("torch-1.9") is POLICIES["torch-1.9"]
    assert parse_policy(POLICIES["torch-1.9"]) is POLICIES["torch-1.9"]


@pytest.mark.parametrize("name", ["", "torch-1.7", "TORCH-1.6"])
def test_an_unknown_policy(name: str) -> None:
    with pytest.raises(UsageError, match=f"no engine policy '{name}': choose from pre-streaming, "):
        parse_policy(name)


def test_what_is_no_policy() -> None:
    with pytest.raises(UsageError, match=r"no engine policy \['torch-1.6'\]"):
        parse_policy(["torch-1.6"])  # type: ignore[arg-type]


def test_text() -> None:
    assert str(_plan()).splitlines() == [
        "backward pass at train.py:7, engine torch-1.6",
        "  stream   what                records  waits for",
        "  ambient  backward is called",
        "  default  earlier work        event 1",
        "  side     MulBackward0                 event 1 of default (A3)",
        "  side     Accumulate<Grad>    event 2",
        "  ambient  goes on                      nothing",
        "  default  goes on                      event 2 of side (A4)",
    ]


def test_a_long_pass_is_cut_and_says_so() -> None:
    plan = Plan("torch-2.8", "train.py:7")
    for number in range(ROWS + 3):
        plan.add("node", f"node {number}", "default")
    assert str(plan).endswith(f"node {ROWS - 1}\n  … 3 more")
    assert "… 3 more" in plan.svg()


def test_equal_passes_are_kept_once_and_counted() -> None:
    plans = Plans()
    assert str(plans) == "no backward pass was run"
    for _ in range(3):
        plans.add(_plan())
    plans.add(_plan("train.py:9"))
    assert len(plans) == 2
    assert plans.last.site == "train.py:9"
    assert "3 passes were like this one" in str(plans)
    for line in range(KEPT):
        plans.add(_plan(f"other.py:{line}"))
    assert (len(plans), plans.left_out) == (KEPT, 2)
    assert str(plans).endswith("2 passes more were different, and are not shown")


def test_picture() -> None:
    root = ElementTree.fromstring(picture([_plan(), _plan("train.py:9")]))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts.count("Accumulate<Grad>") == 2
    assert texts.count("A3") == texts.count("A4") == 2 * 2  # each upon its halo
    assert texts.count("goes on, waits for nothing") == 2
    arrows = [e for e in root.iter(f"{SVG}line") if "marker-end" in e.attrib]
    assert len(arrows) == 4
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.attrib["width"]) <= width
        assert float(box.get("y", 0)) + float(box.attrib["height"]) <= height


def test_importing_the_package_imports_no_framework() -> None:
    code = "import sys, streamsan.autograd; print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=300)
    assert done.stdout == "False\n"

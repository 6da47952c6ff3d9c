"""The recorder inside of torch's dispatcher shows what its dispatch mode shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from streamsan.record import dispatch
from streamsan.record.cuda._dispatch import PASSED_OVER
from tests.unit.cuda_world import World

_RANDOM_STATE = re.compile(r"aten::clone .*\(5056,")
"""The copy of the host's random state that torch.compile makes with all modes switched off."""

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cache(request: pytest.FixtureRequest) -> str:
    """A cache for the library, kept from one run of the tests to the next."""
    if dispatch.compiler() is None:
        pytest.skip("there is no C++ compiler")
    assert request.config.cache is not None
    return str(request.config.cache.mkdir("streamsan-dispatch"))


def recorded(cache: str, *way: str) -> list[str]:
    """What the program is recorded to do, one way or the other."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.unit.dispatch_program", *way],
        env={**os.environ, "XDG_CACHE_HOME": cache},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Note" not in done.stdout, "an internal error was told"
    return [line for line in done.stdout.splitlines() if line]


def test_both_ways_record_the_same(cache: str) -> None:
    expected = recorded(cache, "mode")
    found = [line for line in recorded(cache, "dispatch") if not _RANDOM_STATE.search(line)]
    assert len(found) > 200
    assert found == expected


def test_the_core_is_shown_the_same_in_descriptions(cache: str) -> None:
    expected = recorded(cache, "mode", "device")
    found = [
        line for line in recorded(cache, "dispatch", "device") if not _RANDOM_STATE.search(line)
    ]
    assert len(found) > 200
    assert found == expected


def test_what_is_described_is_the_same_in_bytes(cache: str) -> None:
    assert recorded(cache, "dispatch", "device", "packed") == recorded(cache, "dispatch", "device")


@pytest.mark.parametrize("way", ["mode", "dispatch"])
@pytest.mark.parametrize("memory", ["device", "pinned"])
def test_an_interrupt_while_a_record_is_handed_on_is_the_programs(
    cache: str, way: str, memory: str
) -> None:
    assert recorded(cache, way, memory, "interrupted")[0] == "interrupted 2.0"


def test_the_gpu_trace_shows_memory_to_the_core_and_to_others(cache: str) -> None:
    alone, beside = recorded(cache, "dispatch", "device", "trace")
    assert alone == "[4096] [('event', 7)]"
    assert beside == "[8192] [('event', 7), ('gone', 4096), ('born', 8192)]"


def test_streams_are_told_apart_by_what_torch_calls_them(cache: str) -> None:
    (found,) = recorded(cache, "dispatch", "device", "streams")
    default, first, second, again, others, first_again, known, anew, *green = json.loads(found)
    assert len({default, first, second, others}) == 4
    assert (again, first_again, known) == (default, first, others)
    assert anew not in (default, first, second, others)
    outside, inside, back = green
    assert outside == back == default
    assert inside not in (default, first, second, others, anew)


def test_memory_of_the_host_is_not_recorded(cache: str) -> None:
    names = ["aten::mm", "aten::sum"]  # what a mode of the program's own has seen
    assert recorded(cache, "dispatch", "host") == recorded(cache, "mode", "host") == names


def test_what_the_dispatcher_is_told_to_pass_over_touches_no_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routes = World(monkeypatch).recorder.routes
    for name in PASSED_OVER:
        packet, _, overload = name.partition(".")
        _, reported, handler, _ = routes.find(
            getattr(getattr(torch.ops.aten, packet), overload or "default")
        )
        assert (reported, handler) == (None, None), name


def test_operators_are_seen_where_the_program_has_switched_off_modes(cache: str) -> None:
    assert recorded(cache, "mode", "hidden") == []
    scaled = [line for line in recorded(cache, "dispatch", "hidden") if "::scale" in line]
    assert len(scaled) == 1


def test_it_is_built_once(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    dispatch.load()
    monkeypatch.setattr(dispatch, "_build", lambda _: pytest.fail("built again"))
    assert dispatch.load().__name__ == dispatch.NAME


def test_without_a_compiler_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(dispatch, "compiler", lambda: None)
    with pytest.raises(dispatch.BuildError, match="there is no C\\+\\+ compiler"):
        dispatch.load()


def test_what_the_compiler_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.cpp"
    broken.write_text("#error not this torch\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(dispatch, "SOURCE", broken)
    if dispatch.compiler() is None:
        pytest.skip("there is no C++ compiler")
    with pytest.raises(dispatch.BuildError, match="not this torch"):
        dispatch.load()
    assert not list((tmp_path / "streamsan").iterdir())

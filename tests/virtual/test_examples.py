"""The programs of ``examples/``: clean as they are, and racy where they are told to be."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import pytest

from tests.virtual.programs import ROOT, Done, Programs


@dataclass(frozen=True)
class Example:
    """An example, cut down to seconds; `racy` are pieces of the two lines of its race."""

    name: str
    arguments: str
    racy: tuple[str, str]

    @property
    def path(self) -> str:
        """Where it is."""
        return str(ROOT / "examples" / self.name)

    def line(self, piece: str) -> int:
        """The one line with a piece of text in it."""
        with open(self.path, encoding="utf-8") as file:
            (number,) = [n for n, line in enumerate(file, 1) if piece in line]
        return number


EXAMPLES = (
    Example(
        "vit_train.py",
        "--steps 2 --batch 4 --depth 1 --width 32 --size 16 --log-every 1",
        ("return pixels.float().div_", "patches = self.embed(images)"),
    ),
    Example(
        "nanogpt.py",
        "--steps 2 --batch 2 --depth 1 --width 32 --context 16",
        ("rows = rows.pin_memory()", "self.token(codes)"),
    ),
    Example(
        "gpt2_trainer.py",
        "--steps 2 --batch 2 --depth 1 --width 32 --context 16",
        ("average.lerp_(weight", "result = build(args, folder).train()"),
    ),
)
_LIBRARIES = {"gpt2_trainer.py": ("transformers", "accelerate")}


@pytest.fixture(params=EXAMPLES, ids=lambda example: example.name)
def example(request: pytest.FixtureRequest) -> Example:
    """Each example whose libraries are there."""
    chosen: Example = request.param
    for library in _LIBRARIES.get(chosen.name, ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: pip install 'streamsan[examples]'")
    return chosen


def _run(programs: Programs, example: Example, *options: str, racy: bool = False) -> Done:
    words = [*example.arguments.split(), *(["--racy"] if racy else [])]
    return programs.run_file(example.path, *words, options=options)


@pytest.mark.parametrize("schedule", ["program", "late", "random:1"])
def test_clean(programs: Programs, example: Example, schedule: str) -> None:
    expected = programs.plain_file(example.path, *example.arguments.split(), "--device", "cpu")
    done = _run(programs, example, "--schedule", schedule)
    assert (done.status, done.errors, done.lines) == (0, [], [])
    assert done.report["latent"] == done.report["misuse"] == []
    shown, wanted = _without_times(done.stdout), _without_times(expected.stdout)
    assert shown == wanted


def _without_times(text: str) -> str:
    """What an example prints, but for how long it took."""
    return "\n".join(line for line in text.splitlines() if "runtime" not in line)


def test_racy(programs: Programs, example: Example) -> None:
    done = _run(programs, example, racy=True)
    assert (done.status, done.errors) == (66, [])
    first, second = (example.line(piece) for piece in example.racy)
    assert (first, second) in done.lines

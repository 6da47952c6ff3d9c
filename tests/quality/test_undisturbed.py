"""Programs that notice what is done to them run the same on the virtual GPU as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import undisturbed
from tools.programs import read_program

PROGRAMS = [
    pytest.param(path, id=path.stem)
    for path in undisturbed.programs()
    if not read_program(path).cuda_only
]


@pytest.mark.parametrize("path", PROGRAMS)
def test_output_and_exit_status_are_the_same(path: Path) -> None:
    row = undisturbed.compare(path, "virtual")
    assert row.faults == ()
    assert row.ended


def test_differences_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "differs.py"
    path.write_text("import sys\nprint('on', sys.argv[1])\nsys.exit(sys.argv[1] == 'cuda')\n")
    words = ["--jobs", "1", "--output", str(tmp_path / "page.md"), str(path)]
    assert undisturbed.main(words) == 1
    out = capsys.readouterr().out
    assert "differs.py: ended with 1" in out
    assert "differs.py: stdout: - on cpu\n" in out
    assert "| `differs.py` | 0 | 3 differences |" in (tmp_path / "page.md").read_text()


def test_a_program_of_a_real_gpu_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "real.py"
    path.write_text('"""Title.\n\ndevice: cuda\n"""\n')
    assert undisturbed.compare(path, "virtual").skipped

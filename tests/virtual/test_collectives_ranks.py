"""Programs of several processes: right values, no deadlock, one report a process (N1, N2)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from tests.virtual.programs import ROOT, Programs
from tests.virtual.ranks import launch

EXAMPLE = str(ROOT / "examples" / "data_parallel.py")


@pytest.mark.parametrize("schedule", ["program", "random:1"])
def test_every_collective(tmp_path: Path, schedule: str) -> None:
    done = launch(
        str(Path(__file__).with_name("rank_program.py")), folder=tmp_path, schedule=schedule
    )
    assert done.status == 0, done.output
    assert len(done.reports) == 2
    assert done.clean, done.reports
    for rank in range(2):
        assert f"{rank} all right" in done.output


@pytest.mark.parametrize(
    ("shard", "schedule"),
    [((), "late"), (("--shard",), "program")],
    ids=["replicated", "sharded"],
)
def test_training_equals_one_process(
    programs: Programs, tmp_path: Path, shard: tuple[str, ...], schedule: str
) -> None:
    alone, together = tmp_path / "alone.pt", tmp_path / "together.pt"
    assert programs.run_file(EXAMPLE, "--weights", str(alone)).status == 0
    done = launch(EXAMPLE, *shard, "--weights", str(together), folder=tmp_path, schedule=schedule)
    assert done.status == 0, done.output
    assert len(done.reports) == 2
    assert done.clean, done.reports
    torch.testing.assert_close(torch.load(together), torch.load(alone), rtol=1e-4, atol=1e-5)


def test_each_process_reports_its_races(tmp_path: Path) -> None:
    """The first process ends with 66, for which torchrun terminates the other."""
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """\
            import time
            import torch
            import torch.distributed as dist
            dist.init_process_group("nccl")
            x = torch.ones(64, device="cuda")
            work = dist.all_reduce(x, async_op=True)
            y = x + 1
            work.wait()
            dist.barrier()
            if dist.get_rank() == 1:
                time.sleep(60)
            """
        )
    )
    done = launch(str(script), folder=tmp_path)
    assert done.status != 0
    assert [done.lines(rank) for rank in range(2)] == [[(6, 7)], [(6, 7)]]
    assert [report["summary"]["rank"] for report in done.reports] == ["0 of 2", "1 of 2"]


def test_barriers_of_host_groups_hold(tmp_path: Path) -> None:
    """They are the host's, also after work of a device that the schedule puts off."""
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """\
            import os, time
            import torch
            import torch.distributed as dist
            dist.init_process_group("nccl")
            group, rank = dist.new_group(backend="gloo"), dist.get_rank()
            torch.cuda.set_device(rank)
            for number, barrier in enumerate([dist.barrier, dist.monitored_barrier]):
                x = torch.ones(4, device="cuda") * 2
                if rank == 0:
                    time.sleep(0.3)
                    open(f"passed{number}", "w").close()
                barrier(group)
                assert os.path.exists(f"passed{number}")
            dist.destroy_process_group()
            """
        )
    )
    done = launch(str(script), folder=tmp_path, schedule="late")
    assert (done.status, done.clean) == (0, True), done.output


def test_one_file_for_all_processes_is_refused(programs: Programs) -> None:
    path = programs.write("print('started')")
    done = programs.streamsan("run", "-o", "report.txt", path, RANK="1", WORLD_SIZE="2")
    assert (done.status, done.stdout) == (2, "")
    assert "put {rank} into the file's name" in done.stderr

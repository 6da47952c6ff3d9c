"""``--allocator`` under torch: the second report's program, and what ``torch.cuda`` answers."""

from __future__ import annotations

import pytest

from streamsan.allocator import DEFAULT, NAMES
from tests.virtual.programs import ROOT, Done, Programs

VIT = ROOT / "examples" / "vit_bfc.py"
REPAIRED = ("bfc:host-sync", "bfc:frontier", "bfc:event")
FEW = ("--small", "--steps", "3", "--batch", "4")


def vit(programs: Programs, allocator: str, schedule: str, *words: str) -> Done:
    options = ("--allocator", allocator, "--schedule", schedule)
    return programs.run_file(str(VIT), *words, options=options)


def line(piece: str) -> int:
    """The one line of the program with a piece of text in it."""
    lines = VIT.read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, text in enumerate(lines, 1) if piece in text]
    return number


def test_m6_async_makes_the_loss_nan(programs: Programs) -> None:
    done = vit(programs, "bfc:async", "hold:default", "--small")
    assert (done.status, done.errors) == (66, [])
    *_, last = done.stdout.splitlines()
    assert last.startswith("the loss is nan at step ")
    assert int(last.split()[6].rstrip(":")) < 100
    upload = line("pixels = images.to(self.device")
    uses = {line("loss.backward()"), line("optimizer.step()")}
    assert uses & {first for first, second in done.lines if second == upload}
    for race in done.races:
        assert race["kind"] == "R03-ALLOC-REUSE"
        assert race["memory"]["allocator"] == "bfc:async"
        assert race["memory"]["owner"] == "default"
        assert race["second"]["stream"] == "self.copy_stream"


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory, server: object) -> str:
    """What the program prints on plain CPU tensors: nine digits of each loss, which is all bits."""
    programs = Programs(server, tmp_path_factory.mktemp("plain"))  # type: ignore[arg-type]
    done = programs.plain_file(str(VIT), *FEW, "--device", "cpu")
    assert done.status == 0
    assert "all 3 losses are finite" in done.stdout
    return done.stdout


@pytest.mark.parametrize("schedule", ["program", "late", "hold:default", "hold:copy_stream"])
@pytest.mark.parametrize("allocator", REPAIRED)
def test_m6_repaired_policies(
    programs: Programs, expected: str, allocator: str, schedule: str
) -> None:
    done = vit(programs, allocator, schedule, *FEW)
    assert (done.status, done.errors, done.lines) == (0, [], [])
    assert done.report["latent"] == done.report["misuse"] == []
    assert done.stdout == expected


@pytest.mark.parametrize(
    ("allocator", "seed"),
    [
        *((name, seed) for name in REPAIRED for seed in (1, 2, 3, 4, 5)),
        *((name, 1) for name in ("stream-ordered", "quarantine", DEFAULT)),
    ],
)
def test_right_under_random_schedules(
    programs: Programs, expected: str, allocator: str, seed: int
) -> None:
    done = vit(programs, allocator, f"random:{seed}", *FEW)
    assert (done.status, done.errors, done.lines) == (0, [], [])
    assert done.stdout == expected


def test_m6_async_is_right_where_work_runs_as_it_is_launched(programs: Programs) -> None:
    words = ("--small", "--steps", "4")
    expected = programs.plain_file(str(VIT), *words, "--device", "cpu").stdout
    done = vit(programs, "bfc:async", "program", *words)
    assert (done.status, done.stdout) == (66, expected)


LATE_READER = """
    import torch

    side = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = x.sum()
    {mark}
    del x
    torch.cuda.current_stream().synchronize()
    side.synchronize()
    print(total.item())
"""


@pytest.mark.parametrize("mark", ["", "x.record_stream(side)"])
def test_quarantine_shows_a_late_reader_nan(programs: Programs, mark: str) -> None:
    options = ("--allocator", "quarantine", "--schedule", "hold:side")
    done = programs.run(LATE_READER.format(mark=mark), options=options)
    assert (done.status, done.stdout) == ((0, "1000.0\n") if mark else (66, "nan\n"))
    assert [race["kind"] for race in done.races] == ([] if mark else ["R03-ALLOC-REUSE"])


FIGURES = """
    import torch

    kept = [torch.ones(n, device="cuda") for n in (10, 1000, 100_000)]
    del kept[1]
    stats = torch.cuda.memory_stats()
    print(stats["allocation.all.current"], stats["allocation.all.peak"])
    print(stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated() >= 400_040)
    print(stats["reserved_bytes.all.current"] == torch.cuda.memory_reserved())
    segments = torch.cuda.memory_snapshot()
    print(sum(s["total_size"] for s in segments) == torch.cuda.memory_reserved())
    print(sum(s["allocated_size"] for s in segments) == torch.cuda.memory_allocated())
    print(torch.cuda.get_allocator_backend(), "Allocated memory" in torch.cuda.memory_summary())
    kept.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
"""


@pytest.mark.parametrize("name", NAMES)
def test_figures(programs: Programs, name: str) -> None:
    done = programs.run(FIGURES, options=("--allocator", name))
    backend = "cudaMallocAsync" if name == "stream-ordered" else "native"
    words = ["2 3", *["True"] * 4, f"{backend} True", "0 0"]
    assert done.stdout.splitlines() == words
    assert (done.status, done.errors) == (0, [])


CAPTURE = """
    import torch

    x = torch.ones(4, device="cuda")
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x + 1
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize("name", [name for name in NAMES if name != DEFAULT])
def test_captures_are_refused(programs: Programs, name: str) -> None:
    done = programs.run(CAPTURE, options=("--allocator", name))
    assert done.stdout == (
        f"the {name} allocator cannot serve a graph capture, which needs memory of its own: run the"
        " program with the caching allocator (--allocator caching)\n"
    )
    assert done.errors == []


SHORTAGE = """
    import torch

    try:
        kept = [torch.ones(1 << 20, device="cuda") for _ in range(100)]
    except torch.OutOfMemoryError as error:
        print(str(error).split(".")[0])
    kept = None
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(100):
        x = x * 1
    print(x.sum().item())
"""


@pytest.mark.parametrize("schedule", ["program", "late"])
@pytest.mark.parametrize("name", NAMES)
def test_out_of_memory(programs: Programs, name: str, schedule: str) -> None:
    options = ("--allocator", name, "--memory", "128MiB", "--schedule", schedule)
    done = programs.run(SHORTAGE, options=options)
    assert done.stdout == "CUDA out of memory\n1048576.0\n"
    assert (done.status, done.errors) == (0, [])


def test_unknown_allocator(programs: Programs) -> None:
    done = programs.streamsan("run", "--allocator", "bfc:later", "-c", "pass")
    assert done.status == 2
    assert "there is no allocator 'bfc:later': choose from caching, bfc:async" in done.stderr


def test_named_in_the_environment(programs: Programs) -> None:
    path = programs.write("import torch; torch.ones(4, device='cuda')")
    done = programs.streamsan(
        "run", "--trace", "t.streamsan", path, STREAMSAN="device=virtual,allocator=bfc"
    )
    assert done.status == 0
    from streamsan.trace import read

    records = list(read(programs.folder / "t.streamsan"))
    assert {getattr(x, "allocator", None) for x in records} - {None} == {"bfc:async"}
    assert records[0].options["allocator"] == "bfc:async"  # type: ignore[union-attr]


WATCH = """
    import streamsan, torch

    with streamsan.watch(device="virtual", allocator="bfc:event"):
        x = torch.ones(4, device="cuda")
    try:
        with streamsan.watch(device="virtual", allocator="caching"):
            pass
    except streamsan.errors.UsageError as error:
        print(error)
"""


def test_watch(programs: Programs) -> None:
    done = programs.plain(WATCH)
    assert done.stdout == (
        "the memory of this process is the bfc:event allocator's: start a new process for caching\n"
    ), done.stderr

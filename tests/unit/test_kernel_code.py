"""What Triton's intermediate code says of a kernel: how its pointers are used, and which bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.model.extent import runs
from streamsan.model.records import Confidence, Mode
from streamsan.record.kernels.extents import Touch
from streamsan.record.kernels.sets import Strided, hull, interval, strided
from streamsan.record.kernels.ttir import NotUnderstoodError, read
from streamsan.record.kernels.uses import KernelUses, from_names, from_text, unknown

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in
         (Path(__file__).parent / "ttir").glob("*.ttir")}  # fmt: skip
R, W, RW = int(Mode.READ), int(Mode.WRITE), int(Mode.READ_WRITE)

MODES = {
    "add": [R, R, W], "assembly": [RW, W], "backwards": [R, W], "blocks": [R, W],
    "branches": [W, R], "choose": [R, R, W], "columns": [W], "described": [R, W], "grouped": [W],
    "histogram": [R, RW], "host_described": [R, RW], "indirect": [R, W], "matmul": [R, R, W],
    "outlined": [R, W], "part": [W], "persistent": [R, W], "rotate": [R, W], "rowsum": [R, W],
    "spin": [RW, RW], "tuples": [R, W], "walk": [R, W],
}  # fmt: skip
"""How each kernel of ``ttir/kernels.py`` uses its pointers, read off its source."""


def kernel(name: str) -> KernelUses:
    names = [f"p{i}" for i in range(len(MODES[name]))]
    found = from_text(name, names, TEXTS[name])
    assert found is not None
    return found


def test_each_kernel_has_a_text_and_an_answer() -> None:
    assert set(TEXTS) == set(MODES)


@pytest.mark.parametrize("name", sorted(MODES))
def test_pointers_are_used_as_the_source_says(name: str) -> None:
    found = kernel(name)
    assert [parameter.mode for parameter in found.parameters] == MODES[name]
    sure = [parameter.confidence == Confidence.LIKELY for parameter in found.parameters]
    assert sure == [not (name == "assembly" and i == 0) for i in range(len(sure))]
    assert found.elsewhere == (name == "indirect")


def test_text_that_is_none_or_about_other_parameters_says_nothing() -> None:
    assert from_text("k", ["x"], None) is None
    assert from_text("k", ["x"], "") is None
    assert from_text("k", ["x"], "module {\n  something else\n}") is None
    assert from_text("k", ["x_ptr"], TEXTS["add"]) is None
    assert from_text("k", ["x", "y", "z"], TEXTS["add"][: len(TEXTS["add"]) // 3]) is None


def test_a_text_without_end_is_not_read() -> None:
    with pytest.raises(NotUnderstoodError):
        read(TEXTS["add"] + " " * (1 << 20))


def test_an_operation_that_nobody_knows_is_assumed_to_do_both() -> None:
    text = TEXTS["add"].replace("tt.load %3, %m_4", "tt.novel_load %3, %m_4")
    found = from_text("k", ["x", "y", "out"], text)
    assert found is not None
    x, y, out = found.parameters
    assert (x.mode, x.confidence) == (RW, Confidence.POSSIBLE)
    assert (y.mode, y.confidence) == (R, Confidence.LIKELY)
    assert (out.mode, out.confidence) == (W, Confidence.LIKELY)
    assert Touch(0, RW) in found.touches((8, 1, 1), (1000,))


def test_functions_with_quoted_names_are_told_apart() -> None:
    text = TEXTS["outlined"].replace("@__main__.put__Pfp32_fp32__(", '@"kernels.<put>"(')
    reads = text[text.index("  tt.func private") : text.rindex("}")]
    reads = reads.replace("<put>", "<get>").replace("tt.store %p, %v", "%w = tt.load %p")
    assert reads.count("<get>") == 1
    found = from_text("k", ["x", "y"], text[: text.rindex("}")] + reads + "}\n")
    assert found is not None
    assert [parameter.mode for parameter in found.parameters] == [R, W]


def test_names_of_generated_kernels_say_what_is_written() -> None:
    names = ["in_out_ptr0", "in_ptr0", "in_ptr1", "out_ptr0", "out_ptr1", "ws_ptr"]
    found = from_names("k", names, ["in_ptr1", "out_ptr1"])
    assert [p.mode for p in found.parameters] == [RW, R, RW, W, RW, RW]
    assert [p.confidence for p in found.parameters] == [1, 1, 1, 1, 1, 0]


def test_of_an_unknown_kernel_everything_is_possible() -> None:
    found = unknown("k", ["a", "b"])
    assert [(p.mode, p.confidence) for p in found.parameters] == [(RW, 0), (RW, 0)]
    assert list(found.touches((1, 1, 1), ())) == [Touch(0, RW), Touch(1, RW)]


# -- bytes, against the kernels' own arithmetic in plain Python ------------------------------------

Grid = tuple[int, int, int]
Bytes = dict[tuple[int, int], set[int]]
"""For each pointer and mode, the first bytes of the elements touched."""


def programs(grid: Grid) -> Iterator[tuple[int, int]]:
    return product(range(grid[0]), range(grid[1]))


def add(grid: Grid, n: int) -> Bytes:
    touched = {4 * o for p, _ in programs(grid) for o in range(p * 128, p * 128 + 128) if o < n}
    return {(0, R): touched, (1, R): touched, (2, W): touched}


def backwards(grid: Grid, n: int) -> Bytes:
    offsets = {n - 1 - (p * 64 + i) for p, _ in programs(grid) for i in range(64)}
    offsets = {o for o in offsets if o >= 0}
    return {(0, R): offsets, (1, W): {8 * o for o in offsets}}


def columns(grid: Grid, pitch: int, first: int, rows: int) -> Bytes:
    inside = [r for p, _ in programs(grid) for r in range(p * 32, p * 32 + 32) if r < rows]
    return {(0, W): {2 * (r * pitch + first + c) for r in inside for c in range(16)}}


def grouped(grid: Grid, m: int, n: int) -> Bytes:
    wide, high = -(-n // 16), -(-m // 16)
    touched = set()
    for p, _ in programs(grid):
        group = p // (4 * wide)
        rows = min(high - group * 4, 4)
        if rows <= 0:
            continue
        i, j = group * 4 + (p % (4 * wide)) % rows, (p % (4 * wide)) // rows
        for r, c in product(range(i * 16, i * 16 + 16), range(j * 16, j * 16 + 16)):
            if r < m and c < n:
                touched.add(4 * (r * n + c))
    return {(0, W): touched}


def matmul(grid: Grid, _: int, n: int, k: int) -> Bytes:
    rows = [r for p in range(grid[0]) for r in range(p * 32, p * 32 + 32)]
    cols = [c for q in range(grid[1]) for c in range(q * 32, q * 32 + 32)]
    depth = range(-(-k // 32) * 32)
    return {
        (0, R): {2 * (r * k + d) for r, d in product(rows, depth)},
        (1, R): {2 * (d * n + c) for d, c in product(depth, cols)},
        (2, W): {2 * (r * n + c) for r, c in product(rows, cols)},
    }


def part(grid: Grid, first: int, n: int) -> Bytes:
    touched = {p * 64 + i for p, _ in programs(grid) for i in range(64) if p * 64 + i < n}
    return {(0, W): {4 * (first + o) for o in touched}}


def persistent(grid: Grid, n: int) -> Bytes:
    touched = {
        4 * o
        for p, _ in programs(grid)
        for tile in range(p, -(-n // 64), grid[0])
        for o in range(tile * 64, tile * 64 + 64)
        if o < n
    }
    return {(0, R): touched, (1, W): touched}


def rotate(_: Grid, n: int) -> Bytes:
    touched = {4 * (i * 128 + o) for i in range(n) for o in range(128)}
    return {(0, R): touched, (1, W): touched}


def rowsum(grid: Grid, n: int) -> Bytes:
    rows = [p for p, _ in programs(grid)]
    return {
        (0, R): {4 * (p * n + o) for p in rows for o in range(min(n, 128))},
        (1, W): {4 * p for p in rows},
    }


def branches(_: Grid, flag: int) -> Bytes:
    first = 0 if flag > 3 else 64
    touched = {4 * (first + o) for o in range(64)}
    return {(0, W): touched, (1, R): touched}


REFERENCES: dict[str, tuple[Callable[..., Bytes], dict[tuple[int, int], int], int, bool]] = {
    "add": (add, {(0, R): 4, (1, R): 4, (2, W): 4}, 1, True),
    "backwards": (backwards, {(0, R): 1, (1, W): 8}, 1, True),
    "branches": (branches, {(0, W): 4, (1, R): 4}, 1, False),
    "columns": (columns, {(0, W): 2}, 3, True),
    "grouped": (grouped, {(0, W): 4}, 2, False),
    "matmul": (matmul, {(0, R): 2, (1, R): 2, (2, W): 2}, 3, True),
    "part": (part, {(0, W): 4}, 2, True),
    "persistent": (persistent, {(0, R): 4, (1, W): 4}, 1, True),
    "rotate": (rotate, {(0, R): 4, (1, W): 4}, 1, True),
    "rowsum": (rowsum, {(0, R): 4, (1, W): 4}, 1, True),
}
"""What a kernel touches, the sizes of elements, how many numbers it takes, and whether the
analysis has no reason to say more than is touched (all offsets are affine)."""


def touched_bytes(touches: list[Touch]) -> Bytes:
    found: Bytes = {}
    for touch in touches:
        assert touch.extent is not None
        for mode in (R, W):
            if touch.mode & mode:
                run = touch.extent[1]
                own = {b for start in runs(touch.extent) for b in range(start, start + run)}
                found[touch.pointer, mode] = found.get((touch.pointer, mode), set()) | own
    return found


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(REFERENCES)), data=st.data())
def test_the_bytes_are_those_that_the_kernel_touches(name: str, data: st.DataObject) -> None:
    reference, sizes, count, exact = REFERENCES[name]
    grid = (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3)), 1)
    numbers = [data.draw(st.integers(1, 160)) for _ in range(count)]
    expected = {
        key: {b for start in starts for b in range(start, start + sizes[key])}
        for key, starts in reference(grid, *numbers).items()
        if starts
    }
    touches = kernel(name).touches(grid, numbers)
    everything = {(touch.pointer, touch.mode) for touch in touches if touch.extent is None}
    found = touched_bytes([touch for touch in touches if touch.extent is not None])
    for key, own in expected.items():
        assert own <= found.get(key, own if key in everything else set()), key
    if exact and _apart(name, numbers):
        assert found == expected


def _apart(name: str, numbers: list[int]) -> bool:
    """Whether a kernel's rows lie side by side: rows of a matrix narrower than a block overlap, and
    what is masked off in one is another's.
    """
    if name == "rowsum":
        return numbers[0] <= 128
    return name not in ("columns", "matmul") or min(numbers) >= 32


def test_what_a_launch_touches_is_remembered_by_what_it_depends_on() -> None:
    found = kernel("add")
    first = found.touches((8, 1, 1), (1000,))
    assert found.touches((8, 1, 1), (1000,)) is first
    assert found.touches((8, 1, 1), (900,)) != first
    assert found.touches((8, 1, 1), (1000,)) == first


def test_data_decide_of_a_histogram_which_bins_are_touched() -> None:
    assert set(kernel("histogram").touches((2, 1, 1), (200,))) == {
        Touch(0, R, (0, 800, (), ())),
        Touch(1, RW),
    }


def test_a_descriptor_made_by_the_kernel_is_as_large_as_it_says() -> None:
    assert set(kernel("described").touches((1, 1, 1), (20, 48))) == {
        Touch(0, R, (0, 20 * 48 * 2, (), ())),
        Touch(1, W, (0, 20 * 48 * 2, (), ())),
    }


def test_a_loop_without_a_known_distance_touches_everything() -> None:
    assert set(kernel("walk").touches((1, 1, 1), (5,))) == {Touch(0, R), Touch(1, W)}


def test_without_the_right_numbers_everything_is_touched() -> None:
    assert set(kernel("add").touches((8, 1, 1), ())) == {Touch(0, R), Touch(1, R), Touch(2, W)}


# -- sets of numbers -------------------------------------------------------------------------------

DIMS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 5)), max_size=3)
SETS = st.builds(lambda base, dims: strided(base, tuple(dims)), st.integers(-9, 9), DIMS)


def members(found: Strided) -> set[int]:
    steps = [range(0, stride * count, stride) for stride, count in found.dims]
    return {found.base + sum(offsets) for offsets in product(*steps)}


@given(st.integers(-9, 9), DIMS)
def test_a_set_has_the_sums_that_it_is_made_from(base: int, dims: list[tuple[int, int]]) -> None:
    sums = {base + sum(o) for o in product(*([s * i for i in range(n)] for s, n in dims))}
    found = strided(base, tuple(dims))
    assert members(found) == sums
    assert (found.low, found.high) == (min(sums), max(sums))
    assert found.single == (len(sums) == 1)


@given(SETS, SETS, st.integers(-4, 4))
def test_arithmetic_on_sets_is_that_of_their_members(a: Strided, b: Strided, k: int) -> None:
    assert members(a + b) == {x + y for x in members(a) for y in members(b)}
    assert members(-a) == {-x for x in members(a)}
    assert members(a.times(k)) == {x * k for x in members(a)}
    assert members(hull(a, b)) >= members(a) | members(b)


@given(SETS, st.integers(-20, 60), st.integers(-20, 60))
def test_a_clipped_set_keeps_what_is_inside(found: Strided, low: int, high: int) -> None:
    inside = {x for x in members(found) if low <= x <= high}
    clipped = found.clip(low, high)
    kept = set() if clipped is None else members(clipped)
    assert inside <= kept <= members(found)
    if len(found.dims) <= 1:
        assert kept == inside


def test_an_interval_has_all_numbers_between() -> None:
    assert members(interval(3, 7)) == {3, 4, 5, 6, 7}

"""The parts that run for each operator: compiled and in Python, they do the same."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamsan.model.extent import canonical
from streamsan.model.records import NONE, Access
from streamsan.record import _core, _portable
from streamsan.virtual.memory import NOWHERE

_HOST_MEMORY = 1  # DLPack's type of the device that stands for a GPU here

needs_compiled = pytest.mark.skipif(not _core.compiled(), reason="the core is not compiled here")


@pytest.fixture(params=["portable", pytest.param("compiled", marks=needs_compiled)])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two."""
    return str(request.param)


def module_of(kind: str) -> Any:
    """Where the parts of a kind are."""
    return _portable if kind == "portable" else vars(_core)["_compiled"]


def new_stacks(kind: str, define: Callable[[FrameType | None], int]) -> _core.Stacks:
    made: _core.Stacks = module_of(kind).Stacks(define)
    return made


class Defined:
    """Gives new stacks their numbers, and remembers the functions on each."""

    def __init__(self) -> None:
        self.stacks: list[list[str]] = []
        self.codes: list[Any] = []

    def __call__(self, frame: FrameType | None) -> int:
        names = []
        while frame is not None:
            self.codes.append(frame.f_code)
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        self.stacks.append(names)
        return len(self.stacks) - 1


def deep(depth: int, call: Callable[[], int]) -> int:
    return deep(depth - 1, call) if depth else call()


def test_a_stack_keeps_its_number_and_others_get_others(kind: str) -> None:
    defined = Defined()
    stacks = new_stacks(kind, defined)
    numbers = set()
    for _ in range(3):
        numbers.add(stacks.number())
    assert numbers == {0}
    assert stacks.number() == 1
    assert [deep(3, stacks.number), deep(4, stacks.number)] == [2, 3]
    names = [stack[:5] for stack in defined.stacks]
    assert names[2] == ["deep"] * 4 + [names[0][0]]
    assert names[3] == ["deep"] * 5
    assert names[0][0] == test_a_stack_keeps_its_number_and_others_get_others.__name__


def test_many_stacks_are_told_apart(kind: str) -> None:
    stacks = new_stacks(kind, Defined())
    depths = [*range(300), *range(300)]
    numbers = [deep(depth, stacks.number) for depth in depths]
    assert numbers == [*range(300), *range(300)]
    stacks.clear()
    assert [deep(depth, stacks.number) for depth in depths[:2]] == [300, 301]


def test_stacks_differ_by_their_innermost_frames(kind: str) -> None:
    stacks = new_stacks(kind, Defined())
    assert [deep(depth, stacks.number) for depth in (450, 451)] == [0, 0]


def test_a_failing_definition_is_the_callers_and_can_be_tried_again(kind: str) -> None:
    fails = [True]

    def define(_: FrameType | None) -> int:
        if fails:
            fails.pop()
            raise ValueError("mine")
        return 7

    stacks = new_stacks(kind, define)

    def number() -> int:
        return stacks.number()

    with pytest.raises(ValueError, match="mine"):
        number()
    assert number() == 7


def test_no_frame_is_kept(kind: str) -> None:
    stacks = new_stacks(kind, lambda _: 0)

    class Local:
        """What a frame holds."""

    def call() -> weakref.ref[Local]:
        held = Local()
        assert [stacks.number() for _ in range(2)] == [0, 0]
        return weakref.ref(held)

    assert call()() is None


def test_threads_walk_their_own_stacks(kind: str) -> None:
    stacks = new_stacks(kind, Defined())
    found: list[list[int]] = []

    def work() -> None:
        found.append([deep(depth % 20, stacks.number) for depth in range(2000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(len(set(numbers[40:])) == 20 for numbers in found)


def test_a_second_call_is_made_where_there_is_reason(kind: str) -> None:
    calls: list[tuple[Any, ...]] = []
    reason: list[int] = []

    def first(*args: Any) -> str:
        if not args:
            raise ValueError("mine")
        calls.append(("first", *args))
        return "not this"

    def second(*args: Any) -> str:
        calls.append(("second", *args))
        return "this"

    then = module_of(kind).Then(first, reason, second)
    assert then(1) is None
    reason.append(0)
    assert then(2, 3) == "this"
    assert calls == [("first", 1), ("first", 2, 3), ("second", 2, 3)]
    with pytest.raises(ValueError, match="mine"):
        then()


# -- accesses -------------------------------------------------------------------------------------


def new_block(kind: str, owner: int = 0) -> Any:
    """A block of device memory that has not been reported."""
    return module_of(kind).Born(owner, 0, 0, NONE, False)


Addresses = st.integers(0, 12).map(lambda at: at * 512) | st.integers(0, 2**64 - 1)
Steps = st.lists(st.tuples(st.sampled_from(["put", "pop", "get"]), Addresses), max_size=60)


@given(Steps, st.integers(0, 3000))
def test_live_blocks_are_those_of_a_dictionary(steps: list[tuple[str, int]], more: int) -> None:
    kinds = ["portable", "compiled"] if _core.compiled() else ["portable"]
    for kind in kinds:
        table, expected = module_of(kind).LiveBlocks(), dict[int, Any]()
        for at in range(more):  # so many that the table has grown
            expected[at << 9] = table[at << 9] = new_block(kind, at)
        for what, address in steps:
            if what == "put":
                expected[address] = table[address] = new_block(kind)
            elif what == "pop":
                assert table.pop(address) is expected.pop(address, None)
            assert table.get(address) is expected.get(address)
        assert len(table) == len(expected)
        assert dict(table.items()) == expected


def test_live_blocks_that_are_removed_leave_the_others(kind: str) -> None:
    table = module_of(kind).LiveBlocks()
    blocks = {at * 512: new_block(kind, at) for at in range(5000)}
    for address, block in blocks.items():
        table[address] = block
    gone = list(blocks)[::3]
    assert [table.pop(address).owner * 512 for address in gone] == gone
    assert len(table) == len(blocks) - len(gone)
    assert all(table.get(address) is None for address in gone)
    assert all(table.get(at) is blocks[at] for at in set(blocks) - set(gone))


@needs_compiled
def test_only_blocks_live_at_addresses() -> None:
    table = module_of("compiled").LiveBlocks()
    with pytest.raises(TypeError, match="only blocks"):
        table[512] = "no block"
    with pytest.raises(TypeError):
        table["512"] = new_block("compiled")
    with pytest.raises(OverflowError):
        table.get(-1)
    assert len(table) == 0


class Memory:
    """Host tensors taken for those of a device, number 0; what the two kinds ask about them."""

    def __init__(self, kind: str, device_type: int = _HOST_MEMORY) -> None:
        self.kind = kind
        self.blocks = module_of(kind).LiveBlocks()
        self.pinned: dict[int, int] = {}
        self.seen: list[int] = []
        self.slow = 0
        if kind == "portable":
            self.accesses: _core.Accesses = _portable.Accesses(torch.Tensor, self.touch)
        else:
            plain = torch.Tensor, torch.nn.Parameter
            self.accesses = vars(_core)["_compiled"].Accesses(
                Access, torch.Tensor, plain, self.touch, self.pinned, self.blocks, self.show,
                torch.Tensor.__dlpack_c_exchange_api__,
                False, device_type, NOWHERE,
            )  # fmt: skip

    def touch(self, tensor: Any, mode: int, argument: str, accesses: list[Access]) -> int:
        """The rule, for any tensor."""
        self.slow += 1
        if tensor.layout is not torch.strided:
            return NOWHERE
        sizes, strides = tuple(tensor.shape), tensor.stride()
        extent = canonical(tensor.data_ptr(), tensor.itemsize, sizes, strides)
        if mode and extent is not None:
            block = self.blocks.get(tensor.untyped_storage().data_ptr())
            if block is None or block.number == NONE:
                self.show(tensor, 0)
            accesses.append(Access(0, *extent, mode, argument))
        return 0

    def show(self, tensor: Any, owner: int) -> None:
        """A block is reported."""
        address = tensor.untyped_storage().data_ptr()
        self.seen.append(address)
        if self.blocks.get(address) is None:
            self.blocks[address] = new_block(self.kind)
        self.blocks.get(address).number = owner + 1

    def touched(self, value: Any, mode: int = 1) -> tuple[int, list[Access]]:
        """What one argument touches."""
        found: list[Access] = []
        return self.accesses.touch(value, mode, "self", found), found


def test_dense_tensors_lists_and_others(kind: str) -> None:
    memory = Memory(kind)
    x, y = torch.ones(4, 8), torch.ones(3, dtype=torch.bfloat16)
    dense = Access(0, x.data_ptr(), 128, (), (), 1, "self")
    small = Access(0, y.data_ptr(), 6, (), (), 1, "self")
    assert memory.touched(x) == (0, [dense])
    assert memory.touched([x, None, y]) == (0, [dense, small])
    assert memory.touched((y, 3)) == (0, [small])
    assert memory.touched(torch.nn.Parameter(x)) == (0, [dense])
    for nothing in (None, 3, 2.5, "x", [], [None, [x]], torch.float32):
        assert memory.touched(nothing) == (NOWHERE, [])
    assert memory.touched(x, mode=0) == (0, [])
    assert memory.touched(torch.ones(0, 3)) == (0, [])


def test_what_came_before_comes_again_where_it_is_the_same(kind: str) -> None:
    memory = Memory(kind)
    x = torch.ones(6, 8)
    views = [x, x[::2], x[:, ::2], x[:, 1::2], x.t(), x[:3], x.expand(2, 6, 8)]
    first = [memory.touched(view) for view in views]
    assert [memory.touched(view) for view in views] == first
    assert memory.touched(x, mode=2)[1] != first[0][1]
    assert len({repr(found) for _, found in first}) == 5  # x, x.t() and the expanded are one


def test_arguments_by_place_and_by_name(kind: str) -> None:
    memory = Memory(kind)
    x, out = torch.ones(4), torch.zeros(2)
    w = torch.ones(5, requires_grad=True)
    places = [(0, "self", 1), (1, "other", 3), (-1, "out", 2), (2, "missing", 1), (3, "meta", 0)]
    found: list[Access] = []
    args = (x, [w, None], None, torch.ones(7))
    assert memory.accesses.arguments(places, args, {"out": out}, found, True) == (0, True)
    assert [(a.argument, a.mode, a.run) for a in found] == [
        ("self", 1, 16), ("other", 3, 20), ("out", 2, 8),
    ]  # fmt: skip
    assert memory.accesses.arguments(places, args, {}, [], False) == (0, False)
    assert memory.accesses.arguments(places[:1], (x,), {}, [], True) == (0, False)
    assert memory.accesses.arguments(places, (), {}, [], True) == (NOWHERE, False)


def test_a_block_is_reported_before_its_first_access_and_once(kind: str) -> None:
    memory = Memory(kind)
    x = torch.ones(16)
    address = x.data_ptr()
    memory.blocks[address] = new_block(kind)
    memory.touched(x[4:])
    assert memory.seen == [address]
    memory.touched(x)
    memory.touched(x[3:])
    assert memory.seen == [address]
    memory.blocks[address] = new_block(kind)  # freed, and handed out again
    memory.touched(x)
    assert memory.seen == [address, address]


@needs_compiled
def test_zeros_without_memory_are_left_to_python() -> None:
    memory = Memory("compiled")
    with pytest.raises(RuntimeError, match="data pointer"):  # what the rule for any tensor meets
        memory.touched(torch._efficientzerotensor((3,)))
    assert memory.slow == 1


def test_tensors_without_plain_memory_are_left_to_python(kind: str) -> None:
    memory = Memory(kind)

    class Own(torch.Tensor):
        """A class of the program's."""

    sparse = torch.ones(3, 3).to_sparse()
    assert memory.touched(sparse) == (NOWHERE, [])
    assert memory.touched([torch.ones(2).as_subclass(Own)])[0] == 0
    assert memory.slow == 2


@needs_compiled
def test_host_tensors_are_looked_at_where_memory_is_pinned() -> None:
    memory = Memory("compiled", device_type=2)
    x, asked = torch.ones(4), []
    for _ in range(2):
        asked.append((memory.touched(x)[0], memory.slow))
        memory.pinned[x.data_ptr()] = 1
    assert asked == [(NOWHERE, 0), (0, 1)]


def test_errors_reach_the_caller(kind: str) -> None:
    class Failing(Memory):
        """Reports no block."""

        def show(self, tensor: Any, owner: int) -> None:
            raise ValueError(f"mine: {tensor.shape} of {owner}")

    memory = Failing(kind)
    with pytest.raises(ValueError, match="mine"):
        memory.touched([torch.ones(2)])
    with pytest.raises(ValueError, match="mine"):
        memory.accesses.arguments([(0, "self", 1)], (torch.ones(2),), {}, [], False)


@needs_compiled
def test_nonsense_is_refused() -> None:
    accesses: Any = Memory("compiled").accesses
    wrong: list[tuple[Any, ...]] = [(), (torch.ones(2), "x", "self", []), (None, 1, "self", "x")]
    for arguments in wrong:
        with pytest.raises(TypeError):
            accesses.touch(*arguments)
    for places in ("no list", [(0, "self")], [("no place", "self", 1)], [3]):
        with pytest.raises(TypeError):
            accesses.arguments(places, (), {}, [], False)


dims = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=5)
dtypes = st.sampled_from(
    [torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex128]
)


@needs_compiled
@given(dims, st.integers(0, 9), dtypes)
def test_extents_are_the_same(
    shape: list[tuple[int, int]], offset: int, dtype: torch.dtype
) -> None:
    memory = torch.zeros(400, dtype=dtype)
    sizes, strides = [size for size, _ in shape], [stride for _, stride in shape]
    tensor = memory.as_strided(sizes, strides, offset)
    for _ in range(2):  # the second time from what was kept
        assert COMPILED.touched(tensor) == PORTABLE.touched(tensor)


PORTABLE = Memory("portable")
COMPILED = Memory("compiled") if _core.compiled() else PORTABLE

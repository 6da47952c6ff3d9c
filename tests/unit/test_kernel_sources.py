"""Kernels from CUDA source, told to a recorder: elementwise functions, and whole kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record._accounted import is_accounted
from streamsan.record.kernels.sources import install_sources, parameters
from tests.unit.test_cuda_operators import World, pretend

SOURCE = """
// __global__ void scale(int not, int this, int one);
extern "C" __global__ __launch_bounds__(256)
void scale(const float* __restrict__ x, /* in, out */ float *y, float const *const table, int n) {
    int i = threadIdx.x; if (i < n) y[i] *= x[i];
}
__global__ void other() {}
"""
R, W, RW = int(r.Mode.READ), int(r.Mode.WRITE), int(r.Mode.READ_WRITE)
LIKELY, POSSIBLE = int(r.Confidence.LIKELY), int(r.Confidence.POSSIBLE)


class Kernel:
    """Shaped like ``torch.cuda._utils._CudaKernel`` of torch 2.11."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __call__(
        self, grid: Any = (1, 1, 1), block: Any = (1, 1, 1), args: Any = None,
        shared_mem: int = 0, stream: Any = None,
    ) -> None:  # fmt: skip
        self.launches.append((grid, block, args, shared_mem, stream, is_accounted()))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    pretend(monkeypatch, "portable")
    kind = type("Kernel", (Kernel,), {"__call__": Kernel.__call__})
    monkeypatch.setattr(torch.cuda._utils, "_CudaKernel", kind)
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda *_: kind())

    def launch(*args: Any) -> Any:
        results = tuple(torch.empty_like(args[4][0]) for _ in range(args[3]))
        return results if len(results) > 1 else results[0]

    name = "_cuda_jiterator_compile_and_launch_kernel"
    monkeypatch.setattr(torch._C, name, launch, raising=False)
    made = World()
    install_sources(made.recorder)
    yield made
    assert [text for text in made.notes() if "Error" in text] == []


def told(world: World) -> list[tuple[str, list[tuple[int, int, str, int]]]]:
    return [
        (o.name, [(a.address, a.mode, a.argument, a.confidence) for a in o.accesses])
        for o in world.of(r.Operation)
    ]


def test_a_source_tells_through_which_pointers_its_kernel_only_reads() -> None:
    assert parameters(SOURCE, "scale") == [
        ("x", True),
        ("y", False),
        ("table", True),
        ("n", False),
    ]
    assert parameters(SOURCE, "other") == []
    assert parameters(SOURCE, "none") == []


def test_a_launch_reads_what_it_can_only_read_and_may_change_the_rest(world: World) -> None:
    kernel = torch.cuda._compile_kernel(SOURCE, "scale")
    x, y = world.tensor(8), world.tensor(8)
    kernel((1, 1, 1), (8, 1, 1), [x, y, 0, 8])
    assert kernel.launches == [((1, 1, 1), (8, 1, 1), [x, y, 0, 8], 0, None, True)]
    assert told(world) == [
        ("cuda::scale", [(x.data_ptr(), R, "x", LIKELY), (y.data_ptr(), RW, "y", POSSIBLE)])
    ]


def test_a_kernel_of_a_module_has_no_source(world: World) -> None:
    kernel: Any = torch.cuda._utils._CudaKernel()  # type: ignore[call-arg]
    x = world.tensor(8)
    kernel(args=[x])
    kernel()
    assert told(world) == [("cuda::kernel", [(x.data_ptr(), RW, "argument 0", POSSIBLE)])]


@pytest.mark.parametrize("count", [1, 2])
def test_an_elementwise_function_reads_its_tensors_and_writes_its_results(
    world: World, count: int
) -> None:
    x = world.tensor(8)
    launch: Any = torch._C._cuda_jiterator_compile_and_launch_kernel
    results = launch("code", "twice", False, count, (x,), {})
    made = results if count > 1 else (results,)
    ((name, accesses),) = told(world)
    assert name == "jiterator::twice"
    assert [access[:3] for access in accesses] == [
        (x.data_ptr(), R, "argument"),
        *((t.data_ptr(), W, "output") for t in made),
    ]


def test_between_recordings_nothing_is_told(world: World) -> None:
    kernel = torch.cuda._compile_kernel(SOURCE, "scale")
    x = world.tensor(8)
    world.recorder.enabled = False
    kernel(args=[x])
    launch: Any = torch._C._cuda_jiterator_compile_and_launch_kernel
    launch("code", "twice", False, 1, (x,), {})
    assert told(world) == []

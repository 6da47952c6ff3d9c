"""Every public name of ``torch.cuda`` and ``torch.accelerator`` works, or says that it does not."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.virtual.agree import on_virtual_gpu

DOCS = Path(__file__).parents[2] / "docs" / "virtual_gpu.md"
MODULES = (
    "torch.cuda", "torch.cuda.memory", "torch.cuda.random", "torch.cuda.nvtx",
    "torch.cuda.profiler", "torch.cuda.comm", "torch.cuda.nccl", "torch.cuda.tunable",
    "torch.accelerator", "torch.accelerator.memory",
)  # fmt: skip


def arguments(name: str) -> tuple[Any, ...] | None:
    """Arguments to call a name with; None where the call is tested elsewhere."""
    ones, two = torch.ones(4, device="cuda"), torch.ones(4, device="cuda:1")
    block = torch.cuda.caching_allocator_alloc(512)
    table: dict[str, tuple[Any, ...] | None] = {
        "caching_allocator_alloc": (512,), "caching_allocator_delete": (block,),
        "can_device_access_peer": (0, 1), "device": (0,), "device_of": (ones,),
        "device_index": (0,), "set_device": (0,), "set_device_index": (0,), "set_device_idx": (0,),
        "set_per_process_memory_fraction": (0.9,), "set_rng_state": (torch.cuda.get_rng_state(),),
        "set_rng_state_all": (torch.cuda.get_rng_state_all(),), "set_sync_debug_mode": ("default",),
        "set_stream": (torch.cuda.Stream(),), "stream": (None,), "StreamContext": (None,),
        "manual_seed": (1,), "manual_seed_all": (1,), "ExternalStream": (77,), "check_error": (0,),
        "get_stream_from_external": (77,), "graph": (torch.cuda.CUDAGraph(),), "CudaError": (0,),
        "make_graphed_callables": None, "mark": ("x",), "range": ("x",), "range_push": ("x",),
        "range_start": ("x",), "range_end": (0,), "broadcast": (ones, [0, 1]),
        "gather": ([ones, two],), "broadcast_coalesced": ([ones], [0, 1]),
        "scatter": (ones, [0, 1]), "reduce_add": ([ones, two],),
        "reduce_add_coalesced": ([[ones], [two]],), "is_available": (), "profile": (),
        "use_mem_pool": (torch.cuda.MemPool(),),
    }  # fmt: skip
    return table.get(name, ())


def nccl_arguments(name: str) -> tuple[Any, ...]:
    """Arguments for a name of ``torch.cuda.nccl``."""
    ones = [torch.ones(4, device=f"cuda:{index}") for index in range(2)]
    wide = [torch.empty(8, device=f"cuda:{index}") for index in range(2)]
    half = [torch.empty(2, device=f"cuda:{index}") for index in range(2)]
    table: dict[str, tuple[Any, ...]] = {
        "is_available": (ones,), "init_rank": (1, bytes(128), 0), "all_reduce": (ones,),
        "reduce": (ones, ones[0]), "broadcast": (ones,), "all_gather": (ones, wide),
        "reduce_scatter": (ones, half),
    }  # fmt: skip
    return table.get(name, ())


def callables() -> list[tuple[str, Any]]:
    """Public callables of the modules, by their dotted names."""
    found = []
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in dir(loaded):
            value = getattr(loaded, name)
            borrowed = getattr(value, "__module__", "").partition(".")[0] in (
                "typing",
                "collections",
            )
            if callable(value) and not name.startswith("_") and not borrowed:
                found.append((f"{module}.{name}", value))
    return found


def outcome(name: str, value: Any) -> str:
    """Call it: nothing where it worked, or the error."""
    given = arguments(name.rpartition(".")[2])
    if given is None:
        return ""
    if name.startswith("torch.cuda.nccl."):
        given = nccl_arguments(name.rpartition(".")[2])
    try:
        value(*given)
    except NotImplementedError as error:
        last = name.rpartition(".")[2]
        told = last in str(error) and "not covered by StreamSan's virtual GPU" in str(error)
        return "" if told else f"{name}: {error}"
    except Exception as error:  # each of these is a fault
        return f"{name}: {type(error).__name__}: {error}"
    return ""


def is_own(name: str, value: Any) -> bool:
    """Whether a name is torch's to offer, not an import that it left in sight."""
    module = getattr(value, "__module__", None) or ""
    kinds = (int, str, bool, type(None))
    return (
        not (inspect.isclass(value) and (issubclass(value, kinds) or value is torch.Tensor))
        and module.partition(".")[0] in ("torch", "streamsan")
        and not name.endswith(("Storage", "DeferredCudaCallError", "Graph", "classproperty"))
    )


@on_virtual_gpu("late", devices=2)
def test_no_public_callable_fails_in_another_way() -> None:
    names = [(name, value) for name, value in callables() if is_own(name, value)]
    assert len(names) > 120
    faults = [fault for name, value in names if (fault := outcome(name, value))]
    assert not faults, "\n".join(faults)


@on_virtual_gpu("late")
def test_the_manual_lists_the_names_that_are_refused() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name in torch.cuda.__all__:
        value = getattr(torch.cuda, name, None)
        if type(value).__name__ == "Refused":
            assert re.search(rf"`{name}`", text), f"docs/virtual_gpu.md does not list {name}"


@on_virtual_gpu("late", "program", devices=2)
def test_device_properties_are_those_of_a_cuda_device() -> None:
    shown = torch.cuda.get_device_properties("cuda:1")
    assert re.fullmatch(
        r"_CudaDeviceProperties\(name='StreamSan virtual GPU', major=9, minor=0, "
        r"total_memory=2048MB, multi_processor_count=132, uuid=[0-9a-f-]{36}, pci_bus_id=1, "
        r"pci_device_id=0, pci_domain_id=0, L2_cache_size=50MB\)",
        repr(shown),
    )
    assert torch.cuda.get_device_name() == shown.name
    assert torch.cuda.get_device_capability(1) == (shown.major, shown.minor)
    assert shown.uuid != torch.cuda.get_device_properties(0).uuid
    for ask in (torch.cuda.get_device_properties, torch.cuda.get_device_name):
        with pytest.raises(AssertionError, match="Invalid device id"):
            ask(2)
    assert torch.cuda.device_count() == torch.accelerator.device_count() == 2
    assert torch.cuda.can_device_access_peer(0, 1)
    assert not torch.cuda.can_device_access_peer(1, 1)


@on_virtual_gpu("late")
def test_the_accelerator_is_cuda() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.get_device_module() is torch.cuda
    assert torch.accelerator.current_stream() == torch.cuda.current_stream()
    with torch.Stream() as stream:
        assert torch.accelerator.current_stream() == torch.cuda.current_stream() == stream
    x = torch.ones(1000, device=torch.accelerator.current_accelerator())
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() == 4096
    assert torch.accelerator.max_memory_reserved() == 2 << 20
    torch.accelerator.synchronize()
    assert x.is_cuda
    assert torch.accelerator.memory_stats()["num_device_alloc"] == 1


@on_virtual_gpu("late")
def test_profilers_and_ranges_do_not_stop_a_program() -> None:
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    steps = schedule(wait=1, warmup=1, active=2)
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=kinds, schedule=steps, acc_events=True) as profiler:
        for _ in range(4):
            with record_function("step"), torch.cuda.nvtx.range("step {}", 1):
                y = torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")
            profiler.step()
    table = profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=3)
    assert "Self CPU" in table
    with torch.autograd.profiler.profile(use_device="cuda"):
        y = y + 1
    with torch.cuda.profiler.profile():
        y = y + 1
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
    assert y.sum().item() == 16 * 6


@on_virtual_gpu("late", "program")
def test_the_sync_debug_mode_tells_and_forbids() -> None:
    import warnings

    x = torch.ones(3, device="cuda")
    assert torch.cuda.get_sync_debug_mode() == 0
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        x.sum().item()
    assert [str(warning.message) for warning in told] == ["called a synchronizing CUDA operation"]
    torch.cuda.set_sync_debug_mode("error")
    for call in (x.sum().item, x.cpu, torch.cuda.current_stream().synchronize):
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode(0)
    assert x.sum().item() == 3


@on_virtual_gpu("late")
def test_old_tensor_types_make_and_recognise_device_tensors() -> None:
    cuda: Any = torch.cuda  # torch makes these names at run time
    assert cuda.FloatTensor([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert cuda.LongTensor(2, 3).shape == (2, 3)
    assert cuda.HalfTensor(torch.Size([4])).dtype == torch.float16
    assert cuda.FloatTensor().shape == (0,)
    x = torch.ones(2, device="cuda")
    assert isinstance(x, cuda.FloatTensor)
    assert not isinstance(x, cuda.HalfTensor)
    assert not isinstance(torch.ones(2), cuda.FloatTensor)
    assert x.half().type() == "torch.cuda.HalfTensor"
    assert torch.ones(2).type(cuda.HalfTensor).dtype == torch.float16


@on_virtual_gpu()
def test_printing_waits_for_the_values() -> None:
    x = torch.ones(3, device="cuda") * 0.25
    assert repr(x) == "tensor([0.2500, 0.2500, 0.2500], device='cuda:0')"
    y = torch.nn.Parameter(torch.full((2, 2), 1.5, device="cuda"))
    head = "Parameter containing:\ntensor([[1.5000, 1.5000],\n        [1.5000, 1.5000]]"
    assert repr(y) == f"{head}, device='cuda:0', requires_grad=True)"
    assert repr(y.sum() * 2) == "tensor(12., device='cuda:0', grad_fn=<MulBackward0>)"
    assert f"{y.sum():.2f}" == "6.00"
    assert repr(torch.zeros(0, device="cuda")) == "tensor([], device='cuda:0')"
    assert str(torch.arange(2000, device="cuda")).startswith("tensor([   0,    1,    2,  ...,")


@on_virtual_gpu("late")
def test_random_state_is_saved_restored_and_forked() -> None:
    torch.cuda.manual_seed_all(5)
    assert torch.cuda.initial_seed() == 5
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    with torch.random.fork_rng(devices=[0]):
        assert torch.rand(4, device="cuda").tolist() == first
    assert torch.rand(4, device="cuda").tolist() == first
    assert torch.rand(4, device="cuda").tolist() != first
    torch.cuda.set_rng_state_all([state])
    assert torch.rand(4, device="cuda").tolist() == first
    torch.cuda.seed()
    assert torch.cuda.initial_seed() != 5

"""Making torch show the virtual machine: all replaced names, in one place."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from streamsan.virtual.face import (
    autocast,
    comm,
    constructors,
    current,
    graphs,
    helpers,
    legacy,
    library,
    methods,
    mixed,
    namespace,
    native,
    nccl,
    numbered,
    overrides,
    pools,
    printing,
    profilers,
    refused,
    storage_methods,
    streams,
)
from streamsan.virtual.face.state import Face, VirtualMode
from streamsan.virtual.gpu import Gpu


def install(gpu: Gpu) -> Face:
    """Show `gpu` as the CUDA machine of this process, until it ends.

    The calling thread gets its dispatch mode; other threads need `enter_thread`.
    """
    torch.utils._device._device_constructors()  # keeps the functions as they are before us
    face = Face(gpu)
    current.show(face)
    _replace(torch.Tensor, methods.replaced())
    _replace(torch.UntypedStorage, storage_methods.replaced())
    made = constructors.functions()
    _replace(torch, {n: overrides.scriptable(f, getattr(torch, n)) for n, f in made.items()})
    _replace(torch, autocast.functions())
    _replace(torch, {"set_default_tensor_type": legacy.set_default_tensor_type})
    _replace(torch, {"Stream": streams.DeviceStream, "Event": streams.DeviceEvent})
    cuda = {**namespace.functions(), **legacy.types(), **_graph_functions()}
    _replace(torch.cuda, cuda)
    for module in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        _replace(module, {name: value for name, value in cuda.items() if hasattr(module, name)})
    refused.install()
    sync = native.SyncMode()
    gpu.before_wait = sync.waiting
    gpu.captures.error = lambda text: torch.AcceleratorError(f"CUDA error: {text}")
    below = {**native.functions(sync), **comm.native(), **nccl.native()}
    # An object of its own for each name: torch's compiler refuses to know one under two names.
    _replace(torch._C, {name: partial(function) for name, function in below.items()})
    if hasattr(torch.accelerator, "Graph"):
        _replace(torch.accelerator, {"Graph": graphs.Graph})
    _grouping()
    mixed.install()
    helpers.install()
    numbered.install()
    _surroundings()
    profilers.install()
    printing.install()
    nccl.install()
    library.install(lambda: VirtualMode(face))
    enter_thread()
    return face


def enter_thread() -> None:
    """Send the calling thread's operators to the virtual machine."""
    VirtualMode(current.face()).__enter__()  # type: ignore[no-untyped-call]


def _replace(owner: Any, table: dict[str, Any]) -> None:
    for name, value in table.items():
        setattr(owner, name, value)


def _graph_functions() -> dict[str, Any]:
    return {
        "CUDAGraph": graphs.CUDAGraph,
        "graph_pool_handle": graphs.graph_pool_handle,
        "MemPool": pools.MemPool,
        "use_mem_pool": pools.use_mem_pool,
    }


def _grouping() -> None:
    """The grouping of foreach optimizers is C++ and sees CPU tensors: group by our devices."""
    original: Any = torch._C._group_tensors_by_device_and_dtype

    def group(tensorlistlist: Any, with_indices: bool = False) -> Any:
        result: dict[Any, Any] = {}
        for (_, dtype), (lists, indices) in original(tensorlistlist, with_indices).items():
            for place, first in enumerate(lists[0]):
                empty: Any = ([[] for _ in lists], [])
                columns, numbers = result.setdefault((first.device, dtype), empty)
                for column, source in zip(columns, lists):
                    column.extend(source[place : place + 1])
                numbers.extend(indices[place : place + 1])
        return result

    torch._C._group_tensors_by_device_and_dtype = group  # type: ignore[assignment]


def _surroundings() -> None:
    """Small things that scripts ask on the way: build flags, NVTX ranges."""
    torch.backends.cuda.is_built = lambda: True
    torch.cuda._cudart = native.cudart()  # type: ignore[attr-defined]
    torch.version.cuda = "13.0"
    torch.cuda._initialized = True  # checkpoints keep the devices' random states where it is
    nvtx = SimpleNamespace(
        rangePushA=lambda msg: 0,
        rangePop=lambda: 0,
        rangeStartA=lambda msg: 0,
        rangeEnd=lambda handle: None,
        markA=lambda msg: None,
        deviceRangeStart=lambda msg, stream: 0,
        deviceRangeEnd=lambda handle, stream: None,
    )
    _replace(torch.cuda.nvtx, {"_nvtx": nvtx})

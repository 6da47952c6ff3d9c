"""Names of ``torch.cuda`` that the virtual machine does not have: each says so when called."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

NAMES = (
    "change_current_allocator", "CUDAPluggableAllocator",
    "GreenContext", "list_gpu_processes", "device_memory_used", "temperature", "power_draw",
    "clock_rate", "utilization", "memory_usage", "caching_allocator_enable",
    "memory.caching_allocator_disabled", "current_solver_handle",
)  # fmt: skip
"""Names of ``torch.cuda`` that raise one clear error."""

MODULES = ("tunable", "gds", "jiterator", "green_contexts")
"""Modules of ``torch.cuda`` of which every function does."""

_KEPT = {"tunable.is_enabled", "tunable.tuning_is_enabled"}
"""Questions in them whose answer is no."""

_EXTRA = ("_compile_kernel",)

_MAKERS = ("jiterator._create_jit_fn", "jiterator._create_multi_output_jit_fn")
"""What makes functions of source that is compiled at the first call: their calls say so."""


class Refused:
    """Stands for what the virtual machine does not have: says so when it is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            f"torch.cuda.{self._name} is not covered by StreamSan's virtual GPU"
            " (docs/virtual_gpu.md lists what is)"
        )

    def __repr__(self) -> str:
        return f"<torch.cuda.{self._name}, not covered by the virtual GPU>"


def _refused_when_called(name: str, *_: Any, **__: Any) -> Refused:
    return Refused(name)


def names() -> list[str]:
    """All of them, with the modules they are in."""
    found = [*NAMES, *_EXTRA]
    for module in MODULES:
        try:
            loaded = importlib.import_module(f"torch.cuda.{module}")
        except ImportError:  # a torch that has not got it yet
            continue
        for name, value in vars(loaded).items():
            own = getattr(value, "__module__", "") == loaded.__name__
            if own and callable(value) and not name.startswith("_"):
                found.append(f"{module}.{name}")
    found += [f"memory.{name}" for name in NAMES if "." not in name]
    return [name for name in found if name not in _KEPT]


def install() -> None:
    """Put them in place of torch's."""
    for name in names():
        owner: Any = torch.cuda
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        if hasattr(owner, last):
            setattr(owner, last, Refused(name))
    for name in _MAKERS:
        module, _, last = name.partition(".")
        setattr(getattr(torch.cuda, module), last, functools.partial(_refused_when_called, name))
    for name in ("is_enabled", "tuning_is_enabled"):
        setattr(torch.cuda.tunable, name, lambda: False)

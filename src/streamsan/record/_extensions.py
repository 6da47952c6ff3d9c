"""Code that launches kernels by itself: extensions, noticed when they are loaded, and TorchScript.

Those that register their operators with torch's dispatcher (``torch.ops.load_library``) do not
count: their kernels run inside of operators. What counts is an extension module, or a library
loaded through ctypes, that names a function by which kernels are launched; or the driver itself.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from mmap import ACCESS_READ, mmap
from typing import Any

import torch

from streamsan.record._accounted import is_accounted
from streamsan.record._native_code import supported

_LAUNCHES = (b"cudaLaunchKernel", b"cuLaunchKernel")
_CUDA = ("libcuda.so", "libcudart.so")
_KNOWN = ("__triton_launcher", "cuda_utils", "triton.", "torch.", "torchvision.", "torchaudio.")
"""Modules whose launches other parts of the recorder tell, or that are made of operators."""

GENERATED = ".inductor_entry_cpp"
"""How the names of the modules end that Inductor's C++ wrapper makes, which are listened to."""


def after_extension(work: Callable[[Any], None]) -> None:
    """Call `work` with the file of the first such extension, after it was loaded.

    It must not raise. Later extensions are not looked at: that takes time.
    """
    found: list[Any] = []

    def notice(file: Any) -> None:
        found.append(file)
        work(file)

    create = ExtensionFileLoader.create_module
    load = ctypes.CDLL.__init__
    own = os.path.dirname(torch.__file__) + os.sep

    @functools.wraps(create)
    def create_module(self: ExtensionFileLoader, spec: Any) -> Any:
        module = create(self, spec)
        if not (found or _is_told(spec.name)) and launches(self.path):
            notice(self.path)
        return module

    @functools.wraps(load)
    def init(self: ctypes.CDLL, name: Any, *args: Any, **kwargs: Any) -> None:
        load(self, name, *args, **kwargs)
        inside_torch = is_accounted() or (isinstance(name, str) and name.startswith(own))
        if not (found or inside_torch) and (_is_cuda(name) or launches(name)):
            notice(name)

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]
    ctypes.CDLL.__init__ = init  # type: ignore[method-assign]


def after_script(work: Callable[[Any], None]) -> None:
    """Call `work` with the kind of the first function of TorchScript that is called, before it is.

    Its compiler fuses operators into kernels that it launches by itself. `work` must not raise.
    """
    waiting = [work]

    def watch(kind: Any) -> None:
        call = kind.__call__

        @functools.wraps(call)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if waiting and torch._C._jit_can_fuse_on_gpu():
                waiting.clear()
                work(kind)
            return call(self, *args, **kwargs)

        kind.__call__ = run

    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        watch(kind)


def _is_told(module: str) -> bool:
    """Whether the launches of a module are told elsewhere."""
    return module.startswith(_KNOWN) or (module.endswith(GENERATED) and supported())


def _is_cuda(name: Any) -> bool:
    """Whether it is the driver or the runtime, whose functions launch kernels."""
    return isinstance(name, str) and os.path.basename(name).startswith(_CUDA)


def launches(file: Any) -> bool:
    """Whether a library's file names a function by which kernels are launched."""
    try:
        with open(file, "rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as data:
            return any(data.find(name) >= 0 for name in _LAUNCHES)
    except (OSError, TypeError, ValueError):  # no file: a name that the system looks up, or None
        return False

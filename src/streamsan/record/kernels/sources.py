"""Kernels that torch compiles from CUDA source that a program gives it.

Elementwise functions (``torch.cuda.jiterator``) read their tensors and write their results. Of a
whole kernel (``torch.cuda._compile_kernel``) the source declares through which pointers it can only
read; through the others it may read and write, which is a guess.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from streamsan.model import records as r
from streamsan.record._accounted import ACCOUNTED
from streamsan.record.cuda._streams import raw_handle

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONSTANT = re.compile(r"\bconst\b[^*]*\*")
_ATTRIBUTE = "_streamsan_parameters"

_READ, _WRITE = int(r.Mode.READ), int(r.Mode.WRITE)


def install_sources(recorder: CudaRecorder) -> None:
    """Watch both, for the rest of the process."""
    _elementwise(recorder)
    _whole_kernels(recorder)


def _elementwise(recorder: CudaRecorder) -> None:
    name = "_cuda_jiterator_compile_and_launch_kernel"
    launch = getattr(torch._C, name, None)
    if launch is None:
        return

    @functools.wraps(launch)
    def call(code: Any, kernel: str, by_ref: Any, count: Any, tensors: Any, options: Any) -> Any:
        with ACCOUNTED:
            results = launch(code, kernel, by_ref, count, tensors, options)
        if recorder.enabled and recorder.observer.recording:
            recorder._guarded(lambda: told(kernel, tensors, results))
        return results

    def told(kernel: str, tensors: Sequence[Any], results: Any) -> None:
        made = results if isinstance(results, (list, tuple)) else (results,)
        found = [(t, recorder.owner(t), _READ, "argument") for t in tensors]
        found += [(t, recorder.owner(t), _WRITE, "output") for t in made]
        accesses = recorder.accesses(found)
        if accesses:
            stream = recorder.streams.current(accesses[0].space)
            recorder.operation(int(r.OpKind.KERNEL), f"jiterator::{kernel}", stream, accesses)

    setattr(torch._C, name, call)


def _whole_kernels(recorder: CudaRecorder) -> None:
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    kind = getattr(torch.cuda._utils, "_CudaKernel", None)
    if compile_kernel is None or kind is None:
        return

    @functools.wraps(compile_kernel)
    def compiled(kernel_source: str, kernel_name: str, *args: Any, **kwargs: Any) -> Any:
        with ACCOUNTED:  # it loads the driver, for launches that are told here
            kernel = compile_kernel(kernel_source, kernel_name, *args, **kwargs)
        setattr(kernel, _ATTRIBUTE, (kernel_name, parameters(kernel_source, kernel_name)))
        return kernel

    torch.cuda._compile_kernel = compiled
    launch = kind.__call__

    @functools.wraps(launch)
    def call(
        self: Any, grid: Any = (1, 1, 1), block: Any = (1, 1, 1), args: Any = None,
        shared_mem: int = 0, stream: Any = None,
    ) -> None:  # fmt: skip
        with ACCOUNTED:
            launch(self, grid, block, args, shared_mem, stream)
        if recorder.enabled and recorder.observer.recording:
            recorder._guarded(lambda: told(self, args or (), stream))

    def told(kernel: Any, args: Sequence[Any], stream: Any) -> None:
        name, declared = getattr(kernel, _ATTRIBUTE, ("kernel", ()))
        accesses = [
            access
            for place, value in enumerate(args)
            if isinstance(value, torch.Tensor)
            for access in _touched(recorder, value, place, declared)
        ]
        device, streams = torch.cuda.current_device(), recorder.streams
        handle = None if stream is None else raw_handle(stream)
        timeline = streams.current(device) if handle is None else streams.define(device, handle)
        if accesses:
            recorder.operation(int(r.OpKind.KERNEL), f"cuda::{name}", timeline, accesses)

    kind.__call__ = call


def _touched(
    recorder: CudaRecorder, tensor: torch.Tensor, place: int, declared: Sequence[tuple[str, bool]]
) -> list[r.Access]:
    """What a kernel may do to the tensor that it is given in some place."""
    name, constant = declared[place] if place < len(declared) else (f"argument {place}", False)
    mode = _READ if constant else _READ | _WRITE
    sure = int(r.Confidence.LIKELY if constant else r.Confidence.POSSIBLE)
    accesses = recorder.accesses([(tensor, recorder.owner(tensor), mode, name)])
    return [msgspec.structs.replace(access, confidence=sure) for access in accesses]


def parameters(source: str, kernel: str) -> list[tuple[str, bool]]:
    """The parameters that a source declares for a kernel: their names, and whether they are
    pointers to constants. Empty where there is no such declaration.
    """
    text = _COMMENT.sub(" ", source)
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(([^()]*)\)", text)
    parts = found[1].split(",") if found and found[1].strip() else []
    return [(_name(part), bool(_CONSTANT.search(part))) for part in parts]


def _name(declaration: str) -> str:
    words = re.findall(r"\w+", declaration)
    return words[-1] if words else ""

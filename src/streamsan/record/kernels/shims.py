"""Operators that generated C++ code calls past torch's dispatcher.

The code that Inductor's C++ wrapper generates calls operators by functions of a C interface, the
shims (``aoti_torch_cuda_addmm_out``), which go straight to the kernel. Their declarations, in a
header that comes with torch, say how the arguments lie; the operator's schema says which are read
and which are written. The report is the one that the dispatcher's operators get.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from streamsan.record._accounted import ACCOUNTED
from streamsan.record._outgoing import Arguments, Listener, word_at
from streamsan.record.cuda._copies import Copy
from streamsan.record.cuda._operators import Computation, Running
from streamsan.virtual.face.schema import PLANS, Role

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

PREFIX = "aoti_torch_cuda_"
ALLOCATE = "aoti_torch_empty_strided"

_HEADER = "include/torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h"
_DECLARATION = re.compile(rf"\b({PREFIX}\w+)\(([^()]*)\)\s*;")
_VERSION = re.compile(r"_v\d+$")
_RESULT = re.compile(r"ret\d+$")
_TENSOR = "AtenTensorHandle"

Parameters = list[tuple[str, str]]
"""The parameters of a shim: C type and name."""


@lru_cache(maxsize=1)
def _declarations() -> dict[str, Parameters]:
    """All shims that torch declares; none where its headers are not installed."""
    try:
        text = (Path(torch.__file__).parent / _HEADER).read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: _parameters(listed) for name, listed in _DECLARATION.findall(text)}


def _parameters(text: str) -> Parameters:
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        kind, _, name = part.rpartition(" ")
        found.append((kind.replace("const ", "").replace(" ", ""), name))
    return found


def operator_of(shim: str) -> OpOverload | None:
    """The operator behind a shim: its name, and its overload's, joined by underscores."""
    name = _VERSION.sub("", shim.removeprefix(PREFIX))
    ends = [len(name), *(at.start() for at in re.finditer("_", name))]
    for end in sorted(ends, reverse=True):
        packet = getattr(torch.ops.aten, name[:end], None) if end else None
        overload = name[end + 1 :] or "default"
        if packet is not None and overload in packet.overloads():
            return getattr(packet, overload)  # type: ignore[no-any-return]
    return None


class Shims:
    """Makes listeners for shims."""

    def __init__(self, recorder: CudaRecorder) -> None:
        self._recorder = recorder

    @cached_property
    def _tensors(self) -> Tensors:
        return Tensors()

    def listener(self, name: str) -> Listener | None:
        """What listens to the calls of one shim; None for one that touches no bytes itself.

        Raises LookupError where what it does is not known.
        """
        if name == ALLOCATE:
            return Listener(lambda _: None, self._allocated)
        op, parameters = operator_of(name), _declarations().get(name)
        if op is None or parameters is None:
            raise LookupError(name)
        plan = PLANS[op]
        if plan.role not in (Role.COMPUTE, Role.COPY):
            return None
        reported = (Copy if plan.role is Role.COPY else Computation)(self._recorder, plan)
        calls = _Calls(self._recorder, self._tensors, op, reported, parameters)
        return Listener(calls.before, calls.after)

    def _allocated(self, arguments: Arguments, status: int) -> None:
        """``empty_strided(dimensions, sizes, strides, type, device and its index, result)``: the
        block that nobody else shows, for launches that have its address alone.
        """
        recorder = self._recorder

        def show() -> None:
            for _ in range(6):
                arguments.word()
            tensor = self._tensors.at(arguments.word())
            if tensor is not None and tensor.is_cuda:
                recorder.blocks.seen(tensor, tensor.get_device())

        if not status and recorder.enabled and recorder.observer.recording:
            recorder._guarded(show)


class Tensors:
    """Tensors by their handles in torch's C interface."""

    def __init__(self) -> None:
        libraries = Path(torch.__file__).parent / "lib"
        self._share = ctypes.CDLL(str(libraries / "libtorch_cpu.so")).aoti_torch_new_tensor_handle
        self._share.argtypes = ctypes.c_void_p, ctypes.c_void_p
        self._capsule = ctypes.pythonapi.PyCapsule_New
        self._capsule.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        self._capsule.restype = ctypes.py_object

    def of(self, handle: int) -> torch.Tensor | None:
        """The tensor of a handle, which its holder keeps."""
        own = ctypes.c_void_p()
        if not handle or self._share(handle, ctypes.byref(own)) or not own.value:
            return None
        take: Any = torch._C._aoti
        capsule = self._capsule(own.value, None, None)
        tensor: torch.Tensor = take.alloc_tensor_by_stealing_from_void_ptr(capsule)
        return tensor

    def at(self, place: int) -> torch.Tensor | None:
        """The tensor whose handle is at an address, or None for no address."""
        return self.of(word_at(place)) if place else None

    def listed(self, place: int, count: int, optional: bool) -> list[torch.Tensor | None]:
        """Tensors whose handles lie one behind the other; optional ones have their addresses."""
        get = self.at if optional else self.of
        return [get(word_at(place + 8 * i)) for i in range(count)]


class _AtWork(threading.local):
    """Per thread: the operators at work, outermost first, and what hides their insides."""

    def __init__(self) -> None:
        self.stack: list[tuple[Running | None, AbstractContextManager[None]]] = []


class _Calls:
    """The calls of one shim: each is an operator at work, from before to after."""

    def __init__(
        self,
        recorder: CudaRecorder,
        tensors: Tensors,
        op: OpOverload,
        reported: Any,
        parameters: Parameters,
    ) -> None:
        self._recorder, self._tensors = recorder, tensors
        self._reported, self._parameters = reported, parameters
        self._arguments = op._schema.arguments
        self._at_work = _AtWork()

    def before(self, arguments: Arguments) -> None:
        """The operator is about to run, and nothing that it calls is the program's."""
        recorder = self._recorder
        ACCOUNTED.__enter__()
        hidden = recorder.hidden()
        running = None
        if recorder.enabled and recorder.observer.recording:
            running = recorder._guarded(lambda: self._begin(arguments))
        hidden.__enter__()
        self._at_work.stack.append((running, hidden))

    def after(self, arguments: Arguments, status: int) -> None:
        """It has run, or failed with a status of its own."""
        running, hidden = self._at_work.stack.pop()
        hidden.__exit__(None, None, None)
        if running is not None:
            self._recorder._guarded(lambda: self._end(running, arguments, status))
        ACCOUNTED.__exit__()

    def _begin(self, arguments: Arguments) -> Running:
        given = dict(self._values(arguments))
        args = [given.get(a.name) for a in self._arguments if not a.kwarg_only]
        kwargs = {a.name: given.get(a.name) for a in self._arguments if a.kwarg_only}
        return Running(self._recorder, self._reported, tuple(args), kwargs)

    def _end(self, running: Running, arguments: Arguments, status: int) -> None:
        try:
            if not status:
                places = [
                    place
                    for name, place in self._values(arguments, results=True)
                    if _RESULT.match(name)
                ]
                results = [t for t in map(self._tensors.at, places) if t is not None]
                running.done(results[0] if len(results) == 1 else tuple(results))
        finally:
            running.end()

    def _values(self, arguments: Arguments, results: bool = False) -> Iterator[tuple[str, Any]]:
        """The arguments by name, or where the `results` are."""
        parameters = iter(self._parameters)
        for kind, name in parameters:
            if kind == "double":
                yield name, arguments.double()
                continue
            word = arguments.word()
            if results or not kind.startswith(_TENSOR):
                yield name, word
            elif kind == _TENSOR:
                yield name, self._tensors.of(word)
            elif _RESULT.match(name) is None:
                yield name, self._tensor_or_list(kind, name, word, arguments, parameters)

    def _tensor_or_list(
        self,
        kind: str,
        name: str,
        word: int,
        arguments: Arguments,
        parameters: Iterator[tuple[str, str]],
    ) -> Any:
        """A pointer to handles: a list where the schema has one, whose length comes next."""
        if not self._is_list(name):
            return self._tensors.at(word)
        next(parameters)
        return self._tensors.listed(word, arguments.word(), kind == _TENSOR + "**")

    def _is_list(self, name: str) -> bool:
        kinds = [str(a.type) for a in self._arguments if a.name == name]
        return any("List" in kind for kind in kinds)

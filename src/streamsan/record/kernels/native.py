"""Kernels that generated C++ code launches, by the driver's handle of their function.

A launch gives addresses alone. What the kernel does with them stands in its TTIR; which bytes an
address stands for is known of the tensors that the code was given, and of the blocks that it
allocates, each for one tensor. Without TTIR the names of the parameters tell, in the source of the
code; and without that a kernel may read and write whatever its parameters point into.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.model.extent import Extent, canonical
from streamsan.record._outgoing import Arguments
from streamsan.record.cupti._arrays import Parameter
from streamsan.record.cupti._calls import Launch
from streamsan.record.cupti._kernels import Kernels
from streamsan.record.cupti._touched import touched
from streamsan.record.kernels.cubins import Cubins
from streamsan.record.kernels.generated import parameters, source_of
from streamsan.record.kernels.launches import Launches, Pointer
from streamsan.record.kernels.ttir import DESCRIPTOR, POINTER, NotUnderstoodError, read
from streamsan.record.kernels.uses import KernelUses, from_functions, from_names
from streamsan.virtual.memory import NOWHERE, PINNED

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_NOTHING: Extent = (0, 0, (), ())


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel: its name, and what it does through its parameters, whose types are `kinds`, where
    that is known.
    """

    name: str
    uses: KernelUses | None = None
    kinds: tuple[str, ...] = ()


class _Given(threading.local):
    """Per thread: the tensors that generated code was given last, by address."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[int, Extent]] = {}


class NativeKernels:
    """Tells of their launches. `driver` is CUDA's driver library."""

    def __init__(
        self, recorder: CudaRecorder, launches: Launches, cubins: Cubins, driver: Any
    ) -> None:
        self._recorder, self._launches, self._cubins = recorder, launches, cubins
        self._driver = driver
        self._sizes = Kernels(driver)
        self._files: dict[int, Path] = {}
        self._kernels: dict[int, _Kernel] = {}
        self._given = _Given()

    def given(self, tensors: Iterable[Any]) -> None:
        """Generated code is about to work on these."""
        self._given.tensors.clear()
        for tensor in tensors:
            owner = self._recorder.owner(tensor) if isinstance(tensor, torch.Tensor) else NOWHERE
            if owner != NOWHERE:
                self._recorder.blocks.seen(tensor, owner)
                sizes, strides = tuple(tensor.shape), tensor.stride()
                whole = canonical(0, tensor.itemsize, sizes, strides) or _NOTHING
                space = r.HOST if owner == PINNED else owner
                self._given.tensors[tensor.data_ptr()] = space, whole

    def module_loaded(self, module: int, file: Path) -> None:
        """Kernels were loaded from a file."""
        self._files[module] = file

    def function_found(self, function: int, module: int, name: str, library: Path) -> None:
        """A kernel of such a module has this handle in a generated library."""
        file = self._files.get(module)
        text = None if file is None else self._cubins.ttir(name, file)
        found = _understood(name, text) if text else None
        self._kernels[function] = found or _declared(name, library)

    def launched(self, arguments: Arguments, library: Path) -> None:
        """A generated library has called ``cuLaunchKernel(function, grid, block, shared bytes,
        stream, parameters, ...)``.
        """
        function = arguments.word()
        grid = tuple(arguments.word() & 0xFFFFFFFF for _ in range(3))
        for _ in range(4):
            arguments.word()
        stream, pointers = arguments.word(), arguments.word()
        kernel = self._kernels.get(function)
        if kernel is None:  # it was found before anybody listened
            kernel = self._kernels[function] = _declared(self._name(function), library)
        sizes = self._sizes.kernel(function, kernel.name.encode())
        words = self._sizes.parameters(sizes, Launch(function, stream, pointers))
        if kernel.uses is None or len(words) < len(kernel.kinds):
            self._guess(kernel.name, stream, words)
            return
        found = list(zip(kernel.kinds, words))
        self._launches.report(
            kernel.uses,
            (*grid, stream),
            [self._pointer(word) for kind, (word, *_) in found if kind == POINTER],
            [_number(kind, word) for kind, (word, *_) in found if kind != POINTER],
        )

    def _guess(self, name: str, stream: int, words: Sequence[Parameter]) -> None:
        """Report a kernel of which nothing is known."""
        device, recorder = torch.cuda.current_device(), self._recorder
        accesses = touched(words, None, device, recorder.blocks.find, lambda _: None)
        self._launches.emit(f"triton::{name}", recorder.streams.define(device, stream), accesses)

    def _name(self, function: int) -> str:
        """The name of a kernel."""
        name = ctypes.c_char_p()
        ask = getattr(self._driver, "cuFuncGetName", None)
        if ask is None or ask(ctypes.byref(name), ctypes.c_void_p(function)) or not name.value:
            return "kernel"
        return name.value.decode(errors="replace")

    def _pointer(self, address: int) -> Pointer | None:
        """What an address stands for."""
        if not address:
            return None
        given = self._given.tensors.get(address)
        if given is not None:
            return Pointer(given[0], address, given[1], True)
        block = self._recorder.blocks.find(address)
        if block is None:
            return Pointer(torch.cuda.current_device(), address, _NOTHING, False)
        space, start, size = block
        return Pointer(space, address, (0, start + size - address, (), ()), address == start)


def _declared(name: str, library: Path) -> _Kernel:
    """A kernel by the names of its parameters, as far as the library's source is there."""
    names = parameters(source_of(library), name)
    if not any(names):
        return _Kernel(name)
    uses = from_names(name, [named for named in names if named], ())
    return _Kernel(name, uses, tuple(POINTER if named else "" for named in names))


def _understood(name: str, text: str) -> _Kernel | None:
    """A kernel by its TTIR. None for one that gets descriptors, which are no addresses, and for one
    whose code is not understood.
    """
    try:
        functions = read(text)
        kernel = next(function for function in functions if function.public)
        kinds = tuple(kind for _, kind in kernel.parameters)
        names = [n for n, kind in zip(kernel.names, kinds) if kind == POINTER]
        uses = None if DESCRIPTOR in kinds else from_functions(name, names, functions)
    except (NotUnderstoodError, RecursionError):
        return None
    return None if uses is None else _Kernel(name, uses, kinds)


def _number(kind: str, word: int) -> int | None:
    """A whole number of type ``i32`` and the like, signed; None for any other."""
    bits = int(kind[1:]) if kind[:1] == "i" and kind[1:].isdigit() else 0
    if not bits:
        return None
    word &= (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) and bits > 1 else word

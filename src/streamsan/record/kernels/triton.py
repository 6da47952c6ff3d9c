"""Triton's launches: every kernel that it compiled, however it came to be launched.

A launch of ``triton.jit``, an autotuner's trials, a launch by torch.compile with Triton's own
launcher: all ask the compiled kernel for its ``run`` and call that with grid, stream, and all
arguments. Triton's launch hooks would show less (no arguments), and Inductor's static launcher
refuses kernels while one is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.uses import KernelUses, from_text, unknown

_ARGUMENTS = 9
"""Place of the kernel's first argument among those of a launcher: first grid and stream."""

_ATTRIBUTE = "_streamsan_launcher"


def install_triton(launches: Launches, compiler: Any) -> None:
    """Watch the launches of all kernels; `compiler` is ``triton.compiler.compiler``."""
    kind = compiler.CompiledKernel
    launcher_of = kind.run.fget

    def run(kernel: Any) -> Any:
        launcher = launcher_of(kernel)
        watched = kernel.__dict__.get(_ATTRIBUTE)
        if watched is None or watched.launcher is not launcher:
            watched = kernel.__dict__[_ATTRIBUTE] = WatchedLauncher(launches, kernel, launcher)
        return watched

    kind.run = property(run, doc=kind.run.__doc__)


class WatchedLauncher:
    """Stands for the launcher of a kernel, and tells of each launch."""

    def __init__(self, launches: Launches, kernel: Any, launcher: Callable[..., Any]) -> None:
        self.launcher = launcher
        self._launches = launches
        self._kernel = kernel
        self._uses: KernelUses | None = None
        self._places: tuple[list[int], list[int]] | bool | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.launcher, name)

    def __call__(self, *args: Any) -> Any:
        """Launch the kernel, then tell."""
        return self._launches.launch(self, self.launcher, args, self._tell)

    def _tell(self, args: tuple[Any, ...]) -> None:
        kernel = self._kernel
        if self._places is None:
            self._places = _places(kernel.src.signature)
        if isinstance(self._places, tuple):
            pointers = [args[i] for i in self._places[0]]
            numbers = [args[i] for i in self._places[1]]
        else:
            found: list[tuple[str, Any]] = []
            numbers = []
            _sort(kernel.src.signature.items(), args[_ARGUMENTS:], found, numbers)
            pointers = [value for _, value in found]
        if self._uses is None:
            self._uses = self._find_uses(args)
        self._launches.report(self._uses, args[:4], pointers, numbers)

    def _find_uses(self, args: tuple[Any, ...]) -> KernelUses:
        kernel = self._kernel
        found: list[tuple[str, Any]] = []
        _sort(kernel.src.signature.items(), args[_ARGUMENTS:], found, [])
        names = [name for name, _ in found]
        text = kernel.asm.get("ttir")
        return from_text(kernel.name, names, text) or unknown(kernel.name, names)


def _places(signature: dict[Any, Any]) -> tuple[list[int], list[int]] | bool:
    """Where a launcher finds the kernel's pointers and its numbers among its arguments; True where
    some of them stand for several, and have to be sorted out each time.
    """
    kinds = list(enumerate(signature.values(), _ARGUMENTS))
    if any(isinstance(kind, tuple) or kind.startswith("tensordesc") for _, kind in kinds):
        return True
    pointers = [i for i, kind in kinds if kind.startswith("*")]
    return pointers, [i for i, kind in kinds if not kind.startswith(("*", "constexpr"))]


def _sort(
    signature: Iterable[tuple[Any, Any]],
    values: Iterable[Any],
    pointers: list[tuple[str, Any]],
    numbers: list[object],
) -> None:
    """Tell arguments that are pointers or descriptors, with their names, from all others.

    The type of an argument is a text (``*fp32``, ``i32``, ``tensordesc<...>``, ``constexpr``), or
    of a tuple, a tuple of them. A descriptor goes with its sizes and strides, and a constant is not
    handed over at all.
    """
    for (name, kind), value in zip(signature, values):
        if isinstance(kind, tuple):
            parts = ((f"{name}[{i}]", part) for i, part in enumerate(kind))
            _sort(parts, value, pointers, numbers)
        elif kind.startswith("*"):
            pointers.append((str(name), value))
        elif kind.startswith("tensordesc"):
            pointers.append((str(name), value))
            numbers += [*value.shape, *value.strides]
        elif kind != "constexpr":
            numbers.append(value)

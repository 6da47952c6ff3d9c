"""What a compiled kernel does to the memory behind its pointers, and with which of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamsan.model.records import Confidence, Mode
from streamsan.record.kernels.extents import Extents, Grid, Touch, whole
from streamsan.record.kernels.flow import uses
from streamsan.record.kernels.ttir import Function, NotUnderstoodError, read

_LIKELY, _POSSIBLE = int(Confidence.LIKELY), int(Confidence.POSSIBLE)


class Parameter(NamedTuple):
    """A pointer parameter: its name, access mode (0: unused), and how sure we are of that."""

    name: str
    mode: int
    confidence: int


@dataclass(frozen=True, slots=True)
class KernelUses:
    """What a kernel does through its pointer `parameters`, in order; `elsewhere`, whether it also
    reaches memory by addresses that it computes or reads. `extents` knows of single launches.
    `name` is what reports call its launches.
    """

    name: str
    parameters: tuple[Parameter, ...]
    elsewhere: bool = False
    extents: Extents | None = None

    def touches(self, grid: Grid, numbers: Sequence[object]) -> Sequence[Touch]:
        """What a launch touches; `numbers` are its arguments that are no pointers, in order."""
        if self.extents is None:
            return whole([parameter.mode for parameter in self.parameters])
        return self.extents.of(grid, numbers)


def unknown(kernel: str, names: Sequence[str]) -> KernelUses:
    """Nothing is known of a kernel: each of the pointers of these names may be read and written."""
    both = int(Mode.READ_WRITE)
    return _named(kernel, [Parameter(name, both, _POSSIBLE) for name in names])


def from_text(kernel: str, names: Sequence[str], text: str | None) -> KernelUses | None:
    """What the intermediate code of a kernel says; `names` are those of its pointer parameters.

    None where there is no text, or it cannot be read, or it is not about these parameters.
    """
    if not text:
        return None
    try:
        return from_functions(kernel, names, read(text))
    except (NotUnderstoodError, RecursionError):
        return None


def from_functions(
    kernel: str, names: Sequence[str], functions: Sequence[Function]
) -> KernelUses | None:
    """The same, of code that has been read. Raises NotUnderstoodError and RecursionError."""
    found = uses(functions)
    if len(found.parameters) != len(names):
        return None
    parameters = [
        Parameter(name, use.mode, _LIKELY if use.known else _POSSIBLE)
        for name, use in zip(names, found.parameters)
    ]
    return _named(kernel, parameters, found.elsewhere, Extents(functions, found))


def from_names(kernel: str, names: Sequence[str], mutated: Sequence[str]) -> KernelUses:
    """What the names of an Inductor kernel's parameters say: ``in_ptr0``, ``out_ptr1``,
    ``in_out_ptr0``; `mutated` are those that the compiler says are changed besides.
    """
    found = []
    for name in names:
        if name.startswith("out_ptr"):
            mode = int(Mode.READ_WRITE if name in mutated else Mode.WRITE)
        elif name.startswith("in_ptr"):
            mode = int(Mode.READ_WRITE if name in mutated else Mode.READ)
        else:
            mode = int(Mode.READ_WRITE)
        known = name.startswith(("in_ptr", "out_ptr", "in_out_ptr")) or name in mutated
        found.append(Parameter(name, mode, _LIKELY if known else _POSSIBLE))
    return _named(kernel, found)


def _named(
    kernel: str,
    parameters: Sequence[Parameter],
    elsewhere: bool = False,
    extents: Extents | None = None,
) -> KernelUses:
    return KernelUses(f"triton::{kernel}", tuple(parameters), elsewhere, extents)

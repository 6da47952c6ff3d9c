"""The accesses of a kernel that is known by its parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from streamsan.model import records as r
from streamsan.model.extent import canonical
from streamsan.record.cupti._arrays import Argument, Array, Parameter, arguments

Find = Callable[[int], "tuple[int, int, int] | None"]
"""The address space, start and size of the live block that holds an address."""

Given = Callable[[int], "Array | None"]
"""The array at an address, where the caller of the kernel has told of one."""

_GUESS = int(r.Confidence.POSSIBLE)
_UPDATE, _READ = int(r.Mode.READ_WRITE), int(r.Mode.READ)


def touched(
    parameters: Sequence[Parameter],
    outputs: int | None,
    device: int,
    find: Find,
    given: Given,
    constant: Collection[int] = (),
) -> list[r.Access]:
    """What a kernel on `device` may read and write.

    An array has its own bytes, any other pointer the whole of its block; one into no block, those
    of the array that was `given` there. Where the library says what its kernel does, it writes as
    many arrays as `outputs`, the last ones, and reads those before: then these accesses are
    ``likely``. All others are ``possible``, and read and write, or read through the parameters of
    the numbers `constant`.
    """
    found: dict[tuple[int, int, int, tuple[int, ...]], r.Access] = {}
    known = list(arguments(parameters))
    inputs = sum(argument.array is not None for argument in known) - (outputs or 0)
    for argument in known:
        mode, sure = _READ if argument.number in constant else _UPDATE, _GUESS
        if outputs is not None and argument.array is not None:
            sure = int(r.Confidence.LIKELY)
            mode = int(r.Mode.READ if inputs > 0 else r.Mode.WRITE)
            inputs -= 1
        access = _access(argument, mode, sure, device, find, given)
        if access is not None:
            key = access.space, access.address, access.run, access.sizes
            found[key] = _joined(found.get(key), access)
    return list(found.values())


def _joined(known: r.Access | None, access: r.Access) -> r.Access:
    """The same bytes through two parameters are one access."""
    if known is None:
        return access
    return r.Access(
        *(access.space, access.address, access.run, access.sizes, access.strides),
        known.mode | access.mode,
        known.argument,
        min(known.confidence, access.confidence),
    )


def _access(
    argument: Argument, mode: int, sure: int, device: int, find: Find, given: Given
) -> r.Access | None:
    """One access, or None: of a pointer into no known block, or of an array without bytes."""
    block, name = find(argument.address), f"parameter {argument.number}"
    array = argument.array
    if array is None and block is None:
        array = given(argument.address)
    if array is not None:
        extent = array_extent(array)
        if extent is None:
            return None
        return r.Access(device if block is None else block[0], *extent, mode, name, sure)
    if block is None:
        return None
    return r.Access(*block, (), (), mode, name, sure)


def array_extent(array: Array) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    """The bytes of an array. Without its item size, the least step between two items is taken."""
    if 0 in array.shape:
        return None
    pairs = [(size, step) for size, step in zip(array.shape, array.strides) if size > 1 and step]
    start = array.address + sum((size - 1) * step for size, step in pairs if step < 0)
    steps = [abs(step) for _, step in pairs]
    item = array.item or min([*steps, *(s for s in map(abs, array.strides) if s)], default=1)
    if any(step % item for step in steps):
        item = 1
    sizes = tuple(size for size, _ in pairs)
    return canonical(start, item, sizes, tuple(step // item for step in steps))

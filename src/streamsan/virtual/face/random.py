"""Random numbers of the virtual devices: a seed and an offset, drawn when work is enqueued.

Each operator takes the next offset of its device's generator and computes with a stream of its
own, so the order in which work runs changes nothing. CUDA's Philox generators count the same way
(ATen/cuda/CUDAGeneratorImpl.h); the numbers differ from theirs, and from those of CPU tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_MASK = (1 << 64) - 1
_STEP = 4  # offsets one operator uses up, as a CUDA kernel does at the least


def _mix(value: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): neighbours become unlike."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


_known: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Virtual generators by their C++ object: operators get to see another Python object of it."""


def virtual_generator(generator: Any) -> Generator | None:
    """The virtual generator that an operator's argument stands for, or None."""
    return None if generator is None else _known.get(generator._cdata)


def refuse_virtual(kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError where an operator of the host is given a device's generator."""
    if virtual_generator(kwargs.get("generator")) is not None:
        raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")


class Generator(torch.Generator):
    """``torch.Generator`` of a virtual device; underneath, a CPU generator that is never used."""

    def __new__(cls, device: Any = "cuda", **_: Any) -> Generator:
        """Make the CPU generator below."""
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = "cuda") -> None:
        self._device = torch.device(device)
        _known[self._cdata] = self  # type: ignore[attr-defined]
        self._seed = 0
        self._offset = 0

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device it belongs to."""
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Start over from `seed`."""
        self._seed, self._offset = int(seed) & _MASK, 0
        return self

    def seed(self) -> int:
        """Start over from a seed of the operating system's, and return it."""
        self.manual_seed(torch._C.Generator("cpu").seed())
        return self._seed

    def initial_seed(self) -> int:
        """The seed it started from."""
        return self._seed

    def get_offset(self) -> int:
        """How far it has come."""
        return self._offset

    def set_offset(self, offset: int) -> Generator:
        """Go to `offset`."""
        self._offset = int(offset)
        return self

    def get_state(self) -> torch.Tensor:
        """Seed and offset as 16 bytes, like a CUDA generator's."""
        raw = (self._seed | self._offset << 64).to_bytes(16, "little")
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> Generator:
        """Take over what `get_state` gave. Raises RuntimeError for a state of another kind."""
        if new_state.numel() != 16:
            raise RuntimeError("RNG state is wrong size")
        raw = int.from_bytes(bytes(new_state.to(torch.uint8).tolist()), "little")
        self._seed, self._offset = raw & _MASK, raw >> 64
        return self

    def clone_state(self) -> Generator:
        """A generator at the same point."""
        other = Generator(self._device)
        other._seed, other._offset = self._seed, self._offset
        return other

    def draw(self) -> int:
        """The seed of the next operator."""
        seed = _mix(_mix(self._seed) ^ self._offset)
        self._offset += _STEP
        return seed & (_MASK >> 1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch's CPU kernels draw from `seed`; the host's own generator is left as it was."""
    host = torch.default_generator
    state = host.get_state()
    host.manual_seed(seed)
    try:
        yield
    finally:
        host.set_state(state)


def with_seed(function: Callable[..., Any], seed: Callable[[], int]) -> Callable[..., Any]:
    """`function`, drawing from the seed that `seed` gives whenever it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with seeded(seed()):
            return function(*args, **kwargs)

    return call

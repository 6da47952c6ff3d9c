"""Blocks of device and pinned memory on a CUDA machine, as far as torch shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record import _core
from streamsan.record._observer import Observer
from streamsan.record._portable import Born, LiveBlocks, Touch
from streamsan.record.cuda._pinned import Pinned
from streamsan.record.cuda._streams import Streams, raw_handle
from streamsan.record.cuda._untraced import Untraced
from streamsan.virtual.face.nodes import current_node
from streamsan.virtual.memory import PINNED

if TYPE_CHECKING:
    from streamsan.record._arena import Arena
    from streamsan.record.cuda._nccl_flights import Flight


PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes whose objects have memory of their own."""


def has_bytes(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own: fake tensors, those that wrap others, and zeros that
    autograd has not made real, have none.
    """
    if type(tensor) in PLAIN and not tensor._is_zerotensor():
        return True
    try:
        storage = tensor.untyped_storage()
        if storage.device.type == "meta":  # to ask for its address would warn
            return False
        return storage.data_ptr() != 0 or tensor.numel() == 0
    except (NotImplementedError, RuntimeError):
        return False


class Blocks:
    """Live device blocks, and pinned blocks."""

    def __init__(self, observer: Observer, streams: Streams, arena: Arena | None = None) -> None:
        self._observer = observer
        self._streams = streams
        self._arena = arena
        self._device: LiveBlocks = _core.LiveBlocks()
        self.pinned = Pinned(observer)
        self.allocator = "caching" if arena is None else arena.name
        self.untraced: Untraced | None = None
        """What follows blocks that the allocator tells nothing of, where it does not."""
        self.in_flight: dict[int, dict[int, Flight]] = {}
        """By block: collectives that nobody has waited for, by their streams."""

    # -- device memory ----------------------------------------------------------------------------

    def allocated(self, address: int, owner: int, thread: int, stack: int) -> Born:
        """The allocator handed out a block for a stream."""
        capture = self._streams.capture_of(owner)
        graph = r.NONE if capture is None else capture.number
        backward = current_node() is not None
        born: Born = _core.Born(owner, thread, stack, graph, backward)
        self._device[address] = born
        return born

    def touching(self, touch: Touch) -> _core.Accesses:
        """What tensors touch; `touch` says it of one, slowly, and reports its block."""
        always_seen = self._arena is not None
        known = self.pinned.known, self._device
        return _core.accesses(touch, PLAIN, *known, self.seen, always_seen)

    @property
    def by_address(self) -> LiveBlocks:
        """Live device blocks."""
        return self._device

    def take(self, address: int) -> Born | None:
        """A block went back to the allocator: the block, if it has been reported."""
        born = self._device.pop(address)
        return born if born is not None and born.number != r.NONE else None

    def follow(self, untraced: Untraced | None) -> None:
        """Blocks belong to an allocator that torch's GPU trace does not show, or to its own."""
        self.untraced = untraced
        self.allocator = "caching" if untraced is None else untraced.allocator

    def _shown(self, untraced: Untraced, storage: torch.UntypedStorage, device: int) -> Born:
        """A block is there that the allocator told nothing of: it was handed out just now."""
        owner = r.NONE if untraced.unknown else self._streams.current(device)
        thread = self._observer.thread()
        born = self.allocated(storage.data_ptr(), owner, thread, self._observer.stack())
        untraced.follow(storage, born)
        return born

    def left(self, address: int) -> None:
        """A storage has moved elsewhere, which an allocator that tells nothing does not tell."""
        born = self._device.get(address)
        if born is not None and self.untraced is not None:
            self.vanished(address, born)

    def vanished(self, address: int, born: Born) -> None:
        """The storage of such a block is no more."""
        if self._device.get(address) is born:
            self._device.pop(address)
            thread, stack = self._observer.thread(), self._observer.stack()
            if born.owner == r.NONE:  # only the program knows what reuses it, and is trusted
                for stream in self._streams.of_device(born.device):
                    self._observer.emit(r.RecordStream(born.number, stream, thread, stack, False))
            self.give_up(born, thread, stack)

    def give_up(self, born: Born, thread: int, stack: int) -> None:
        """Report that a block was freed; collectives that nobody waited for are done by then."""
        for stream in self.in_flight.pop(born.number, ()):
            self._observer.emit(r.RecordStream(born.number, stream, thread, stack, False))
        self._observer.emit(r.Free(born.number, thread, stack))

    def record_block(self, number: int, stream: int) -> None:
        """Torch has the allocator note that a stream uses a device block (M2)."""
        thread, stack = self._observer.thread(), self._observer.stack()
        self._observer.emit(r.RecordStream(number, stream, thread, stack, False))

    def number(self, tensor: torch.Tensor) -> int:
        """Number of the device block that a tensor lies in, or NONE."""
        born = self._device.get(tensor.untyped_storage().data_ptr())
        return r.NONE if born is None else born.number

    def seen(self, tensor: torch.Tensor, owner: int) -> None:
        """A tensor is about to be reported: report its block first, if that is still to do."""
        if owner != PINNED:
            self.seen_storage(tensor.untyped_storage(), owner)

    def seen_storage(self, storage: torch.UntypedStorage, owner: int) -> None:
        """The same, for a storage on the device `owner`."""
        address = storage.data_ptr()
        if self._arena is not None and self._arena.device(owner).allocator.watches_uses:
            self._arena.used(address, torch._C._cuda_getCurrentRawStream(owner))
        born = self._device.get(address)
        if born is None and self.untraced is not None and storage.resizable():
            born = self._shown(self.untraced, storage, owner)
        if born is not None and born.number == r.NONE:
            born.number = self._observer.next_number()
            born.device, born.size = owner, storage.nbytes()
            self._observer.emit(
                r.Alloc(
                    born.number, owner, address, born.size, born.owner, born.thread, born.stack,
                    self.allocator, born.graph,
                )
            )  # fmt: skip

    def engine_records(self, tensor: torch.Tensor, stream: int) -> None:
        """The engine calls ``record_stream`` for gradients that a node on another stream takes
        (input_buffer.cpp), below what the dispatcher shows: said here for it. What a backward pass
        allocates and a node of another stream uses is taken for such a gradient.
        """
        born = self._device.get(tensor.untyped_storage().data_ptr())
        if born is not None and born.backward and stream not in born.users:
            born.users.add(stream)
            self.record_stream(tensor, stream, explicit=False)

    # -- pinned memory ----------------------------------------------------------------------------

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor lies in pinned memory that is known."""
        return self.pinned.block_of(tensor) != r.NONE

    # -- both -------------------------------------------------------------------------------------

    def find(self, address: int) -> tuple[int, int, int] | None:
        """The address space, start and size of the block that holds a byte, if one is known.

        Pointers mostly point to a block's first byte; others are looked for among all blocks.
        """
        born = self._device.get(address)
        if born is not None and born.size:
            return born.device, address, born.size
        for start, born in list(self._device.items()):
            if start < address < start + born.size:
                return born.device, start, born.size
        return self.pinned.find(address)

    def record_torch_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """The user called ``record_stream`` (M2)."""
        self.record_stream(tensor, self._streams.of_handle(raw_handle(stream)), explicit=True)

    def record_stream(self, tensor: torch.Tensor, stream: int, explicit: bool) -> None:
        """The allocator is told that a stream uses a tensor's block (M2, M5)."""
        address = tensor.untyped_storage().data_ptr()
        if tensor.is_cuda:
            self.seen(tensor, tensor.get_device())
            born = self._device.get(address)
            number = born.number if born is not None else r.NONE
        else:
            number = self.pinned.block_of(tensor)
        if number != r.NONE:
            self._observer.emit(
                r.RecordStream(
                    number, stream, self._observer.thread(), self._observer.stack(), explicit
                )
            )

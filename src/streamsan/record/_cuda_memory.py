"""Blocks of device and pinned memory on a CUDA machine, as far as torch shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record._cuda_streams import Streams, raw_handle
from streamsan.record._observer import Observer
from streamsan.virtual.face.nodes import current_node
from streamsan.virtual.memory import PINNED

if TYPE_CHECKING:
    from streamsan.record._arena import Arena


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def has_bytes(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own: fake tensors and those that wrap others have none."""
    if type(tensor) in _PLAIN:
        return True
    try:
        storage = tensor.untyped_storage()
        if storage.device.type == "meta":  # to ask for its address would warn
            return False
        return storage.data_ptr() != 0 or tensor.numel() == 0
    except (NotImplementedError, RuntimeError):
        return False


class Born:
    """A device block that the allocator handed out; its size is known once a tensor shows it."""

    __slots__ = ("backward", "graph", "number", "owner", "stack", "thread", "users")

    def __init__(self, owner: int, thread: int, stack: int, graph: int) -> None:
        self.owner = owner
        self.thread = thread
        self.stack = stack
        self.graph = graph
        self.number = r.NONE
        self.backward = current_node() is not None
        self.users: set[int] = {owner}


class Blocks:
    """Live device blocks by address, and pinned blocks by the address of their storage."""

    def __init__(self, observer: Observer, streams: Streams, arena: Arena | None = None) -> None:
        self._observer = observer
        self._streams = streams
        self._arena = arena
        self._device: dict[int, Born] = {}
        self._pinned: dict[int, tuple[int, int]] = {}

    # -- device memory ----------------------------------------------------------------------------

    def allocated(self, address: int, owner: int, thread: int, stack: int) -> None:
        """The allocator handed out a block for a stream."""
        capture = self._streams.capture_of(owner)
        graph = r.NONE if capture is None else capture.number
        self._device[address] = Born(owner, thread, stack, graph)

    def take(self, address: int) -> Born | None:
        """A block went back to the allocator: the block, if it has been reported."""
        born = self._device.pop(address, None)
        return born if born is not None and born.number != r.NONE else None

    def seen(self, tensor: torch.Tensor, owner: int) -> None:
        """A tensor is about to be reported: report its block first, if that is still to do."""
        if owner == PINNED:
            return
        storage = tensor.untyped_storage()
        if self._arena is not None and self._arena.device(owner).allocator.watches_uses:
            self._arena.used(storage.data_ptr(), torch._C._cuda_getCurrentRawStream(owner))
        born = self._device.get(storage.data_ptr())
        if born is not None and born.number == r.NONE:
            born.number = self._observer.next_number()
            self._observer.emit(
                r.Alloc(
                    born.number,
                    owner,
                    storage.data_ptr(),
                    storage.nbytes(),
                    born.owner,
                    born.thread,
                    born.stack,
                    "caching" if self._arena is None else self._arena.name,
                    born.graph,
                )
            )

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
        if not self._pinned or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return False
        storage = tensor.untyped_storage()
        known = self._pinned.get(storage.data_ptr())
        return known is not None and known[1] >= storage.nbytes() > 0

    def maybe_pinned(self, tensor: torch.Tensor, kwargs: dict[str, Any]) -> None:
        """A new host tensor: note it where it was asked for in pinned memory."""
        if kwargs.get("pin_memory"):
            self.register(tensor)
        elif tensor.device.type == "cpu" and tensor.layout is torch.strided:
            self._forget(tensor.untyped_storage().data_ptr())

    def check_pinned(self, tensor: torch.Tensor) -> None:
        """A host tensor is copied from or to a device: ask the driver what it is."""
        if tensor.layout is not torch.strided or self.is_pinned(tensor):
            return
        if tensor.numel() and tensor.is_pinned():
            self.register(tensor)
        else:
            self._forget(tensor.untyped_storage().data_ptr())

    def _forget(self, address: int) -> None:
        known = self._pinned.pop(address, None)
        if known is not None:
            self._observer.emit(r.Free(known[0], self._observer.thread(), r.NONE))

    def register(self, tensor: torch.Tensor) -> None:
        """A tensor in pinned memory; what was at its address before is gone."""
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size:
            return
        self._forget(address)
        number = self._observer.next_number()
        self._pinned[address] = (number, size)
        self._observer.emit(
            r.Alloc(
                number,
                r.HOST,
                address,
                size,
                r.NONE,
                self._observer.thread(),
                self._observer.stack(),
                "pinned",
            )
        )

    # -- both -------------------------------------------------------------------------------------

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
            number = self._pinned.get(address, (r.NONE, 0))[0]
        if number != r.NONE:
            self._observer.emit(
                r.RecordStream(
                    number, stream, self._observer.thread(), self._observer.stack(), explicit
                )
            )

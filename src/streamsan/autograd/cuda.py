"""The CUDA devices of this process, as the engine needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from streamsan.autograd.machine import Streams
from streamsan.autograd.parts import parts
from streamsan.autograd.unseen import untransformed

_SCRATCH = -1  # priority of the pool that few programs take their streams from


class CudaMachine:
    """Real devices, through ``torch.cuda``."""

    places = True

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        # Only CUDA builds have it.
        self._in_use: Callable[[int], bool] = getattr(torch._C, "_cuda_hasPrimaryContext", bool)

    def begins(self) -> bool:
        """Whether CUDA is in use."""
        return bool(torch.cuda.is_initialized())

    def capturing(self) -> bool:
        """Whether the current stream is being captured into a graph."""
        return bool(torch.cuda.is_current_stream_capturing())

    def devices(self) -> Sequence[int]:
        """The devices that have a context: the only ones that torch's engine looks after."""
        count = torch.cuda.device_count()
        return [n for n in range(count) if self._in_use(n)]

    def default(self, device: int) -> torch.cuda.Stream:
        """The default stream of a device."""
        return torch.cuda.default_stream(device)

    def device(self, stream: torch.cuda.Stream) -> int:
        """The device of a stream."""
        return int(stream.device_index)

    def current(self) -> Streams:
        """The current stream of each device in use."""
        return {device: torch.cuda.current_stream(device) for device in self.devices()}

    def make_current(self, streams: Streams) -> None:
        """Make these streams current, one for each device in use."""
        before = torch.cuda.current_device()
        for stream in streams.values():
            torch.cuda.set_stream(stream)
        torch.cuda.set_device(before)

    def record(self, stream: torch.cuda.Stream) -> Any:
        """A new event on a stream."""
        return stream.record_event()

    def wait(self, stream: torch.cuda.Stream, event: Any) -> None:
        """Later work of the stream waits for the event."""
        stream.wait_event(event)

    def owner(self, tensor: torch.Tensor) -> int:
        """The device of a tensor, or -1."""
        return tensor.get_device() if tensor.is_cuda else -1

    def record_stream(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """The allocator keeps the tensor's block until the stream is done with it (M2)."""
        with untransformed():  # torch.func.grad takes it for a write
            for part in parts(tensor):
                part.record_stream(stream)

    def name(self, stream: torch.cuda.Stream) -> str:
        """``default``, or a number by order of appearance; with the device where there are many."""
        key = self.device(stream), int(stream.cuda_stream)
        if key not in self._names:
            default = stream == torch.cuda.default_stream(key[0])
            others = sum(not known.startswith("default") for known in self._names.values())
            name = "default" if default else f"stream {others + 1}"
            many = torch.cuda.device_count() > 1
            self._names[key] = f"{name} of cuda:{key[0]}" if many else name
        return self._names[key]

    def scratch(self, taken: Streams) -> Streams:
        """Streams that the program is unlikely to use: of the pool with high priority.

        Each pass gets other ones, as one that was used before would carry its waits along. A pool
        has 32 streams, so after that many passes they come round again.
        """
        found: dict[int, Any] = {}
        for device in self.devices():
            stream = torch.cuda.Stream(device, priority=_SCRATCH)
            if stream == taken.get(device):
                stream = torch.cuda.Stream(device, priority=_SCRATCH)
            found[device] = stream
        return found

"""Host memory that the device reaches: what the dispatcher does not show of its use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record.cuda._memory import PLAIN
from streamsan.record.cuda._methods import listen
from streamsan.virtual.memory import PINNED

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def install_host(recorder: CudaRecorder) -> None:
    """Listen to what reads, lends and pins host memory, for the rest of the process."""
    host = _Host(recorder)
    listen(recorder, torch.Tensor, "tolist", host.listed)
    listen(recorder, torch._tensor_str, "_str", host.printed)
    listen(recorder, torch.Tensor, "numpy", host.lent)
    listen(recorder, torch.Tensor, "pin_memory", host.copied)
    core: Any = torch._C
    runtime = core._cudart  # torch.cuda.cudart() would start CUDA
    listen(recorder, runtime, "cudaHostRegister", host.registered)
    listen(recorder, runtime, "cudaHostUnregister", host.unregistered)


class _Host:
    """Turns these calls into accesses of the calling thread."""

    def __init__(self, recorder: CudaRecorder) -> None:
        self._recorder = recorder

    def listed(self, _: Any, tensor: torch.Tensor) -> None:
        """A tensor's values were made into Python numbers."""
        accesses = self._read(tensor)
        if accesses:
            thread = self._recorder.observer.thread()
            self._recorder.operation(int(r.OpKind.HOST), "Tensor.tolist", thread, accesses)

    def printed(self, _: str, tensor: torch.Tensor, *, tensor_contents: str | None = None) -> None:
        """A tensor's values were made into text, with all modes switched off."""
        if tensor_contents is not None or type(tensor) not in PLAIN:
            return
        accesses = [] if self._recorder.sees_below_modes else self._read(tensor)
        if accesses:
            thread = self._recorder.observer.thread()
            self._recorder.operation(int(r.OpKind.HOST), "Tensor.__repr__", thread, accesses)

    def lent(self, array: Any, tensor: torch.Tensor, **_: Any) -> None:
        """NumPy shares a tensor's memory."""
        for access in self._read(tensor):
            self._recorder.exports.add(array, access)

    def copied(self, pinned: torch.Tensor, tensor: torch.Tensor, *_: Any, **__: Any) -> None:
        """A tensor was copied to pinned memory, unless it lies there."""
        if pinned is not tensor and not self._recorder.blocks.is_pinned(pinned):
            self._recorder.blocks.pinned.add(pinned)

    def registered(self, status: Any, address: int, size: int, *_: Any) -> None:
        """The program had CUDA pin memory of its own."""
        if int(status) == 0:
            self._recorder.blocks.pinned.add_range(address, size, "registered")

    def unregistered(self, status: Any, address: int) -> None:
        """It is ordinary memory again."""
        if int(status) == 0:
            self._recorder.blocks.pinned.drop(address, 1)

    def _read(self, tensor: torch.Tensor) -> list[r.Access]:
        """The read of a tensor, if that lies in pinned memory."""
        recorder = self._recorder
        if tensor.device.type != "cpu" or recorder.owner(tensor) != PINNED:
            return []
        return recorder.accesses([(tensor, PINNED, int(r.Mode.READ), "self")])

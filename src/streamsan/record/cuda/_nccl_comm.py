"""``torch.cuda.comm`` on CUDA devices, and so ``torch.nn.parallel``: what it leaves to NCCL.

Scatter, gather and sums are made of operators, which the dispatcher shows, or of
``torch.cuda.nccl``. Broadcasts go by NCCL past both, on the current stream of each device, where
all of them are devices of their own, and by operators where they are not
(torch/csrc/cuda/comm.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda import nccl

from streamsan.model.records import Mode
from streamsan.record.cuda._methods import listen
from streamsan.record.cuda._nccl_raw import report_part

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

Tensors = Sequence[torch.Tensor]


def install_comm(recorder: CudaRecorder) -> None:
    """Watch the calls, for the rest of the process. Nothing where torch was built without NCCL."""
    module: Any = torch._C
    if not hasattr(module, "_nccl_broadcast"):
        return

    def broadcast(result: Tensors, tensor: torch.Tensor, *_: Any) -> None:
        others = [copy for copy in result if copy.device != tensor.device]
        if nccl.is_available([tensor, *others]):
            _report(recorder, [tensor], [[copy] for copy in others])

    def broadcast_out(_: Any, tensor: torch.Tensor, out: Tensors) -> None:
        if nccl.is_available([tensor, *out]):
            _report(recorder, [tensor], [[copy] for copy in out])

    def broadcast_coalesced(result: Sequence[Tensors], tensors: Tensors, *_: Any) -> None:
        """NCCL sends tensors of one type together, from a copy where there are several."""
        if not tensors:
            return
        others = [copies for copies in result if copies[0].device != tensors[0].device]
        if len({copies[0].device for copies in others}) == len(others):
            _report(recorder, tensors, others)

    listen(recorder, module, "_broadcast", broadcast)
    listen(recorder, module, "_broadcast_out", broadcast_out)
    listen(recorder, module, "_broadcast_coalesced", broadcast_coalesced)


def _report(recorder: CudaRecorder, sources: Tensors, targets: Sequence[Tensors]) -> None:
    """One device sends tensors, and others receive them: nothing where there are no others."""
    if targets:
        report_part(recorder, "broadcast", [(t, int(Mode.READ), "input") for t in sources])
    for copies in targets:
        report_part(recorder, "broadcast", [(t, int(Mode.WRITE), "output") for t in copies])

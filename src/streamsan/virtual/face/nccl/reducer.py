"""The reducer of DistributedDataParallel. It is C++, and device tensors are the host's there."""

from __future__ import annotations

from typing import Any

import torch

from streamsan.virtual.face import current


class Reducer(torch._C._distributed_c10d.Reducer):
    """torch's, which makes its buckets on the device of the parameters, and its indices on the
    host.
    """

    def __init__(self, params: list[torch.Tensor], *args: Any, **kwargs: Any) -> None:
        self._home = current.face().tensors.owner(params[0])
        with current.face().at_home(self._home):
            super().__init__(params, *args, **kwargs)

    def _rebuild_buckets(self) -> bool:
        with current.face().at_home(self._home):
            return super()._rebuild_buckets()

"""Methods of ``torch.UntypedStorage`` that work below the dispatcher."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from streamsan.record.cuda._methods import listen

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_SHARED = "what other processes do with device memory that is shared with them"


def install_storages(recorder: CudaRecorder) -> None:
    """Listen to storages, for the rest of the process."""
    kind: Any = torch.UntypedStorage
    resize = kind.resize_

    @functools.wraps(resize)
    def resize_(self: torch.UntypedStorage, *args: Any) -> Any:
        watched = recorder.enabled and recorder.observer.recording
        if not watched or self.device.type != "cuda":
            return resize(self, *args)
        return recorder.resize("UntypedStorage.resize_", self, resize, (self, *args), {})

    kind.resize_ = resize_

    def shared(*_: Any, **__: Any) -> None:
        recorder.observer.note_once("blind-spot", _SHARED)

    for name in ("_share_cuda_", "_new_shared_cuda"):
        listen(recorder, kind, name, shared)

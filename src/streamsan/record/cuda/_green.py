"""Green contexts: parts of a device, each with streams and a default stream of its own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from streamsan.record.cuda._methods import listen, replace

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def install_green(recorder: CudaRecorder) -> None:
    """Listen to ``torch.cuda.green_contexts``, as far as torch is built with it.

    To enter and leave a context records events and waits for them, which torch's GPU trace shows.
    """
    kind = getattr(torch._C, "_CUDAGreenContext", None)
    if kind is None:
        return
    create, streams = kind.create, recorder.streams

    @functools.wraps(create)
    def made(*args: Any, **kwargs: Any) -> Any:
        context = create(*args, **kwargs)
        recorder._guarded(recorder.divide)
        return context

    replace(kind, "create", staticmethod(made))

    def born(stream: Any, _: Any) -> None:
        streams.define_external(stream.device_index, stream.cuda_stream)

    if hasattr(kind, "Stream"):
        listen(recorder, kind, "Stream", born)

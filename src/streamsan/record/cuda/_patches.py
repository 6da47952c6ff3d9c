"""The hooks of the CUDA recorder: torch's GPU trace, and methods it leaves out."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record.cuda._graphs import install_graphs
from streamsan.record.cuda._green import install_green
from streamsan.record.cuda._host import install_host
from streamsan.record.cuda._methods import listen
from streamsan.record.cuda._nccl_groups import install_collectives
from streamsan.record.cuda._queries import install_queries
from streamsan.record.cuda._storages import install_storages
from streamsan.record.cuda._trace import install_trace
from streamsan.tracebacks import hide_our_frames

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def install_patches(recorder: CudaRecorder) -> None:
    """Hook everything, for the rest of the process."""
    install_trace(recorder)
    install_queries(recorder)
    install_green(recorder)
    install_graphs(recorder)
    install_host(recorder)
    install_storages(recorder)
    _printing(recorder)
    _contexts(recorder)
    _backward(recorder)
    _marks(recorder)
    install_collectives(recorder)


def _printing(recorder: CudaRecorder) -> None:
    """Printing reads a tensor with all modes switched off, then waits for its stream (rule H1)."""
    module: Any = torch._tensor_str
    original = module._str

    def read(tensor: torch.Tensor) -> None:
        accesses = recorder.accesses([(tensor, tensor.get_device(), int(r.Mode.READ), "self")])
        if accesses:
            stream = recorder.streams.current(tensor.get_device())
            recorder.operation(int(r.OpKind.KERNEL), "Tensor.__repr__", stream, accesses)

    @functools.wraps(original)
    def text(self: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        watched = recorder.enabled and recorder.observer.recording
        if watched and tensor_contents is None and self.is_cuda:
            recorder._guarded(lambda: read(self))
        return str(original(self, tensor_contents=tensor_contents))

    module._str = text


def _marks(recorder: CudaRecorder) -> None:
    """``record_stream`` where the program has switched off modes, as FSDP does for it, ours too."""
    excluded, key = torch._C._dispatch_tls_is_dispatch_key_excluded, torch._C.DispatchKey.Python

    def marked(_: None, tensor: torch.Tensor, stream: Any) -> None:
        if excluded(key) and not recorder.sees_below_modes:
            recorder.blocks.record_torch_stream(tensor, stream)

    listen(recorder, torch.Tensor, "record_stream", marked)


def _contexts(recorder: CudaRecorder) -> None:
    """Stream contexts: which stream encloses which (kind R11)."""
    streams = recorder.streams
    kind: Any = torch.cuda.StreamContext
    enter, leave = kind.__enter__, kind.__exit__

    def entering(self: Any) -> Any:
        recorder._guarded(
            lambda: recorder.local.contexts.append(streams.current(torch.cuda.current_device()))
        )
        return enter(self)

    def leaving(self: Any, *exc_info: Any) -> Any:
        if recorder.local.contexts:
            recorder.local.contexts.pop()
        return leave(self, *exc_info)

    kind.__enter__, kind.__exit__ = entering, leaving


def _backward(recorder: CudaRecorder) -> None:
    """Rule T2: the engine's threads work for the thread that called backward, which waits."""
    engine = torch.autograd.graph._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        observer = recorder.observer
        recorder.callers.append((observer.thread(), observer.stack(), threading.get_ident()))
        try:
            return engine(*args, **kwargs)
        except BaseException as error:
            if recorder.keeps_errors:
                hide_our_frames(error)
            raise
        finally:
            recorder.callers.pop()

    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]

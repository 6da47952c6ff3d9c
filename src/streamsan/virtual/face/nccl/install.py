"""Making ``torch.distributed`` show an NCCL backend on the virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from streamsan.virtual.face import current
from streamsan.virtual.memory import NOWHERE


def install() -> None:
    """Put the backend, and what depends on it, in place. Nothing where torch has no distributed."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    from streamsan.virtual.face.nccl import batch_norm
    from streamsan.virtual.face.nccl.calls import ProcessGroupNCCL
    from streamsan.virtual.face.nccl.reducer import Reducer

    batch_norm.install()
    ProcessGroupNCCL.__module__ = distributed_c10d.__name__
    public: Any = torch.distributed
    module: Any = distributed_c10d
    for name, value in (
        ("ProcessGroupNCCL", ProcessGroupNCCL),
        ("batch_isend_irecv", batch_isend_irecv),
    ):
        setattr(module, name, value)
        setattr(public, name, value)
    native: Any = torch._C._distributed_c10d
    native.ProcessGroupNCCL = ProcessGroupNCCL
    for name in ("barrier", "monitored_barrier"):
        setattr(native.ProcessGroup, name, _of_the_host(getattr(native.ProcessGroup, name)))
    module._NCCL_AVAILABLE = True
    module.default_pg_nccl_timeout = public.constants.default_pg_timeout
    public.Reducer = Reducer
    public._register_comm_hook = _watching(public._register_comm_hook)
    public._verify_params_across_processes = _on_host(public._verify_params_across_processes)


def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
    """Messages issued as one. torch asks for its own type of group here, and ours is another."""
    from torch.distributed import distributed_c10d

    distributed_c10d._check_p2p_op_list(p2p_op_list)
    group = p2p_op_list[0].group or distributed_c10d._get_default_group()
    device = p2p_op_list[0].tensor.device
    if getattr(group._get_backend(device), "supports_coalescing", False):
        with distributed_c10d._coalescing_manager(group, device, async_ops=True) as manager:
            for op in p2p_op_list:
                _call(op)
        return manager.works  # type: ignore[no-any-return]
    return [work for work in map(_call, p2p_op_list) if work]


def _call(op: Any) -> Any:
    from torch.distributed import isend

    peer = "group_dst" if op.op is isend else "group_src"
    return op.op(op.tensor, group=op.group, tag=op.tag, **{peer: op.group_peer})


def _on_host(verify: Callable[..., Any]) -> Callable[..., Any]:
    """``_verify_params_across_processes``: it puts shapes into tensors of the parameters' device,
    which in C++ is the host.
    """

    @wraps(verify)
    def call(process_group: Any, *args: Any) -> Any:
        from streamsan.virtual.face.nccl.calls import ProcessGroupNCCL

        if isinstance(process_group, ProcessGroupNCCL):
            process_group = process_group.host_group()
        return verify(process_group, *args)

    return call


def _of_the_host(barrier: Callable[..., Any]) -> Callable[..., Any]:
    """A barrier of a group for host tensors: the tensor that C++ makes for it is of the host, also
    where the program used a device last. On a device the barrier would be put off.
    """

    @wraps(barrier)
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        current.face().local.last = NOWHERE
        return barrier(group, *args, **kwargs)

    return call


def _watching(register: Callable[..., Any]) -> Callable[..., Any]:
    """``_register_comm_hook``: the reducer waits in C++ for the future that a hook returns."""

    @wraps(register)
    def call(reducer: Any, state: Any, hook: Callable[..., Any]) -> Any:
        from streamsan.virtual.face.nccl.work import StreamFuture

        @wraps(hook)
        def watched(*args: Any) -> Any:
            future = hook(*args)
            if isinstance(future, StreamFuture):
                future.join_backward()
            return future

        return register(reducer, state, watched)

    return call

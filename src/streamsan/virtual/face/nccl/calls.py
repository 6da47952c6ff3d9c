"""``ProcessGroupNCCL`` of the virtual machine: the calls of ``torch.distributed`` as steps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import distributed_c10d

from streamsan.virtual.face import current
from streamsan.virtual.face.collective_ops import METHODS
from streamsan.virtual.face.nccl.group import Config, Group, Options, Tensors, is_blocking
from streamsan.virtual.face.nccl.overloads import in_all_forms
from streamsan.virtual.face.nccl.steps import Step, check_reduction


class ProcessGroupNCCL(Group):
    """The NCCL backend, and the process group around it, in one object."""

    Options = Options
    NCCLConfig = Config

    def _host(self, tensors: Tensors) -> Any:
        """The gloo group, where the tensors are the host's and the group has one for them.

        The reducer of DistributedDataParallel calls from C++, where device tensors are the host's:
        what it makes for itself on their device, and sends, may be a host tensor.
        """
        if not tensors or any(tensor.device.type != "cpu" for tensor in tensors):
            return None
        caller = sys._getframe(3).f_code.co_filename  # of what `in_all_forms` made
        if self._has_host_backend() or caller != distributed_c10d.__file__:
            return self._transport.host()
        return None

    def _each(self, tensor: torch.Tensor | None) -> list[torch.Tensor | None]:
        return [tensor] * self._size

    def _only(self, rank: int, tensor: torch.Tensor) -> list[torch.Tensor | None]:
        return [tensor if other == rank else None for other in range(self._size)]

    # -- collectives ------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        """``all_reduce``, in place."""
        if host := self._host(tensors):
            return host.allreduce(tensors, opts)
        return self._all_reduce("all_reduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """Several ``all_reduce`` as one."""
        return self._all_reduce("all_reduce_coalesced", tensors, opts)

    def _all_reduce(self, name: str, tensors: Tensors, opts: Any) -> Any:
        reduction = _reduction(opts)
        steps = [Step(self._each(t), self._each(t), reduction) for t in tensors]
        return self._issue(name, steps, list(tensors), opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        """``reduce`` to one rank."""
        if host := self._host(tensors):
            return host.reduce(tensors, opts)
        (tensor,) = tensors
        mine = self._rank == opts.rootRank
        receives = self._each(tensor if mine else None)
        step = Step(self._only(opts.rootRank, tensor), receives, _reduction(opts))
        return self._issue("reduce", [step], [tensor], opts)

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        """``broadcast`` from one rank."""
        if host := self._host(tensors):
            return host.broadcast(tensors, opts)
        (tensor,) = tensors
        if self._rank == opts.rootRank:
            step = Step(self._each(tensor), self._each(None))
        else:
            step = Step(self._each(None), self._only(opts.rootRank, tensor))
        return self._issue("broadcast", [step], [tensor], opts)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """``all_gather`` into a list of tensors."""
        if host := self._host(inputs):
            return host.allgather(outputs, inputs, opts)
        steps = [Step(self._each(i), list(o)) for o, i in zip(outputs, inputs)]
        return self._issue("all_gather", steps, [list(o) for o in outputs], opts)

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Any:
        """Several lists at once; `outputs` has one for each rank."""
        steps = [Step(self._each(i), [o[n] for o in outputs]) for n, i in enumerate(inputs)]
        return self._issue("all_gather_coalesced", steps, [list(o) for o in outputs], opts)

    def all_gather_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = None
    ) -> Any:
        """``all_gather_into_tensor``."""
        if host := self._host([source]):
            return host._allgather_base(output, source, opts)
        return self._gather_whole("all_gather_into_tensor", [output], [source], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        """Several ``all_gather_into_tensor`` as one."""
        return self._gather_whole("all_gather_into_tensor_coalesced", outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather_whole(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        self._check([*outputs, *inputs])
        steps = [Step(self._each(i), self._parts(o, i)) for o, i in zip(outputs, inputs)]
        return self._issue(name, steps, list(outputs), opts)

    def _parts(self, whole: torch.Tensor, part: torch.Tensor) -> list[torch.Tensor]:
        """A tensor cut into one part for each rank."""
        if whole.numel() != part.numel() * self._size:
            raise ValueError(
                "output tensor size must be equal to world_size times input tensor size"
            )
        with torch.no_grad():
            return list(whole.view(-1).split(max(part.numel(), 1)))

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Any:
        """``reduce_scatter`` from lists of tensors."""
        steps = [Step(list(i), self._each(o), _reduction(opts)) for o, i in zip(outputs, inputs)]
        return self._issue("reduce_scatter", steps, list(outputs), opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = None
    ) -> Any:
        """``reduce_scatter_tensor``."""
        return self._scatter_whole("reduce_scatter_tensor", [output], [source], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        """Several ``reduce_scatter_tensor`` as one."""
        return self._scatter_whole("reduce_scatter_tensor_coalesced", outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_whole(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        self._check([*outputs, *inputs])
        reduction = _reduction(opts)
        steps = [
            Step(self._parts(i, o), self._each(o.view(-1)), reduction)
            for o, i in zip(outputs, inputs)
        ]
        return self._issue(name, steps, list(outputs), opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """``all_to_all`` among lists of tensors."""
        return self._issue("all_to_all", [Step(list(inputs), list(outputs))], list(outputs), opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """``all_to_all_single``: the first dimension is cut, evenly where no sizes are given."""
        if host := self._host([source]):
            return host.alltoall_base(output, source, output_split_sizes, input_split_sizes, opts)
        with torch.no_grad():
            sends = source.split(list(input_split_sizes) or _even(source, self._size))
            receives = output.split(list(output_split_sizes) or _even(output, self._size))
        return self._issue("all_to_all_single", [Step(sends, receives)], [output], opts)

    alltoall_base = all_to_all_single

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Any:
        """``gather`` to one rank."""
        (tensor,) = inputs
        receives = list(outputs[0]) if self._rank == opts.rootRank else self._each(None)
        step = Step(self._only(opts.rootRank, tensor), receives)
        return self._issue("gather", [step], [list(o) for o in outputs], opts)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Any:
        """``scatter`` from one rank."""
        (tensor,) = outputs
        sends = list(inputs[0]) if self._rank == opts.rootRank else self._each(None)
        step = Step(sends, self._only(opts.rootRank, tensor))
        return self._issue("scatter", [step], [tensor], opts)

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> Any:
        """``send``; NCCL knows no tags."""
        (tensor,) = tensors
        step = Step(self._only(peer, tensor), self._each(None), message=True)
        return self._issue("send", [step], [tensor], peer=peer)

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> Any:
        """``recv``."""
        (tensor,) = tensors
        step = Step(self._each(None), self._only(peer, tensor), message=True)
        return self._issue("recv", [step], [tensor], peer=peer)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        """NCCL has to know whom it receives from."""
        raise RuntimeError("ProcessGroupNCCL does not support recv from any source")

    def barrier(self, opts: Any = None) -> Any:
        """``barrier``: a collective of no bytes, for which the host waits."""
        device = current.face().gpu.thread.device
        nothing = Step(self._each(None), self._each(None))
        return self._communicator.enqueue(
            "barrier", device, [nothing], [], barrier=True, blocking=is_blocking(opts)
        )

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Only gloo has one."""
        raise RuntimeError("ProcessGroupNCCL does not support monitoredBarrier")


for _name in METHODS.keys() & vars(ProcessGroupNCCL).keys():
    setattr(ProcessGroupNCCL, _name, in_all_forms(_name, vars(ProcessGroupNCCL)[_name]))


def _reduction(opts: Any) -> Any:
    reduction: Any = torch.distributed.ReduceOp.SUM if opts is None else opts.reduceOp
    check_reduction(reduction)
    return reduction


def _even(tensor: torch.Tensor, count: int) -> list[int]:
    if tensor.size(0) % count:
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    return [tensor.size(0) // count] * count

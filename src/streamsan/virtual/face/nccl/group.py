"""Process groups of the virtual machine: what they are, and how their collectives are issued."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from streamsan.virtual.face import current
from streamsan.virtual.face.nccl.communicator import GROUP, Communicator
from streamsan.virtual.face.nccl.steps import Step
from streamsan.virtual.face.nccl.transport import Transport
from streamsan.virtual.face.nccl.work import CollectiveWork

Tensors = Sequence[torch.Tensor]


class Options:
    """``ProcessGroupNCCL.Options``. Only the timeout means something here."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = timedelta(minutes=10)
        self.split_from: Any = None
        self.split_color = 0
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.config = Config()


class Config:
    """``ncclConfig_t``: takes every setting, and has no use for one."""


def is_blocking(opts: Any) -> bool:
    """Whether the options of a call ask for the blocking form (``async_op=False``)."""
    return not getattr(opts, "asyncOp", True)


_UNNAMED = "undefined"
"""What torch calls a group, and what it is for, before it has a name."""

_numbers = itertools.count()
"""Numbers of the groups of this process."""

_ProcessGroup: Any = torch._C._distributed_c10d.ProcessGroup


class Group(_ProcessGroup):  # type: ignore[misc]
    """What every process group is and has, and how its collectives are issued."""

    supports_splitting = False
    supports_coalescing = True
    supports_time_estimate = False
    supports_shrinking = False

    def __init__(
        self, store: Store, rank: int, size: int, options: Options | timedelta | None = None
    ) -> None:
        super().__init__(rank, size)
        self.options = options if isinstance(options, Options) else Options()
        if isinstance(options, timedelta):
            self.options._timeout = options
        self._size = size
        self._rank = rank
        self._transport = Transport(store, rank, size, self.options._timeout)
        self._communicator = Communicator(self._transport, self._title)
        self.uid = next(_numbers)
        self._group_name = self._group_desc = _UNNAMED
        self._coalesced: list[tuple[str, int, Step, list[Any]]] | None = None
        self._blocking = False
        self._sequence = 0

    # -- what others ask --------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """The backend's name."""
        return "nccl"

    def _get_backend_name(self) -> str:
        return "nccl"

    def name(self) -> str:
        """The backend's name."""
        return "nccl"

    def getSize(self) -> int:  # noqa: N802
        """How many ranks."""
        return self._size

    def getRank(self) -> int:  # noqa: N802
        """This process's rank."""
        return self._rank

    def size(self) -> int:
        """How many ranks."""
        return self._size

    def rank(self) -> int:
        """This process's rank."""
        return self._rank

    @property
    def group_name(self) -> str:
        """The unique name that torch gives the group."""
        return self._group_name

    @property
    def group_desc(self) -> str:
        """What the group is for: ``default_pg`` for that of all ranks."""
        return self._group_desc

    def _title(self) -> str:
        """What the streams are called after: what the group is for, or its number where it was made
        by hand.
        """
        return str(self.uid) if self._group_name == _UNNAMED else self._group_desc

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _set_group_desc(self, description: str) -> None:
        self._group_desc = description

    def getGroupName(self) -> str:  # noqa: N802
        """`group_name`, for callers in C++."""
        return self._group_name

    def getGroupDesc(self) -> str:  # noqa: N802
        """`group_desc`, for callers in C++."""
        return self._group_desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cuda")]

    def _get_backend(self, device: torch.device) -> Any:
        if device.type == "cuda":
            return self
        if self._has_host_backend():
            return self._transport.host()
        raise RuntimeError(f"No backend type associated with device type {device.type}")

    def host_group(self) -> Any:
        """A group of the same ranks for host tensors."""
        group = _ProcessGroup(self._rank, self._size)
        gloo = self._transport.host()
        group._register_backend(torch.device("cpu"), _ProcessGroup.BackendType.GLOO, gloo)
        return group

    def _has_host_backend(self) -> bool:
        config = distributed_c10d._world.pg_backend_config.get(self, "")
        return "cpu:gloo" in config

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_default_backend(self, backend: Any) -> None: ...

    def _has_hooks(self) -> bool:
        return False

    def _wait_for_pending_works(self) -> None: ...

    def eager_connect_single_device(self, device: Any) -> None:
        """There is nothing left to connect."""

    def perform_nocolor_split(self, device: Any) -> None:
        """There is nothing to split."""

    def set_timeout(self, timeout: timedelta) -> None:
        """Has no effect."""

    def shutdown(self) -> None:
        """Finish what is under way."""
        with current.face().gpu.monitor:
            self._communicator.drain()

    def abort(self) -> None:
        """The same."""
        self.shutdown()

    # -- coalescing -------------------------------------------------------------------------------

    def _start_coalescing(self, device: Any = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> CollectiveWork | None:
        entries, self._coalesced = self._coalesced or [], None
        if not entries:
            return None
        names = {name for name, _, _, _ in entries}
        return self._communicator.enqueue(
            names.pop() if len(names) == 1 else "coalesced",
            entries[0][1],
            [step for _, _, step, _ in entries],
            [tensor for _, _, _, result in entries for tensor in result],
            blocking=self._blocking,
        )

    def _issue(
        self,
        name: str,
        steps: Sequence[Step],
        result: list[Any],
        opts: Any = None,
        peer: int = GROUP,
    ) -> Any:
        """Enqueue steps, or keep them for the end of a coalesced region."""
        device = self._check([t for s in steps for t in (*s.sends, *s.receives) if t is not None])
        self._sequence += 1
        blocking = is_blocking(opts)
        if self._coalesced is not None:
            self._coalesced += [(name, device, step, result) for step in steps]
            self._blocking = blocking
            return None
        return self._communicator.enqueue(name, device, steps, result, peer, blocking=blocking)

    def _check(self, tensors: Tensors) -> int:
        """The device of the tensors; raises what the NCCL backend raises."""
        face = current.face()
        device = face.gpu.thread.device
        for tensor in tensors:
            device = face.tensors.owner(tensor)
            if device < 0:
                raise RuntimeError(
                    f"No backend type associated with device type {tensor.device.type}"
                )
            if tensor.layout != torch.strided or not tensor.is_contiguous():
                raise ValueError("Tensors must be contiguous")
        return device

"""What an operator does to its arguments, read from its schema once and kept.

Both recorders use this: the virtual GPU to run operators, and all to say what they touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch._ops import OpOverload

from streamsan.model.records import Mode, OpKind
from streamsan.virtual.face.collective_ops import form_of

Tag = torch.Tag
Key = torch._C.DispatchKey


class Role(Enum):
    """How an operator is treated."""

    METADATA = 0
    """Touches no bytes: views, sizes, queries of a tensor's properties."""

    COMPUTE = 1
    """Reads and writes bytes on the current stream."""

    COPY = 2
    """May join two memories: ``copy_`` and ``_to_copy``."""

    COMPOSITE = 3
    """Made of other operators, which are seen instead."""

    COLLECTIVE = 4
    """Reads and writes bytes on the stream of a process group, or of the host."""


@dataclass(slots=True)
class Plan:
    """The treatment of one operator overload.

    `tensors` lists the tensor arguments: (position or None, name, access mode or 0). `fresh` says
    for each return whether it is a tensor of its own, `synchronizes` whether the host needs a
    value to go on, `random` whether it draws random numbers, `uninitialized` whether its outputs
    are left as the memory was, `host_index` whether host index tensors may stand beside device
    tensors, `masked` whether a boolean index among them makes the host wait for its count,
    `single` whether it returns one thing that is no list, `writes` whether an argument is written,
    `out` whether one is there for nothing else, `whole_storage` whether it looks at all bytes of a
    tensor's storage, `on_host` which of its returns are host tensors, `at_once` whether it cannot
    be put off, `exact_meta` whether its meta kernel is that of the CPU.

    `nested` is whether its kernel is written in terms of other operators and of calls to Python,
    `custom` whether it is not of torch's own library.

    `training` is the place and name of the argument that says whether running statistics are
    updated, (-1, "") where they always are, None where there are none: schemas do not declare it.
    """

    op: OpOverload
    name: str
    role: Role
    kind: int
    tensors: list[tuple[int, str, int]]
    returns: list[str]
    synchronizes: bool
    random: bool
    uninitialized: bool
    factory: bool
    host_index: bool
    masked: bool
    single: bool
    writes: bool
    out: bool
    whole_storage: bool
    on_host: tuple[int, ...]
    at_once: bool
    exact_meta: bool
    nested: bool
    custom: bool
    training: tuple[int, str] | None

    def touched(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Sequence[tuple[int, str, int]]:
        """`tensors`, with the modes of this call."""
        if self.training is None:
            return self.tensors
        position, name = self.training
        on = args[position] if 0 <= position < len(args) else kwargs.get(name)
        if name and not on:
            return self.tensors
        return self.updating

    @property
    def updating(self) -> list[tuple[int, str, int]]:
        """`tensors`, with the modes of a call that updates running statistics."""
        updated = int(Mode.READ_WRITE)
        return [(p, n, updated if n in _STATISTICS else mode) for p, n, mode in self.tensors]


# Arguments that these overwrite without reading them.
_OVERWRITES = {
    "fill_", "zero_", "copy_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_",
    "geometric_", "cauchy_", "log_normal_", "_foreach_zero_", "_foreach_copy_", "resize_as_",
}  # fmt: skip

# Arguments of which only the metadata matter.
_METADATA_OF_SELF = {
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
    "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full",
}  # fmt: skip

_METADATA_OPS = {
    "is_pinned", "record_stream", "set_", "resize_", "resize_as_", "is_same_size", "dense_dim",
    "sparse_dim", "_version", "lift_fresh", "_has_compatible_shallow_copy_type", "sym_size",
    "sym_stride", "sym_numel", "sym_storage_offset", "is_set_to", "_is_zerotensor",
    "_nested_tensor_size", "_unsafe_view", "_reinterpret_tensor", "_alloc_from_pool",
    "resize_storage_bytes_",
}  # fmt: skip

_SYNCHRONIZES = {
    "_local_scalar_dense", "equal", "nonzero", "is_nonzero", "masked_select", "_unique2",
    "unique_dim", "unique_consecutive", "repeat_interleave", "allclose", "histogram", "bincount",
    "_ctc_loss",
    "_linalg_check_errors",
}  # fmt: skip

_FILLS = {"fill_", "zero_", "full", "zeros", "ones", "zeros_like", "ones_like", "full_like"}

# Operators that take index tensors of host memory beside device tensors (CUDA builds upload them).
_HOST_INDEX = {
    "index", "index_put_", "index_put", "_index_put_impl_", "_pack_padded_sequence",
    "_pad_packed_sequence", "_cudnn_rnn", "bincount", "mkldnn_rnn_layer_backward",
}  # fmt: skip

# With a boolean mask these first count its elements, which the host waits for; an index or a value
# of host memory is uploaded, which it waits for too.
_MASKED = {"index", "index_put_", "index_put", "_index_put_impl_"}


# Results that stay in host memory, by their number: the host made them, or (the workspace of
# recurrent layers) their contents depend on their address.
_ON_HOST = {"_pack_padded_sequence": (1,), "mkldnn_rnn_layer": (3,)}

# These cannot be put off: they read host memory that must not move, or the layout of their results
# depends on values that a CUDA kernel does not look at.
_AT_ONCE = {*_ON_HOST, "mkldnn_rnn_layer_backward", "linalg_lstsq"}

# These copy the whole storage of a tensor (clone_preserve_strides).
_WHOLE_STORAGE = {"select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter"}


# Libraries of operators that call others, and process groups, from their kernels.
_NESTED = {"fsdp", "_c10d_functional", "_dtensor"}

# Namespaces of torch's own operators.
_TORCHS = {"aten", "prim", "prims"}

_STATISTICS = {"running_mean", "running_var"}
_UPDATES_STATISTICS = {
    "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats",
    "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts",
}  # fmt: skip


def _holds_tensor(kind: str) -> bool:
    return "Tensor" in kind


def make_plan(op: OpOverload) -> Plan:
    """Read the schema of `op`."""
    schema = op._schema
    base = schema.name.split("::")[-1]
    metadata_self = base in _METADATA_OF_SELF
    form = form_of(op)
    tensors: list[tuple[int, str, int]] = []
    writes = aliases = False
    for position, argument in enumerate(schema.arguments):
        if not _holds_tensor(str(argument.type)):
            continue
        mode = 0 if metadata_self and position == 0 else int(Mode.READ)
        if form is not None:
            mode = form.modes.get(argument.name, 0)
        info = argument.alias_info
        if info is not None:
            if info.is_write:
                writes = True
                overwritten = argument.is_out or base in _OVERWRITES
                mode = int(Mode.WRITE if overwritten else Mode.READ_WRITE)
            else:
                aliases = True
        tensors.append((-1 if argument.kwarg_only else position, argument.name, mode))
    returns = []
    scalar_return = False
    for result in schema.returns:
        if not _holds_tensor(str(result.type)):
            scalar_return = True
            returns.append("")
        else:
            returns.append("alias" if result.alias_info is not None else "fresh")
    return Plan(
        op=op,
        name=str(op).replace(".", "::", 1).removesuffix(".default"),
        role=_role(op, base, aliases and not writes and "fresh" not in returns),
        kind=int(OpKind.FILL if base in _FILLS else OpKind.KERNEL),
        tensors=tensors,
        returns=returns,
        synchronizes=base in _SYNCHRONIZES
        or (Tag.dynamic_output_shape in op.tags and base not in _MASKED)
        or Tag.data_dependent_output in op.tags
        or (scalar_return and bool(tensors) and _is_dispatched(op)),
        random=Tag.nondeterministic_seeded in op.tags,
        uninitialized=base.startswith(("empty", "new_empty")),
        factory=not tensors or metadata_self,
        host_index=base in _HOST_INDEX,
        masked=base in _MASKED,
        single=len(schema.returns) == 1 and not str(schema.returns[0].type).startswith("List"),
        writes=writes,
        out=any(argument.is_out for argument in schema.arguments),
        whole_storage=base in _WHOLE_STORAGE,
        training=_training(op) if base in _UPDATES_STATISTICS else None,
        on_host=_ON_HOST.get(base, ()),
        at_once=base in _AT_ONCE,
        nested=_is_nested(op),
        custom=op.namespace not in _TORCHS,
        exact_meta=_is_dispatched(op)
        and op.has_kernel_for_dispatch_key(Key.Meta)
        and Key.Meta not in op.py_kernels,
    )


def _is_dispatched(op: OpOverload) -> bool:
    """Whether the dispatcher knows an operator: not what asks for metadata (``prim::device``)."""
    return op.namespace != "prim"


def _is_nested(op: OpOverload) -> bool:
    return op.namespace in _NESTED


def _training(op: OpOverload) -> tuple[int, str]:
    """Place and name of the argument that says whether running statistics are updated."""
    for position, argument in enumerate(op._schema.arguments):
        if argument.name in ("training", "train"):
            return position, argument.name
    return -1, ""


def _role(op: OpOverload, base: str, view: bool) -> Role:
    if base in ("copy_", "_to_copy"):
        return Role.COPY
    if form_of(op) is not None:
        return Role.COLLECTIVE
    if _is_nested(op):
        return Role.COMPOSITE
    if base in _METADATA_OPS or Tag.inplace_view in op.tags or not _is_dispatched(op):
        return Role.METADATA
    composite = op.has_kernel_for_dispatch_key(Key.CompositeImplicitAutograd)
    if composite and not op.has_kernel_for_dispatch_key(Key.CPU) and op._can_decompose():
        return Role.COMPOSITE
    return Role.METADATA if view else Role.COMPUTE


class Plans(dict[OpOverload, Plan]):
    """Plans by operator overload, made on first use."""

    def __missing__(self, op: OpOverload) -> Plan:
        plan = self[op] = make_plan(op)
        return plan


PLANS = Plans()
"""All plans made so far."""

Operand = tuple[torch.Tensor, int, int, str]
"""A tensor argument: the tensor, its owner, the access mode, the argument's name."""


def operands(
    plan: Plan,
    owner: Callable[[torch.Tensor], int],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> list[Operand]:
    """The tensor arguments of a call; `owner` tells where a tensor lies."""
    found: list[Operand] = []
    for position, name, mode in plan.touched(args, kwargs):
        value = args[position] if 0 <= position < len(args) else kwargs.get(name)
        if isinstance(value, torch.Tensor):
            found.append((value, owner(value), mode, name))
        elif isinstance(value, (list, tuple)):
            found += [(v, owner(v), mode, name) for v in value if isinstance(v, torch.Tensor)]
    return found

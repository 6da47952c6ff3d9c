"""Runs a program under the recorder's mode, or from inside of the dispatcher; prints its records.

    python -m tests.unit.dispatch_program mode|dispatch [device|host]
        [hidden|interrupted|trace|streams|packed]

There is no GPU in this: every host tensor counts as pinned, so that what it touches is recorded,
and tensors are shown to Python; or, with ``device``, as one of a device, and tensors are described
to the compiled core; or, with ``host``, as what it is. With ``hidden`` it runs a part that the mode
cannot see; with ``interrupted``, one in which a signal arrives while the recorder is at work; with
``trace``, torch's GPU trace; with ``streams``, operators on several streams; with ``packed``, the
records go through bytes.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from streamsan.model import records as r
from streamsan.record import _core
from streamsan.record.cuda._dispatch import Dispatch
from streamsan.record.cuda._memory import has_bytes
from streamsan.record.cuda._mode import CudaMode
from streamsan.record.dispatch import load
from streamsan.trace import MAX_RAW, decode, encode_one, encode_plain
from streamsan.virtual.face.library import hide_mode
from streamsan.virtual.memory import NOWHERE, PINNED
from tests.unit.cuda_world import World


class Counted(TorchDispatchMode):
    """A mode of the program's own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


class Doubled(torch.autograd.Function):
    """A function of the program's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        gradient: torch.Tensor = grad * 2 + x * 0
        return gradient


@torch.library.custom_op("streamsan_test::scale", mutates_args=("y",))
def scale(x: torch.Tensor, y: torch.Tensor) -> None:
    """A custom operator whose body is Python."""
    y.copy_(x * 2)


def train() -> None:
    """A step of a small network, with an optimizer of each kind of loop."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)
    )
    table = torch.nn.Embedding(10, 4)
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        optimizer = kind([*net.parameters(), *table.parameters()], lr=0.1)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(table(torch.tensor([1, 2, 3])))
        torch.nn.functional.cross_entropy(out.float(), torch.tensor([0, 1, 2])).backward()
        optimizer.step()
    image = torch.ones(1, 1, 5, 5)
    torch.nn.Conv2d(1, 2, 3)(image).sum().backward()


def compute() -> None:
    """Views, lists, several results, indexing, copies, operators that write, and one that fails."""
    a = torch.arange(12.0).view(3, 4)
    a.t()[1:].add_(1)
    torch.split(torch.cat([a, a]), 2)[0].mul_(2)
    torch._foreach_add_([a, torch.ones(2)], 1.0)
    torch.max(a, 0)
    torch.sort(torch.stack([a, a]))
    a[torch.tensor([0, 1])] = 0
    a[a > 3].sum().item()
    a.to(torch.float64).copy_(a)
    torch.add(a, a, out=a)
    torch.ops.aten.copy_(a, 2.5)  # a number in place of a tensor
    torch.ops.aten._to_copy(7).add(1)
    a.to("meta")
    torch.empty(3).resize_(10).fill_(1)
    torch.complex(a, a).conj().mul(2)
    torch.nn.functional.scaled_dot_product_attention(a[None], a[None], a[None])
    scale(a, torch.zeros(3, 4))
    with suppress(RuntimeError):
        torch.mm(a + 1, torch.ones(3))


def differentiate() -> None:
    """Autograd's own ways: a function, a checkpoint, transforms, a hook that computes."""
    w = torch.ones(3, requires_grad=True)
    w.register_hook(lambda grad: grad * 2)
    double: Any = Doubled.apply
    torch.autograd.grad(torch.sgn(w).sum(), w)  # which is zeros without memory
    double(checkpoint(lambda t: (t * 2).sin(), w, use_reentrant=False)).sum().backward()
    torch.func.vmap(torch.func.grad(lambda t: (t**2).sum()))(torch.ones(3, 4))


def compile_and_branch() -> None:
    """A compiled function, of which the compiler's own work is not seen, and an operator of others.

    The function is called twice: of the first call alone, what the compiler does with the
    arguments may differ.
    """
    x = torch.ones(3)

    @torch.compile(backend="aot_eager")
    def update(state: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        state.mul_(2).index_put_((indices,), torch.ones(1))
        return (state + 1).relu()

    for _ in range(2):
        update(x, torch.tensor([1]))
    torch.cond(torch.tensor(True), lambda t: t + 1, lambda t: t - 1, (x,))


def beside() -> list[str]:
    """Modes of the program's own, and tensors without memory."""
    a = torch.ones(2, 2)
    counted = Counted()
    with counted:
        (a @ a).sum()
    with FakeTensorMode():
        torch.empty(2, 3) @ torch.empty(3, 4)
    (a @ a).sum()
    return counted.names


def hide() -> None:
    """Operators where the program has switched off modes, as FSDP does."""
    with torch._C._DisableTorchDispatch():
        scale(torch.ones(2), torch.zeros(2))


def interrupt(world: World) -> None:
    """A handler of a signal's raises while a record is handed on; the program goes on elsewhere."""
    sink = world.observer.outlet.sink

    def raising(_: r.AnyRecord) -> None:
        world.observer.outlet.sink = sink
        raise KeyboardInterrupt

    tensor = torch.ones(3)
    world.observer.outlet.sink = raising
    try:
        tensor.add_(1)
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        print("interrupted", float(tensor[0]))


def trace_memory(world: World, dispatch: Dispatch, library: Any) -> None:
    """Blocks that torch's GPU trace shows, alone and beside a listener of the program's."""
    from torch.cuda import _gpu_trace as trace

    heard: list[tuple[str, int]] = []
    torch._C._activate_gpu_trace()
    of = trace.MemoryAllocationCallbacks, trace.MemoryDeallocationCallbacks
    assert dispatch.trace_memory(of[0].callback_list, of[1].callback_list)
    trace.register_callback_for_event_creation(lambda event: heard.append(("event", event)))
    library.trace("allocation", 4096)
    library.trace("event", 7)
    print(sorted(address for address, _ in world.blocks.by_address.items()), heard)
    trace.register_callback_for_memory_allocation(lambda where: heard.append(("born", where)))
    trace.register_callback_for_memory_deallocation(lambda where: heard.append(("gone", where)))
    library.trace("free", 4096)
    library.trace("allocation", 8192)
    print(sorted(address for address, _ in world.blocks.by_address.items()), heard)


def use_streams(world: World, library: Any) -> None:
    """Operators on streams of torch's, on one that others made twice, and in a green context."""
    tensor = torch.ones(3)
    places = [(0, 0), (3, 0xA00), (7, 0xB00), (0, 0), (0xC00, 0xC00), (3, 0xA00)]
    for torchs_id, handle in places:
        library.be_on_stream(torchs_id)
        world.stream = handle
        tensor.add_(1)
    world.native.streams[0xC00] = (False, 1)
    world.streams.define_external(0, 0xC00)
    library.be_on_stream(0xC00)
    world.stream = 0xC00
    tensor.add_(1)
    world.native.streams[0xC00] = (False, 2)
    world.streams.define_external(0, 0xC00)
    tensor.add_(1)
    library.be_on_stream(0)
    world.stream = 0
    world.recorder.divide()
    tensor.add_(1)
    world.native.green_context = 0x500
    tensor.add_(1)
    world.native.green_context = 0
    tensor.add_(1)
    print([op.timeline for op in world.of(r.Operation) if op.name == "aten::add_.Tensor"])


def lines(records: list[r.AnyRecord]) -> list[str]:
    """What was recorded of operators, without what differs from run to run."""
    found = []
    for record in records:
        if isinstance(record, r.Operation):
            touched = [(a.run, a.sizes, a.strides, a.mode, a.argument) for a in record.accesses]
            told = record.forward != r.NONE
            found.append(f"{record.kind} {record.name} {record.node} {told} {touched}")
        elif isinstance(record, (r.StreamSync, r.Note)):
            found.append(f"{type(record).__name__} {getattr(record, 'text', '')}")
    return found


def packing(world: World) -> Any:
    """Have the records go into bytes, as they do for a checker in another process."""
    packed = _core.Packed(encode_plain, encode_one, lambda: None, MAX_RAW, 1 << 30)
    world.observer.outlet.sink = packed
    return packed


def world_of(owner: int, patch: pytest.MonkeyPatch) -> World:
    """A world in which all tensors lie on a device, in pinned memory, or in the host's."""
    if owner >= 0:
        patch.setattr(_core, "_CUDA", 1)  # DLPack's type of host memory
    elif owner == PINNED:
        patch.setattr(_core, "bridge", lambda: None)
    world = World(patch)

    def owner_of(tensor: torch.Tensor) -> int:
        return owner if tensor.is_cpu and has_bytes(tensor) else NOWHERE

    patch.setattr(world.recorder, "owner", owner_of)
    if owner == PINNED:
        world.blocks.pinned.known[1] = (0, 1)  # or host tensors are passed over
    return world


def main() -> None:
    """Print the records, a line each."""
    owners = {"device": 0, "host": NOWHERE}
    owner = next((owners[word] for word in sys.argv if word in owners), PINNED)
    world = world_of(owner, pytest.MonkeyPatch())
    recorder = world.recorder
    hide_mode()
    if sys.argv[1] == "mode":
        CudaMode(recorder).__enter__()  # type: ignore[no-untyped-call]
    else:
        library = load(*(["-DSTREAMSAN_HOST_AS_DEVICE"] if "device" in sys.argv else []))
        dispatch = Dispatch(recorder, library)
        dispatch.enter_thread()
        if "trace" in sys.argv:
            trace_memory(world, dispatch, library)
            return
        if "streams" in sys.argv:
            use_streams(world, library)
            return
    packed = packing(world) if "packed" in sys.argv else None
    counted = []
    if "hidden" in sys.argv:
        hide()
    elif "interrupted" in sys.argv:
        interrupt(world)
    else:
        for part in (train, compute, differentiate, compile_and_branch):
            part()
        counted = beside()
    world.observer.end(0)
    if packed is not None:
        world.seen += decode(packed.whole())
    print("\n".join([*lines(world.seen), *counted]))


if __name__ == "__main__":
    main()

"""A program of several processes: every collective, in orders that NCCL allows.

Each check compares with what the host computes; the program prints ``RANK all right`` at its end.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


def value(rank: int) -> torch.Tensor:
    """What a rank puts in: 6 elements."""
    return torch.arange(6.0, device="cuda") + 10 * rank


def total_of(ranks: int) -> torch.Tensor:
    """The sum of what all ranks put in."""
    return torch.stack([value(rank).cpu() for rank in range(ranks)]).sum(0)


def check(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Raise where a result is wrong. The download waits for the current stream."""
    if not torch.equal(found.cpu().flatten(), expected.cpu().flatten()):
        raise AssertionError(f"{what}: {found} is not {expected}")


def reductions(rank: int, ranks: int) -> None:
    """Reductions to all ranks, to one, and in parts."""
    all_values = torch.stack([value(r).cpu() for r in range(ranks)])
    total = all_values.sum(0)
    half = torch._C._distributed_c10d._make_nccl_premul_sum(0.5)
    kinds = {
        dist.ReduceOp.SUM: total,
        dist.ReduceOp.AVG: total / ranks,
        dist.ReduceOp.MAX: all_values.amax(0),
        dist.ReduceOp.MIN: all_values.amin(0),
        dist.ReduceOp.PRODUCT: all_values.prod(0),
        half: total * 0.5,
    }
    for kind, expected in kinds.items():
        mine = value(rank)
        dist.all_reduce(mine, op=kind)
        check(mine, expected, f"all_reduce {kind}")
    mine = value(rank)
    dist.reduce(mine, ranks - 1)
    if rank == ranks - 1:
        check(mine, total, "reduce")
    part = torch.empty(6 // ranks, device="cuda")
    dist.reduce_scatter_tensor(part, value(rank))
    check(part, total.chunk(ranks)[rank], "reduce_scatter_tensor")
    whole = torch.empty(6, device="cuda")
    dist.reduce_scatter(whole, [value(rank) + 100 * r for r in range(ranks)])
    check(whole, total + 100 * ranks * rank, "reduce_scatter")


def exchanges(rank: int, ranks: int) -> None:
    """Collectives that move values."""
    mine = value(rank)
    dist.broadcast(mine, ranks - 1)
    check(mine, value(ranks - 1), "broadcast")
    whole = torch.empty(6 * ranks, device="cuda")
    dist.all_gather_into_tensor(whole, value(rank))
    check(whole, torch.cat([value(r) for r in range(ranks)]), "all_gather_into_tensor")
    parts = [torch.empty(6, device="cuda") for _ in range(ranks)]
    dist.all_gather(parts, value(rank))
    check(torch.stack(parts), torch.stack([value(r) for r in range(ranks)]), "all_gather")
    dist.all_to_all(parts, [value(rank) + 100 * r for r in range(ranks)])
    expected = torch.stack([value(r) + 100 * rank for r in range(ranks)])
    check(torch.stack(parts), expected, "all_to_all")
    swapped = torch.empty(6, device="cuda")
    dist.all_to_all_single(swapped, value(rank))
    expected = torch.cat([value(r).chunk(ranks)[rank] for r in range(ranks)])
    check(swapped, expected, "all_to_all_single")
    dist.gather(value(rank), parts if rank == 0 else None, 0)
    if rank == 0:
        check(torch.stack(parts), torch.stack([value(r) for r in range(ranks)]), "gather")
    dist.scatter(swapped, [value(r) for r in range(ranks)] if rank == 0 else None, 0)
    check(swapped, value(rank), "scatter")
    objects: list[object] = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    if objects != [{"rank": r} for r in range(ranks)]:
        raise AssertionError(objects)


def messages(rank: int, ranks: int) -> None:
    """Messages around a ring, issued as one, one by one, and in both directions at once."""
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    found = torch.empty(6, device="cuda")
    batch = [dist.P2POp(dist.irecv, found, before), dist.P2POp(dist.isend, value(rank), after)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    check(found, value(before), "batch_isend_irecv")
    found = torch.empty(6, device="cuda")
    works = [dist.isend(value(rank) + 1, after), dist.irecv(found, before)]
    for one in works:
        if one is not None:
            one.wait()
    check(found, value(before) + 1, "isend and irecv")


def orders(rank: int, ranks: int) -> None:
    """Collectives of two groups, enqueued in opposite orders, and a host that waits elsewhere."""
    first, second = dist.new_group(), dist.new_group()
    total = total_of(ranks)
    mine, other, side = value(rank), value(rank), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        if rank == 0:
            dist.all_reduce(mine, group=first)
    dist.all_reduce(other, group=second)
    with torch.cuda.stream(side):
        if rank != 0:
            dist.all_reduce(mine, group=first)
    torch.cuda.current_stream().wait_stream(side)
    check(mine, total, "first group")
    check(other, total, "second group")
    store = dist.distributed_c10d._get_default_store()
    mine = value(rank)
    work = dist.all_reduce(mine, async_op=True)
    if rank == 0:
        store.wait(["done"])  # the others need this rank's device meanwhile
    else:
        work.wait()
        torch.cuda.synchronize()
        store.set("done", "yes")
    work.wait()
    check(mine, total, "host that waits elsewhere")


def threads(rank: int, ranks: int) -> None:
    """Two host threads with a group each; one waits for the device while the other enqueues."""
    groups = [dist.new_group(), dist.new_group()]
    total = total_of(ranks)
    ready = threading.Event()

    def work(number: int) -> None:
        if number != rank % 2:  # one thread of each process goes first, another one in each
            ready.wait(0.2)
        with torch.cuda.stream(torch.cuda.Stream()):
            mine = value(rank)
            dist.all_reduce(mine, group=groups[number])
            check(mine, total, f"thread {number}")

    started = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    """The gradient of a tensor that has one."""
    assert tensor.grad is not None
    return tensor.grad


def batch_norms(rank: int, ranks: int) -> None:
    """Statistics over the batches of all ranks, as one process has them over the whole batch."""
    for dtype, affine, shape in (
        (torch.float64, True, (4 * ranks, 3)),
        (torch.float32, False, (2 * ranks, 3, 5, 4)),
        (torch.float32, True, (2 * ranks, 3, 5, 4)),
    ):
        whole = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        norm = torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d
        alone = norm(3, affine=affine, dtype=dtype)
        together = torch.nn.SyncBatchNorm(3, affine=affine, dtype=dtype, device="cuda")
        one = whole.clone().requires_grad_()
        mine = whole.chunk(ranks)[rank].cuda().requires_grad_()
        expected = alone(one)
        expected.exp().sum().backward()
        found = together(mine)
        found.exp().sum().backward()
        sums = [gradient(p) for p in together.parameters()]
        for total in sums:
            dist.all_reduce(total)
        close = torch.testing.assert_close
        close(found.cpu(), expected.chunk(ranks)[rank])
        close(gradient(mine).cpu(), gradient(one).chunk(ranks)[rank], rtol=1e-4, atol=1e-5)
        close([g.cpu() for g in sums], [gradient(p) for p in alone.parameters()])
        close([b.cpu() for b in together.buffers()], list(alone.buffers()))


def backends(rank: int, ranks: int) -> None:
    """Calls on the group's backend object, and on one made by hand, in short forms and long."""
    public: Any = dist
    store = public.PrefixStore("by hand", public.distributed_c10d._get_default_store())
    hand = public.ProcessGroupNCCL(store, rank, ranks)
    for backend in (public.group.WORLD._get_backend(torch.device("cuda")), hand):
        mine = value(rank)
        backend.allreduce(mine, op=dist.ReduceOp.SUM).wait()
        check(mine, total_of(ranks), "allreduce")
        mine = value(rank)
        backend.broadcast(mine, root=1).wait()
        check(mine, value(1), "broadcast")
        parts = [torch.empty(6, device="cuda") for _ in range(ranks)]
        backend.allgather(parts, value(rank)).wait()
        check(torch.stack(parts), torch.stack([value(r) for r in range(ranks)]), "allgather")
        backend.scatter(mine, [value(r) for r in range(ranks)] if rank == 0 else [], 0).wait()
        check(mine, value(rank), "scatter")
        backend._start_coalescing()
        backend.send([value(rank)], (rank + 1) % ranks, 0)
        backend.recv([mine], (rank - 1) % ranks, 0)
        backend._end_coalescing().wait()
        check(mine, value((rank - 1) % ranks), "messages")


def main() -> None:
    """Run all of them."""
    dist.init_process_group("nccl", timeout=timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    for part in (reductions, exchanges, messages, orders, threads, batch_norms, backends):
        part(rank, ranks)
    work = dist.all_reduce(value(rank), async_op=True)
    mean = work.get_future().then(lambda future: future.value()[0] / ranks)
    check(mean.wait(), total_of(ranks) / ranks, "future")
    while not work.is_completed():
        pass
    dist.barrier()
    print(f"{rank} all right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

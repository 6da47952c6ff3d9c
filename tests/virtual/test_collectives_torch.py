"""Collectives of one process on the virtual GPU: order (N1, N2), memory, schedules, refusals."""

from __future__ import annotations

import pytest

from tests.virtual.programs import ROOT, Programs

START = """\
import torch, torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
"""
REUSE = str(ROOT / "examples" / "allreduce_bfc.py")


def program(*lines: str) -> str:
    """A program of one process; its first line of `lines` is line 3."""
    return START + "\n".join(lines) + "\n"


def test_backend_answers_as_nccl(programs: Programs) -> None:
    done = programs.run(
        program(
            "print(dist.is_nccl_available(), dist.get_backend(), dist.get_world_size())",
            "print(torch.cuda.nccl.version() > (2,), dist.group.WORLD.name())",
            "group = dist.new_group([0])",
            "print(isinstance(group, dist.ProcessGroupNCCL), dist.get_process_group_ranks(group))",
            "dist.destroy_process_group()",
            "print(dist.is_initialized())",
        )
    )
    assert done.stdout.split() == ["True", "nccl", "1", "True", "nccl", "True", "[0]", "False"]
    assert (done.status, done.errors) == (0, [])


@pytest.mark.parametrize(
    "group",
    [
        "dist.group.WORLD",
        "dist.group.WORLD._get_backend(torch.device('cuda'))",
        "dist.ProcessGroupNCCL(dist.HashStore(), 0, 1)",
    ],
)
def test_methods_in_all_forms(programs: Programs, group: str) -> None:
    done = programs.run(
        program(
            f"group = {group}",
            "total, native = dist.ReduceOp.SUM, torch._C._distributed_c10d",
            "def t(): return torch.ones(4, device='cuda')",
            "def given(): return torch.full((4,), 2.0, device='cuda')",
            "x = t()",
            "for work in (",
            "    group.allreduce([x]), group.allreduce(x), group.allreduce(x, total),",
            "    group.allreduce(tensor=x, op=total), group.allreduce([x], op=total),",
            "    group.allreduce([x], dist.AllreduceOptions()), group.broadcast([x]),",
            "    group.broadcast(x, 0), group.broadcast(tensor=x, root=0),",
            "    group.reduce(x, 0), group.reduce(x, root=0, op=total), group.barrier(),",
            "):",
            "    work.wait()",
            "print(x.tolist())",
            "for call in (",
            "    lambda x: group.allgather([[x]], [given()]),",
            "    lambda x: group.allgather([x], given()),",
            "    lambda x: group.allgather([x], input_tensor=given()),",
            "    lambda x: group._allgather_base(x, input=given()),",
            "    lambda x: group.gather([x], given(), 0),",
            "    lambda x: group.gather([[x]], [given()], native.GatherOptions()),",
            "    lambda x: group.scatter(x, [given()], 0),",
            "    lambda x: group.scatter(output_tensor=x, input_tensors=[given()], root=0),",
            "    lambda x: group.reduce_scatter(x, [given()], total),",
            "    lambda x: group._reduce_scatter_base(x, given()),",
            "    lambda x: group.alltoall_base(",
            "        output=x, input=given(), output_split_sizes=[4], input_split_sizes=[4]),",
            "):",
            "    x = t()",
            "    call(x).wait()",
            "    assert x.tolist() == [2.0] * 4",
            "try:",
            "    group.allreduce()",
            "except TypeError as error:",
            "    print(error)",
        ),
        options=("--schedule", "late"),
    )
    refused = "allreduce(): incompatible function arguments"
    assert done.stdout.splitlines() == ["[1.0, 1.0, 1.0, 1.0]", refused]
    assert (done.status, done.lines, done.errors) == (0, [], [])


def test_coalesced_region_of_a_backend(programs: Programs) -> None:
    done = programs.run(
        program(
            "backend = dist.group.WORLD._get_backend(torch.device('cuda'))",
            "x = torch.ones(64, device='cuda')",
            "backend._start_coalescing()",
            "backend.allreduce([x])",
            "work = backend._end_coalescing()",
            "y = x + 1",
            "work.wait()",
            "z = x + 2",
        )
    )
    assert done.lines == [(7, 8)]


@pytest.mark.parametrize("wait", ["work.wait()", "work.synchronize()", "future.wait()"])
def test_n2_wait_orders_the_stream_that_is_current_then(programs: Programs, wait: str) -> None:
    lines = (
        "x, side = torch.ones(64, device='cuda'), torch.cuda.Stream()",
        "work = dist.all_reduce(x, async_op=True)",
        "future = work.get_future()",
        "with torch.cuda.stream(side):",
        f"    {wait}",
        "    a = x + 1",
        "b = x + 2",
    )
    done = programs.run(program(*lines))
    assert done.lines == [(4, 9)]  # the side stream waited, the default one did not
    assert done.races[0]["kind"] == "R07-COLL-INFLIGHT"


def test_n2_wait_does_not_order_the_host(programs: Programs) -> None:
    done = programs.run(
        program(
            "x = torch.ones(64, device='cuda')",
            "y = torch.zeros(64).pin_memory()",
            "work = dist.all_reduce(x, async_op=True)",
            "work.wait()",
            "y.copy_(x, non_blocking=True)",
            "print(len(y.tolist()))",
        )
    )
    assert [race["kind"] for race in done.races] == ["R08-D2H-HOST-READ"]


def test_e4_completed_work_orders_the_host(programs: Programs) -> None:
    done = programs.run(
        program(
            "x = torch.ones(64, device='cuda')",
            "work = dist.all_reduce(x, async_op=True)",
            "while not work.is_completed(): pass",
            "print((x + 1).sum().item())",
        ),
        options=("--schedule", "late"),
    )
    assert (done.stdout, done.lines, done.errors) == ("128.0\n", [], [])


def test_n1_comes_after_the_current_stream_only(programs: Programs) -> None:
    done = programs.run(
        program(
            "x, side = torch.zeros(64, device='cuda'), torch.cuda.Stream()",
            "side.wait_stream(torch.cuda.current_stream())",
            "with torch.cuda.stream(side):",
            "    x.add_(1)",
            "dist.all_reduce(x)",
        )
    )
    assert done.lines == [(6, 7)]


def test_barrier_makes_the_host_wait(programs: Programs) -> None:
    done = programs.run(
        program(
            "x = torch.ones(1 << 10, device='cuda')",
            "y = torch.zeros(1 << 10).pin_memory()",
            "y.copy_(x, non_blocking=True)",
            "dist.barrier()",
            "print(sum(y.tolist()))",
        ),
        options=("--schedule", "late"),
    )
    assert (done.stdout, done.lines) == ("1024.0\n", [])


def test_unread_collective_shows_under_late(programs: Programs) -> None:
    """The result of a gather that nobody waited for is what the memory held before."""
    lines = (
        "x, y = torch.ones(8, device='cuda'), torch.zeros(8, device='cuda')",
        "work = dist.all_gather_into_tensor(y, x, async_op=True)",
        "z = y + 0",
        "print(z.sum().item())",
        "work.wait()",
        "print(y.sum().item())",
    )
    done = programs.run(program(*lines), options=("--schedule", "late"))
    assert done.stdout.split() == ["0.0", "8.0"]
    assert done.lines == [(4, 5)]


def test_handle_keeps_its_tensors_until_the_wait(programs: Programs) -> None:
    lines = (
        "y = torch.zeros(1 << 12, device='cuda')",
        "def start():",
        "    x = torch.ones(1 << 12, device='cuda')",
        "    return x.data_ptr(), dist.all_gather_into_tensor(y, x, async_op=True)",
        "place, work = start()",
        "print(torch.zeros(1 << 12, device='cuda').data_ptr() == place)",
        "work.wait()",
        "print(torch.cuda.memory_allocated() == y.nbytes)",
    )
    done = programs.run(program(*lines), options=("--schedule", "late"))
    assert (done.stdout.split(), done.lines) == (["False", "True"], [])
    assert done.report["latent"] == []


def test_dropped_handle_leaves_its_tensors_to_the_group(programs: Programs) -> None:
    lines = (
        "for _ in range(8):",
        "    dist.all_reduce(torch.ones(1 << 12, device='cuda'), async_op=True)",
        "print(torch.cuda.memory_allocated() <= 2 << 14)",
    )
    done = programs.run(program(*lines))
    assert (done.stdout, done.lines, done.report["latent"]) == ("True\n", [], [])


def test_then_runs_on_a_stream_behind_the_collective(programs: Programs) -> None:
    lines = (
        "x = torch.ones(64, device='cuda')",
        "future = dist.all_reduce(x, async_op=True).get_future()",
        "half = future.then(lambda f: f.value()[0] * 0.5)",
        "print(half.wait().sum().item())",
        "failing = future.then(lambda f: 1 / 0)",
        "try: failing.wait()",
        "except ZeroDivisionError as error: print('raised')",
    )
    done = programs.run(program(*lines), options=("--schedule", "late"))
    assert (done.stdout.split(), done.lines, done.errors) == (["32.0", "raised"], [], [])


def test_functional_collectives(programs: Programs) -> None:
    lines = (
        "import torch.distributed._functional_collectives as functional",
        "x = torch.ones(64, device='cuda')",
        "y = functional.all_reduce(x, 'sum', dist.group.WORLD)",
        "print(y.device, (y + 1).sum().item())",
    )
    done = programs.run(program(*lines), options=("--schedule", "late"))
    assert (done.stdout.split(), done.lines, done.errors) == (["cuda:0", "128.0"], [], [])


def test_collective_in_a_graph(programs: Programs) -> None:
    lines = (
        "x, y = torch.ones(8, device='cuda'), torch.zeros(8, device='cuda')",
        "graph = torch.cuda.CUDAGraph()",
        "with torch.cuda.graph(graph):",
        "    dist.all_gather_into_tensor(y, x)",
        "    y.add_(1)",
        "for _ in range(2):",
        "    x.add_(1)",
        "    graph.replay()",
        "print(y.tolist() if y.is_cpu else y.cpu().tolist()[0])",
    )
    done = programs.run(program(*lines), options=("--schedule", "late"))
    assert (done.stdout, done.lines, done.errors) == ("4.0\n", [], [])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("dist.all_reduce(torch.ones(4))", "No backend type associated with device type cpu"),
        ("dist.all_reduce(torch.ones(4, 4, device='cuda').t())", "Tensors must be contiguous"),
        ("dist.all_reduce(torch.ones(4, device='cuda'), op=dist.ReduceOp.BAND)", "with NCCL"),
        ("dist.recv(torch.ones(4, device='cuda'))", "recv from any source"),
        (
            "x = torch.ones(6, device='cuda'); dist.all_gather_into_tensor(x[:3], x[:2])",
            "world_size times input",
        ),
    ],
)
def test_what_nccl_refuses(programs: Programs, call: str, error: str) -> None:
    done = programs.run(program(call))
    assert done.status == 1
    assert error in done.stderr
    assert done.errors == []


def test_host_tensors_in_a_group_with_gloo(programs: Programs) -> None:
    done = programs.run(
        START.replace('"nccl"', '"cpu:gloo,cuda:nccl"')
        + "x, y = torch.ones(4), torch.ones(4, device='cuda')\n"
        + "dist.all_reduce(x); dist.all_reduce(y); print(x.sum().item(), y.sum().item())\n"
    )
    assert (done.status, done.stdout, done.errors) == (0, "4.0 4.0\n", [])


def test_raw_collectives_of_two_devices(programs: Programs) -> None:
    lines = (
        "import torch",
        "xs = [torch.full((4,), float(n + 1), device=f'cuda:{n}') for n in range(2)]",
        "ys = [torch.empty(4, device=f'cuda:{n}') for n in range(2)]",
        "torch.cuda.nccl.all_reduce(xs, ys)",
        "print(*(y.sum().item() for y in ys))",
        "wide = [torch.empty(8, device=f'cuda:{n}') for n in range(2)]",
        "torch.cuda.nccl.all_gather(xs, wide)",
        "print(*(w.sum().item() for w in wide))",
        "parts = [torch.empty(2, device=f'cuda:{n}') for n in range(2)]",
        "torch.cuda.nccl.reduce_scatter(xs, parts)",
        "torch.cuda.nccl.reduce(xs, ys[1], root=1)",
        "torch.cuda.nccl.broadcast(xs, root=1)",
        "print(parts[1].sum().item(), ys[1].sum().item(), xs[0].sum().item())",
    )
    done = programs.run(
        "\n".join(lines) + "\n", options=("--devices", "2", "--schedule", "random:2")
    )
    assert done.stdout.split() == ["12.0", "12.0", "12.0", "12.0", "6.0", "12.0", "8.0"]
    assert (done.status, done.lines, done.errors) == (0, [], [])


@pytest.mark.parametrize("policy", ["host-sync", "frontier", "event"])
@pytest.mark.parametrize("schedule", ["program", "hold:communication"])
def test_reuse_is_clean_under_other_policies(
    programs: Programs, policy: str, schedule: str
) -> None:
    options = ("--allocator", f"bfc:{policy}", "--schedule", schedule)
    done = programs.run_file(REUSE, options=options)
    assert (done.status, done.stdout) == (0, "all gradients are right\n")
    assert (done.lines, done.report["latent"], done.errors) == ([], [], [])


@pytest.mark.parametrize("schedule", ["program", "hold:communication"])
def test_m6_memory_is_reused_in_flight_under_async(programs: Programs, schedule: str) -> None:
    """tensorflow#58022: the collective's line and that of the write into its memory."""
    options = ("--allocator", "bfc:async", "--schedule", schedule)
    done = programs.run_file(REUSE, options=options)
    with open(REUSE, encoding="utf-8") as file:
        found = dict(enumerate(file, 1))
    (reduces,) = [n for n, line in found.items() if "nccl.all_reduce([gradient]" in line]
    (writes,) = [n for n, line in found.items() if "gradient = outputs[layer].T" in line]
    assert (reduces, writes) in done.lines
    assert {race["kind"] for race in done.races} == {"R07-COLL-INFLIGHT"}
    right = done.stdout == "all gradients are right\n"
    assert (right, done.status) == ((True, 66) if schedule == "program" else (False, 1))

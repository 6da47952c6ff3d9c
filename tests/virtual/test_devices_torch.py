"""Several devices: contexts, copies between them, backward across them, wrong ordinals."""

from __future__ import annotations

import torch
from torch import nn

from tests.virtual.agree import SCHEDULES, on_virtual_gpu, raised

ORDINAL = ("AcceleratorError", "CUDA error: invalid device ordinal")


@on_virtual_gpu("late", "program", devices=2)
def test_contexts_choose_the_device() -> None:
    with torch.cuda.device(1):
        assert torch.ones(1, device="cuda").device == torch.device("cuda", 1)
        with torch.cuda.device("cuda:0"), torch.cuda.device(-1):
            assert torch.cuda.current_device() == 0
        with torch.cuda.device(None):
            assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.ones(1)):
        assert torch.cuda.current_device() == 0
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
    with torch.cuda.stream(torch.cuda.Stream(1)):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0)
    assert torch.cuda.current_device() == 0
    error = ("ValueError", "Expected a cuda device, but got: cpu")
    assert raised(torch.cuda.device("cpu").__enter__) == error


@on_virtual_gpu("late", devices=2)
def test_wrong_ordinals_are_refused_as_by_cuda() -> None:
    for call in (
        lambda: torch.cuda.set_device(2), lambda: torch.ones(1, device="cuda:7"),
        lambda: torch.ones(1).cuda(2), lambda: torch.ones(1).to("cuda:2"),
        lambda: torch.cuda.Stream(device=9), lambda: torch.cuda.synchronize(5),
        lambda: torch.cuda.device(3).__enter__(), lambda: nn.Linear(1, 1).to("cuda:4"),
    ):  # fmt: skip
        assert raised(call) == ORDINAL
    assert torch.ones(1, device="cuda:1").sum().item() == 1


@on_virtual_gpu(*SCHEDULES, devices=2)
def test_copies_between_devices_are_ordered_on_both_sides() -> None:
    a = torch.zeros(4, device="cuda:0")
    for turn in range(4):
        a += 1
        b = a.to("cuda:1")
        b *= 10
        a.mul_(1)
        c = b.to("cuda:0", non_blocking=True)
        a += 1
        assert c.tolist() == [10.0 * (2 * turn + 1)] * 4
    d = torch.empty(4, device="cuda:1")
    d.copy_(a)
    assert (d.tolist(), a.tolist()) == ([8.0] * 4, [8.0] * 4)


@on_virtual_gpu(*SCHEDULES, devices=2)
def test_backward_crosses_devices() -> None:
    torch.manual_seed(0)
    one, two = nn.Linear(4, 8), nn.Linear(8, 2)
    x = torch.randn(5, 4)
    two(one(x).relu()).square().sum().backward()
    wanted = [parameter.grad.clone() for parameter in (*one.parameters(), *two.parameters())]  # type: ignore[union-attr]
    one.zero_grad()
    two.zero_grad()
    one.cuda(0)
    two.cuda(1)
    hidden = one(x.cuda(0)).relu().to("cuda:1")
    two(hidden).square().sum().backward()
    for parameter, gradient in zip((*one.parameters(), *two.parameters()), wanted):
        assert parameter.grad is not None
        assert parameter.grad.device == parameter.device
        assert torch.allclose(parameter.grad.cpu(), gradient, atol=1e-5)


@on_virtual_gpu("late", "program", devices=2)
def test_an_operator_takes_tensors_of_one_device() -> None:
    a, b = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
    kind, text = raised(lambda: a + b)
    assert kind == "RuntimeError"
    assert "Expected all tensors to be on the same device" in text
    assert "cuda:0" in text
    assert "cuda:1" in text
    assert (a + torch.tensor(1.0)).device == a.device


@on_virtual_gpu("late", "program", devices=2)
def test_memory_and_random_numbers_are_each_devices_own() -> None:
    before = torch.cuda.memory_allocated(0)
    held = torch.ones(1 << 16, device="cuda:1")
    assert torch.cuda.memory_allocated(0) == before
    assert torch.cuda.memory_allocated(1) >= held.numel() * 4
    torch.cuda.manual_seed_all(3)
    zero = torch.rand(4, device="cuda:0").tolist()
    assert torch.rand(4, device="cuda:1").tolist() == zero
    assert len(torch.cuda.get_rng_state_all()) == 2


@on_virtual_gpu("late", "program", devices=2)
def test_data_parallel_splits_a_batch_over_the_devices() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    x = torch.randn(6, 4, device="cuda")
    plain(x).sum().backward()
    wanted = [parameter.grad.clone() for parameter in plain.parameters()]  # type: ignore[union-attr]
    plain.zero_grad()
    parallel = nn.DataParallel(plain)
    y = parallel(x)
    assert y.device == torch.device("cuda", 0)
    assert torch.allclose(y, plain(x), atol=1e-6)
    y.sum().backward()
    for parameter, gradient in zip(plain.parameters(), wanted):
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)  # type: ignore[arg-type]


@on_virtual_gpu("late", "program", devices=2)
def test_comm_copies_among_devices() -> None:
    import torch.cuda.comm as comm

    ones = torch.ones(4, device="cuda:0")
    same, copy = comm.broadcast(ones, [0, 1])
    assert same is ones
    assert (copy.device.index, copy.tolist()) == (1, [1.0] * 4)
    copies = comm.broadcast_coalesced([ones, ones + 1], [0, 1])
    assert [[t.tolist()[0] for t in tensors] for tensors in copies] == [[1.0, 2.0]] * 2
    assert [t.device.index for t in copies[1]] == [1, 1]
    comm.broadcast(ones + 2, out=[copy])
    assert copy.tolist() == [3.0] * 4
    assert comm.broadcast(torch.ones(2), [0, 1])[1].tolist() == [1.0, 1.0]
    parts = comm.scatter(torch.arange(5.0, device="cuda:0"), [0, 1], [2, 3])
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3, 4]]
    assert comm.gather(parts, 0, 1).tolist() == [0, 1, 2, 3, 4]
    assert comm.gather(parts, 0, -1).device.type == "cpu"
    assert comm.reduce_add([ones, ones.to("cuda:1")], 0).tolist() == [2.0] * 4
    out = [torch.empty(2, device="cuda:0"), torch.empty(3, device="cuda:1")]
    comm.scatter(torch.arange(5.0, device="cuda:0"), out=out)
    assert out[1].tolist() == [2, 3, 4]

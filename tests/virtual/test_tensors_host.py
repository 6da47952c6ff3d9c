"""What the host sees of device tensors: values, text, arrays, pickles, and refusals."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch.utils import dlpack

from tests.virtual.agree import on_virtual_gpu, same_as_cpu


def _number(device: str) -> Any:
    return torch.arange(6.0, device=device).reshape(2, 3) / 4


@same_as_cpu
def test_text_of_tensors(device: str) -> Any:
    tensors = [
        torch.tensor([1.5, -2.25, 1e-9], device=device),
        torch.tensor([1.0, 2.0], device=device),
        torch.arange(3, device=device),
        torch.tensor(True, device=device),
        torch.tensor([1 + 2j], device=device),
        torch.zeros(2, 0, device=device),
        torch.full((2, 2), float("nan"), device=device),
        torch.arange(3000.0, device=device),
        torch.ones(2, dtype=torch.bfloat16, device=device),
        _number(device).requires_grad_() * 2,
        torch.nn.Parameter(_number(device)),
        torch.ones(2, dtype=torch.complex64, device=device).conj() * 2j,
    ]
    found = [(repr(t) + str(t)).replace(f", device='{device}:0'", "") for t in tensors]
    one = torch.tensor(3.14159, device=device)
    return [*found, f"{one:.3f}", f"{one}", "{:>8.2f}".format(one), "%.2f" % one, format(one, "e")]  # noqa: UP031, UP032


@on_virtual_gpu("program", "late")
def test_text_names_the_device() -> None:
    tensor = torch.tensor([1.5, 2.0]).cuda()
    assert repr(tensor) == "tensor([1.5000, 2.0000], device='cuda:0')"
    assert tensor.type() == "torch.cuda.FloatTensor"
    assert str(torch.nn.Parameter(tensor)).endswith("device='cuda:0', requires_grad=True)")


@on_virtual_gpu("program", "late")
def test_numpy_is_refused_as_cuda_refuses_it() -> None:
    import numpy as np

    tensor = torch.arange(3.0).cuda()
    refusal = "can't convert cuda:0 device type tensor to numpy"
    for convert in (
        tensor.numpy,
        lambda: np.asarray(tensor),
        lambda: np.array(tensor),
        lambda: np.array([1.0]) + np.asarray(tensor),
        lambda: np.mean(np.asarray(tensor)),
    ):
        with pytest.raises(TypeError, match=refusal):
            convert()
    assert np.array_equal(tensor.cpu().numpy(), [0, 1, 2])
    assert np.array_equal(tensor.numpy(force=True), [0, 1, 2])
    assert np.array_equal(tensor.cpu().detach().numpy(), np.array(tensor.tolist()))


@on_virtual_gpu("program", "late")
def test_array_interface() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).cuda()
    interface = tensor.__cuda_array_interface__
    assert interface["shape"] == (3, 4)
    assert interface["typestr"] == "<f4"
    assert interface["strides"] is None
    assert interface["data"] == (tensor.data_ptr(), False)
    assert tensor.t().__cuda_array_interface__["strides"] == (4, 16)
    kinds = {
        torch.bool: "|b1",
        torch.uint8: "|u1",
        torch.int8: "|i1",
        torch.int64: "<i8",
        torch.float16: "<f2",
        torch.complex64: "<c8",
    }
    for dtype, text in kinds.items():
        assert tensor.to(dtype).__cuda_array_interface__["typestr"] == text
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        tensor.cpu().__cuda_array_interface__  # noqa: B018
    assert not hasattr(tensor.cpu(), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        tensor.requires_grad_().__cuda_array_interface__  # noqa: B018


@on_virtual_gpu("program", "late")
def test_dlpack_on_the_device() -> None:
    tensor = torch.arange(4.0).cuda() * 2
    assert tensor.__dlpack_device__() == (2, 0)  # kDLCUDA
    shared = dlpack.from_dlpack(tensor)
    assert shared.device == tensor.device
    assert shared.data_ptr() == tensor.data_ptr()
    shared.add_(1)
    assert tensor.tolist() == [1, 3, 5, 7]
    capsule = torch._C._to_dlpack(tensor)
    again = dlpack.from_dlpack(capsule)
    assert again.device == tensor.device
    assert again.tolist() == [1, 3, 5, 7]
    assert torch.ones(2).__dlpack_device__() == (1, 0)


@on_virtual_gpu(devices=2)
def test_tensors_of_two_devices() -> None:
    here, there = torch.ones(3).cuda(), torch.ones(3).cuda(1)
    host = torch.ones(3)
    for mix in (
        lambda: here + host,
        lambda: host + here,
        lambda: here + there,
        lambda: torch.cat([here, host]),
        lambda: torch.stack([here, there]),
        lambda: here.add_(host),
        lambda: host.add_(here),
        lambda: here[:, None] @ host[None],
        lambda: torch.nn.functional.linear(host, here[None]),
        lambda: torch.nn.Linear(3, 3).cuda()(host),
        lambda: torch.where(here > 0, here, host),
        lambda: host.index_select(0, torch.tensor([0]).cuda()),
        lambda: here.index_select(0, torch.tensor([0])),
        lambda: torch.nn.functional.embedding(torch.tensor([0]).cuda(), torch.ones(2, 2)),
        lambda: torch.nn.functional.mse_loss(here, host),
        lambda: torch.nn.functional.cross_entropy(here[None], torch.tensor([0])),
        lambda: torch.add(here, here, out=torch.empty(3)),
        lambda: host[torch.tensor([0]).cuda()],
    ):
        with pytest.raises(RuntimeError, match="device"):
            mix()
    assert (here + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert (torch.tensor(2.0) * here).tolist() == [2, 2, 2]
    assert here[torch.tensor([0, 1])].tolist() == [1, 1]
    here.copy_(host * 5)
    there.copy_(here)
    host.copy_(there)
    assert host.tolist() == [5, 5, 5]
    assert torch.where(here > 1, here, torch.tensor(0.0)).tolist() == [5, 5, 5]


@on_virtual_gpu()
def test_pickles_and_copies() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).cuda().t()
    tensor.mul_(2)
    again = pickle.loads(pickle.dumps(tensor))
    assert again.device == tensor.device
    assert again.stride() == tensor.stride()
    assert torch.equal(again, tensor)
    for duplicate in (copy.deepcopy(tensor), copy.copy(tensor), tensor.clone()):
        assert duplicate.device == tensor.device
        assert torch.equal(duplicate, tensor)
    parameter = torch.nn.Parameter(tensor)
    twin = copy.deepcopy(parameter)
    assert isinstance(twin, torch.nn.Parameter)
    assert twin.device == tensor.device
    assert twin.data_ptr() != parameter.data_ptr()
    base = torch.zeros(4).cuda()
    first, second = copy.deepcopy([base, base[1:]])
    first.add_(1)
    assert second.tolist() == [1, 1, 1]  # they still share one storage


@on_virtual_gpu()
def test_saving_and_loading() -> None:
    made = {"w": torch.arange(4.0).cuda() + 1, "b": torch.ones(2, dtype=torch.bfloat16).cuda()}
    made["view"] = made["w"][1:3]
    for weights_only in (True, False):
        for location, device in (
            (None, "cuda:0"),
            ("cpu", "cpu"),
            ("cuda", "cuda:0"),
            ("cuda:0", "cuda:0"),
            (torch.device("cpu"), "cpu"),
            ({"cuda:0": "cpu"}, "cpu"),
            (lambda storage, _: storage, "cpu"),
            (lambda storage, _: storage.cuda(0), "cuda:0"),
        ):
            for new in (True, False):
                file = io.BytesIO()
                torch.save(made, file, _use_new_zipfile_serialization=new)
                file.seek(0)
                found = torch.load(file, map_location=location, weights_only=weights_only)
                for name, tensor in made.items():
                    assert str(found[name].device) == device, (location, weights_only, new)
                    assert torch.equal(found[name].cpu(), tensor.cpu())
                found["w"].zero_()
                assert not found["view"].any()  # they still share one storage
    file = io.BytesIO()
    torch.save(torch.arange(3.0), file)
    file.seek(0)
    assert torch.load(file, map_location="cuda").device == torch.device("cuda:0")


@on_virtual_gpu()
def test_pinned_memory() -> None:
    pinned = torch.arange(4.0).pin_memory()
    assert pinned.is_pinned()
    assert not torch.ones(2).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert pinned.device.type == "cpu"
    device = pinned.to("cuda", non_blocking=True)
    back = device.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    assert back.tolist() == [0, 1, 2, 3]
    target = torch.empty(4).pin_memory()
    target.copy_(device * 2, non_blocking=True)
    torch.cuda.synchronize()
    assert target.tolist() == [0, 2, 4, 6]
    assert target.numpy()[1] == 2
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        device.pin_memory()


class Numbers(torch.utils.data.Dataset[Any]):
    """Squares."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((3,), float(index)), "y": index}


@on_virtual_gpu("program", "late", "random:1")
def test_batches_of_a_loader() -> None:
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=4, num_workers=workers, pin_memory=True
        )
        total = torch.zeros(3, device="cuda")
        for batch in loader:
            assert batch["x"].is_pinned()
            x = batch["x"].to("cuda", non_blocking=True)
            y = batch["y"].cuda(non_blocking=True)
            total += (x * y[:, None]).sum(0)
        assert total.tolist() == [506.0] * 3


@on_virtual_gpu("program", "late")
def test_kinds_of_tensors_that_are_not_covered() -> None:
    """Sparse, quantised, nested and wrapped tensors are refused in clear words."""
    dense = torch.eye(3).cuda()
    places = torch.tensor([[0, 1], [1, 0]]).cuda()
    table = torch.nn.Embedding(4, 2, sparse=True).cuda()
    for make in (
        dense.to_sparse,
        dense.to_sparse_csr,
        lambda: torch.eye(3).to_sparse().cuda(),
        lambda: torch.eye(3).to_sparse().to("cuda"),
        lambda: torch.sparse_coo_tensor(places.cpu(), torch.ones(2), (2, 2), device="cuda"),
        lambda: torch.sparse_coo_tensor(places, torch.ones(2).cuda(), (2, 2)),
        lambda: torch.zeros(3, 3, layout=torch.sparse_coo, device="cuda"),
        lambda: torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([dense, dense]),
        lambda: torch.nested.nested_tensor([dense, dense], layout=torch.jagged),
        lambda: table(places).sum().backward(),
    ):
        with pytest.raises(NotImplementedError, match="not covered by StreamSan's virtual GPU"):
            make()
    assert torch.equal(torch.eye(3).to_sparse().to_dense(), torch.eye(3))
    assert dense.sum().item() == 3

"""Making tensors on the device, in every way that a program can name it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.virtual.agree import on_virtual_gpu, same_as_cpu

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


@same_as_cpu
def test_factories(device: str) -> Any:
    return {
        "zeros": torch.zeros(3, 4, device=device),
        "ones": torch.ones((2, 3), dtype=torch.int32, device=device),
        "full": torch.full((2, 2), 7.5, device=device),
        "full_bool": torch.full((2,), True, device=device),
        "arange": torch.arange(10, device=device),
        "arange_step": torch.arange(1, 2, 0.25, device=device),
        "linspace": torch.linspace(0, 1, 5, device=device),
        "logspace": torch.logspace(0, 2, 3, device=device),
        "eye": torch.eye(3, device=device),
        "eye2": torch.eye(3, 5, dtype=torch.bfloat16, device=device),
        "tril": torch.tril_indices(4, 4, device=device),
        "triu": torch.triu_indices(4, 3, 1, device=device),
        "tensor": torch.tensor([[1, 2], [3, 4]], device=device),
        "scalar": torch.tensor(3.5, device=device),
        "scalar_tensor": torch.scalar_tensor(2, device=device),
        "empty_shape": torch.zeros(0, 3, device=device),
        "window": torch.hann_window(8, device=device),
        "kaiser": torch.kaiser_window(8, device=device),
        "hamming": torch.hamming_window(7, device=device),
        "complex": torch.complex(torch.ones(2, device=device), torch.zeros(2, device=device)),
        "polar": torch.polar(torch.ones(2, device=device), torch.ones(2, device=device)),
        "cartesian": torch.cartesian_prod(
            torch.arange(2, device=device), torch.arange(3, device=device)
        ),
        "vander": torch.vander(torch.arange(3, device=device)),
        "block_diag": torch.block_diag(torch.ones(2, 2, device=device)),
        "heaviside": torch.heaviside(
            torch.arange(-1.0, 2, device=device), torch.tensor(0.5, device=device)
        ),
        "requires_grad": torch.zeros(2, device=device, requires_grad=True),
        "channels": torch.zeros(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last),
        "strided": torch.empty_strided((2, 3), (1, 2), device=device).fill_(1),
        "permuted": torch.empty_permuted((2, 3, 4), (2, 0, 1), device=device).fill_(1),
    }


@same_as_cpu
def test_factories_of_each_dtype(device: str) -> Any:
    found = []
    for dtype in DTYPES:
        one = torch.ones(4, dtype=dtype, device=device)
        found += [
            one,
            torch.zeros(3, dtype=dtype, device=device),
            one.clone(),
            torch.tensor([1, 0, 1], dtype=dtype, device=device),
            torch.full((3,), 1, dtype=dtype, device=device),
            one == one,
            torch.where(one == one, one, torch.zeros_like(one)),
            torch.cat([one, one]),
        ]
    return found


@same_as_cpu
def test_conversions_between_dtypes(device: str) -> Any:
    values = torch.tensor([0.0, 1.0, 2.5, 100.0], device=device)
    found = [values.to(a).to(b) for a in DTYPES for b in DTYPES if not a.is_complex]
    return [*found, values.half(), values.double(), values.int(), values.bool(), values.bfloat16()]


@same_as_cpu
def test_tensors_like_others(device: str) -> Any:
    base = torch.arange(24.0, device=device).reshape(2, 3, 4)
    tilted = base.permute(2, 0, 1)
    return {
        "zeros_like": torch.zeros_like(base),
        "ones_like": torch.ones_like(tilted),
        "full_like": torch.full_like(tilted, 3),
        "int": torch.zeros_like(base, dtype=torch.int64),
        "empty_like": torch.empty_like(tilted).copy_(tilted),
        "contiguous": torch.empty_like(tilted, memory_format=torch.contiguous_format).zero_(),
        "new_zeros": base.new_zeros(2, 2),
        "new_ones": base.new_ones((2, 2), dtype=torch.int8),
        "new_full": base.new_full((2,), 9),
        "new_tensor": base.new_tensor([1, 2, 3]),
        "new_empty": base.new_empty(3).fill_(1),
        "new_empty_strided": base.new_empty_strided((2, 3), (1, 2)).fill_(2),
        "of_device": torch.zeros_like(torch.ones(2), device=device),
        "to_other": torch.arange(3).to(base),
        "type_as": torch.arange(3).type_as(base),
        "clone": tilted.clone(),
        "clone_contiguous": tilted.clone(memory_format=torch.contiguous_format),
        "randn_like": torch.randn_like(base).shape,
    }


@same_as_cpu
def test_data_from_the_host(device: str) -> Any:
    import numpy as np

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    return [
        torch.tensor(array, device=device),
        torch.as_tensor(array, device=device),
        torch.asarray(array, device=device),
        torch.from_numpy(array).to(device),
        torch.as_tensor([1, 2], device=device),
        torch.asarray([1.0, 2.0], dtype=torch.float64, device=device),
        torch.tensor([], device=device),
        torch.tensor([[]], device=device),
        torch.tensor([True, False], device=device),
        torch.tensor([1 + 2j], device=device),
        torch.tensor([torch.tensor(1), torch.tensor(2)], device=device),
        torch.tensor(np.float64(2.0), device=device),
        torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8).to(device),
    ]


@on_virtual_gpu("program", "late", devices=2)
def test_ways_to_name_the_device() -> None:
    zero, one = torch.device("cuda", 0), torch.device("cuda", 1)
    for name in (zero, "cuda", "cuda:0", 0, torch.device("cuda"), torch.device(0)):
        made = torch.ones(3, device=name)
        assert made.device == zero, name
        assert made.is_cuda
        assert made.get_device() == 0
        assert torch.ones(3).to(name).device == zero
        assert torch.ones(3).cuda().device == zero
    assert torch.ones(2, device=1).device == one
    assert torch.ones(2).cuda(1).device == one
    assert torch.ones(2).to("cuda:1").device == one
    with torch.cuda.device(1):
        assert torch.ones(2, device="cuda").device == one
        assert torch.ones(2).cuda().device == one
        assert torch.tensor([1], device="cuda").device == one
    with torch.device("cuda:1"):
        for made in (
            torch.ones(2),
            torch.tensor([1.0]),
            torch.arange(3),
            torch.empty(2),
            torch.randn(2),
            torch.as_tensor([1]),
            torch.nn.Linear(2, 2).weight,
        ):
            assert made.device == one
    assert torch.ones(2).device == torch.device("cpu")
    torch.set_default_device("cuda")
    assert torch.ones(2).device == zero
    assert torch.tensor([1]).device == zero
    assert torch.nn.Linear(2, 2).weight.device == zero
    assert torch.ones(2, device="cpu").device == torch.device("cpu")
    assert torch.get_default_device() == zero
    torch.set_default_device(None)
    assert torch.ones(2).device == torch.device("cpu")
    torch.cuda.set_device(1)
    assert torch.ones(2, device="cuda").device == one
    assert torch.nn.Linear(2, 2, device=0).to(1).weight.device == one
    assert torch.nn.Linear(2, 2).to(device=0).weight.device == zero
    assert torch.nn.Linear(2, 2).cuda(1).weight.device == one
    assert torch.ones(2, device=torch.ones(1, device="cuda:0").device).device == zero


@on_virtual_gpu("program")
def test_torch_device_is_a_plain_value() -> None:
    import copy
    import pickle

    device = torch.ones(1, device="cuda").device
    assert str(device) == "cuda:0"
    assert repr(device) == "device(type='cuda', index=0)"
    assert hash(device) == hash(torch.device("cuda:0"))
    assert device != torch.device("cpu")
    assert device != torch.device("cuda")  # no index: another value, as on a CUDA build
    assert pickle.loads(pickle.dumps(device)) == device
    assert copy.deepcopy(device) == device
    assert isinstance(device, torch.device)
    assert not isinstance("cuda", torch.device)
    assert {device: 1}[torch.device("cuda", 0)] == 1


@on_virtual_gpu("program", "late")
def test_fresh_memory_is_nan_like() -> None:
    floats = [torch.empty(64, device="cuda", dtype=dtype) for dtype in DTYPES[6:]]
    whole = [torch.empty(64, device="cuda", dtype=dtype) for dtype in DTYPES[2:6]]
    assert all(fresh.isnan().all() for fresh in floats)
    assert all((fresh == -1).all() for fresh in whole)


@on_virtual_gpu("program")
def test_devices_that_are_not_there() -> None:
    import pytest

    for name in ("cuda:1", 3, torch.device("cuda", 7)):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(2, device=name)
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(2).to(name)


@same_as_cpu
def test_copies_of_numbers(device: str) -> Any:
    """Operators called by their names take numbers for tensors."""
    x = torch.zeros(3, device=device)
    copy_, to_copy = torch.ops.aten.copy_, torch.ops.aten._to_copy
    place = torch.device(device)
    return {
        "copied": copy_(x, 2.5).clone(),
        "again": copy_(x, 3, True),
        "host": copy_(torch.zeros(2, dtype=torch.int64), 2.7),
        "made": [to_copy(number, device=place) for number in (7, 2.5, True, 1j)],
        "converted": to_copy(7, dtype=torch.float16, device=place) + 1,
        "on host": to_copy(7),
    }


@on_virtual_gpu("program", "late")
def test_tensors_without_memory_are_made_of_those_of_a_device() -> None:
    x = torch.ones(2, 3, device="cuda").t()
    for shape in (x.to("meta"), x.to("meta", torch.float16), torch.empty_like(x, device="meta")):
        assert shape.is_meta
        assert (shape.shape, shape.stride()) == (x.shape, x.stride())
    assert x.to("meta", torch.float16).dtype == torch.float16
    target = torch.empty(3, 2, device="meta")
    assert target.copy_(x) is target
    with pytest.raises(NotImplementedError, match="no data"):
        x.copy_(target)
    model = torch.nn.Linear(3, 2).cuda().to("meta")
    assert model.weight.is_meta

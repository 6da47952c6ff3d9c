"""What libraries ask of torch: the device of a tensor in every form, transforms, own operators.

Each test is a fault that a program of ``programs/`` or its library met, in plain torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.virtual.agree import on_virtual_gpu, same_as_cpu


@same_as_cpu
def test_made_like_another_tensor(device: str) -> Any:
    """A host tensor and one of the device, each the model for new ones (botorch, old scripts)."""
    host, there = torch.arange(3.0), torch.arange(3.0, device=device)
    return {
        "module": nn.LayerNorm(2).to(there).weight.detach(),
        "type_as": host.type_as(there),
        "type_as dtype": torch.arange(3, device=device).type_as(there),
        "new": there.new([1, 2]),
        "new of sizes": there.new(2, 3).zero_(),
        "new_tensor": there.new_tensor([1, 2]),
        "new_tensor dtype": there.new_tensor([1, 2], dtype=torch.int64),
        "new_tensor elsewhere": host.new_tensor([1, 2], device=device),
        "range": torch.linspace(there[0], there[2], 5, device=device),
        "range of powers": torch.logspace(there[0], end=there[1], steps=3, device=device),
        "new_tensor of a tensor": there.new_tensor(torch.arange(2)),
    }


@on_virtual_gpu("program")
def test_where_made_like_another_tensor() -> None:
    host, there = torch.ones(3), torch.ones(3, device="cuda")
    made = [
        nn.Linear(2, 2).to(there).weight,
        host.type_as(there),
        there.new([1, 2]),
        there.new(2, 3),
        there.new_tensor([1.0]),
        host.new_tensor([1.0], device="cuda"),
    ]
    assert [tensor.device for tensor in made] == [torch.device("cuda", 0)] * len(made)
    assert there.type_as(host).device.type == "cpu"
    assert nn.Linear(2, 2).to(there).to(host).weight.device.type == "cpu"
    assert (torch.get_device(there), torch.get_device(host)) == (0, -1)


@on_virtual_gpu("program")
def test_default_tensor_type() -> None:
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    assert (torch.zeros(2).device.type, torch.zeros(2).dtype) == ("cuda", torch.float64)
    kinds: Any = torch.cuda
    torch.set_default_tensor_type(kinds.FloatTensor)
    assert (torch.rand(2).device.type, torch.rand(2).dtype) == ("cuda", torch.float32)
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(2).device.type == "cpu"


@on_virtual_gpu("program")
def test_values_in_pinned_memory() -> None:
    pinned = torch.tensor([1.0, 2.0], pin_memory=True, requires_grad=True)
    assert pinned.is_pinned()
    assert pinned.is_leaf
    assert pinned.requires_grad
    assert not torch.tensor([1.0], pin_memory=False).is_pinned()


@same_as_cpu
def test_tensors_made_inside_of_transforms(device: str) -> Any:
    x = torch.arange(6.0, device=device).reshape(3, 2)

    def with_constants(row: Tensor) -> Tensor:
        return row * torch.full((2,), 2.0, device=row.device) + torch.tensor(0.5, device=row.device)

    return {
        "vmap": torch.func.vmap(with_constants)(x),
        "new_ones": torch.func.vmap(lambda row: row + row.new_ones(()))(x),
        "grad": torch.func.grad(lambda t: with_constants(t).sum() ** 2)(x[0]),
        "both": torch.func.vmap(torch.func.grad(lambda t: with_constants(t).prod()))(x),
        "jacobian": torch.func.jacrev(with_constants)(x[1]),
    }


@same_as_cpu
def test_higher_order_operators(device: str) -> Any:
    x = torch.arange(3.0, device=device).requires_grad_()
    y = torch.cond(x.sum() > 1, lambda t: t * t, lambda t: t - 1, (x,))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    (looped,) = torch.while_loop(lambda t: t.sum() < 20, lambda t: (t + 1,), (x.detach(),))
    return {"branch": y, "gradient": gradient, "loop": looped}


@on_virtual_gpu("program", "late")
def test_flexible_attention_is_differentiated() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 128, 16, device="cuda", requires_grad=True) for _ in range(3))
    attention = torch.compile(flex_attention)
    found = torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    wanted = torch.autograd.grad(plain.square().sum(), (q, k, v))
    for ours, theirs in zip(found, wanted):
        torch.testing.assert_close(ours, theirs)


@same_as_cpu
def test_own_operators(device: str) -> Any:
    @torch.library.custom_op("streamsan_tests::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    double.register_autograd(lambda _, gradient: gradient * 2)

    @torch.library.custom_op("streamsan_tests::add_one", mutates_args=("x",), device_types="cpu")
    def add_one(x: Tensor) -> None:
        x.add_(1)

    @add_one.register_kernel("cuda")
    def _(x: Tensor) -> None:
        x.add_(torch.ones(1, device=x.device))

    x = torch.arange(3.0, device=device, requires_grad=True)
    y = double(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    z = y.detach().clone()
    add_one(z)
    return {"value": y, "gradient": gradient, "mutated": z}


@on_virtual_gpu("late")
def test_kernels_registered_for_cuda_are_chosen_by_the_tensors() -> None:
    library = torch.library.Library("streamsan_tests2", "DEF")
    library.define("where(Tensor x) -> Tensor")
    library.define("where.scaled(Tensor x, float scale) -> Tensor")
    library.impl("where.scaled", lambda x, scale: x + scale, "CUDA")
    library.impl("where", lambda x: x + 1, "CUDA")
    where = torch.ops.streamsan_tests2.where
    assert where(torch.zeros(2, device="cuda")).tolist() == [1, 1]
    assert where(torch.zeros(2, device="cuda"), 3.0).tolist() == [3, 3]
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        where(torch.zeros(2))
    library.impl("where", lambda x: x + 2, "CPU")
    assert where(torch.zeros(2)).tolist() == [2, 2]
    assert where(torch.zeros(2, device="cuda")).tolist() == [1, 1]


@same_as_cpu
def test_functions_of_host_tensors_after_work_of_the_device(device: str) -> Any:
    """What C++ makes for itself is made where the arguments are, not where the last work was."""
    host = torch.arange(6.0).reshape(2, 3)

    def after(function: Callable[[], Any]) -> Any:
        torch.ones(3, device=device).add_(1)
        return function()

    calls: dict[str, Callable[[], Any]] = {
        "quantile": lambda: torch.quantile(host, 0.5),
        "nanquantile": lambda: host.nanquantile(0.3, dim=1),
        "cov": host.cov,
        "corrcoef": lambda: torch.corrcoef(host),
        "combinations": lambda: torch.combinations(host[0]),
        "pinv": lambda: torch.linalg.pinv(host),
        "pinverse": host.pinverse,
        "rank": lambda: torch.linalg.matrix_rank(host),
        "circular": lambda: F.pad(host[None], (1, 1), mode="circular"),
        "sobol": lambda: torch.quasirandom.SobolEngine(2, scramble=True, seed=1).draw(3),
        "istft": lambda: torch.istft(host.to(torch.complex64), 2, 1),
        **_dropouts(host),
    }
    return {name: after(call) for name, call in calls.items()}


def _dropouts(tensor: Tensor) -> dict[str, Callable[[], Any]]:
    """Calls that leave nothing of a tensor: what they multiply it by is made first."""
    names = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    functions = [getattr(torch, name + ending) for name in names for ending in ("", "_")]
    calls: dict[str, Callable[[], Any]] = {
        function.__name__: functools.partial(function, tensor.clone(), 1.0, True)
        for function in functions
    }
    return {**calls, "module": lambda: torch.nn.Dropout(1.0)(tensor)}


@same_as_cpu
def test_the_same_functions_after_work_of_the_host(device: str) -> Any:
    there = torch.arange(6.0, device=device).reshape(2, 3)

    def after(function: Callable[[], Any]) -> Any:
        torch.ones(3).add_(1)
        return function()

    calls: dict[str, Callable[[], Any]] = {
        "quantile": lambda: torch.quantile(there, 0.5),
        "cov": there.cov,
        "combinations": lambda: torch.combinations(there[0]),
        "pinv": lambda: torch.linalg.pinv(there),
        "rank": lambda: torch.linalg.matrix_rank(there),
        "circular": lambda: F.pad(there[None], (1, 1), mode="circular"),
        "istft": lambda: torch.istft(there.to(torch.complex64), 2, 1),
        **_dropouts(there),
    }
    return {name: after(call) for name, call in calls.items()}


@on_virtual_gpu("program")
def test_replaced_functions_can_be_scripted() -> None:
    assert torch.jit.script(torch.nn.Dropout(1.0))(torch.ones(3)).tolist() == [0, 0, 0]

    def shifted(x: Tensor, scale: float) -> Tensor:
        return x * torch.tensor(scale) + torch.quantile(x, 0.5)

    scripted = torch.jit.script(shifted)
    assert scripted(torch.tensor([1.0, 3.0]), 2.0).tolist() == [4.0, 8.0]


@same_as_cpu
def test_distributions_check_their_values(device: str) -> Any:
    """Whether all elements are true is a question to the bytes, which may not be there yet."""
    scale = torch.ones(3, device=device) * 2
    normal = torch.distributions.LogNormal(torch.zeros(3, device=device), scale, validate_args=True)
    valid = torch._is_all_true((scale * 3) > 5)
    return {"log_prob": normal.log_prob(scale / 3), "all": valid, "any": torch._is_any_true(~valid)}


@on_virtual_gpu("program", "late")
def test_encoder_with_padding_in_evaluation() -> None:
    """On CUDA it makes a nested tensor; its dense path gives the same where nothing is padded."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    x = torch.randn(2, 5, 8)
    with torch.inference_mode():
        wanted = encoder(x, src_key_padding_mask=padding)
        found = encoder.to("cuda")(x.to("cuda"), src_key_padding_mask=padding.to("cuda"))
    torch.testing.assert_close(found.cpu()[~padding], wanted[~padding])


@on_virtual_gpu("program")
def test_own_operator_that_makes_a_tensor() -> None:
    @torch.library.custom_op("streamsan_tests3::fours", mutates_args=())
    def fours(device: torch.device) -> Tensor:
        return torch.ones(3, device=device) * 4

    assert fours(torch.device("cuda", 0)).tolist() == [4, 4, 4]
    assert fours(torch.device("cpu")).device.type == "cpu"


@on_virtual_gpu("program", "late")
def test_work_enqueued_in_inference_mode_ends_outside_of_it() -> None:
    with torch.inference_mode():
        there = torch.full((3,), 2.5, dtype=torch.float64, device="cuda") * 2
    again = torch.ones(3, dtype=torch.float64, device="cuda", requires_grad=True)
    (again * 3).sum().backward()
    assert (there.tolist(), again.grad.tolist()) == ([5.0] * 3, [3.0] * 3)  # type: ignore[union-attr]


@on_virtual_gpu("program", "late")
def test_products_with_a_wider_type() -> None:
    """Of two small types into a larger one: only CUDA has kernels for that."""
    kind = {"dtype": torch.bfloat16, "device": "cuda"}
    a, b = torch.randn(3, 4, **kind), torch.randn(4, 5, **kind)  # type: ignore[call-overload]
    start = torch.ones(3, 5, device="cuda")
    wide, given = a.float() @ b.float(), torch.empty(3, 5, device="cuda")
    products: Any = torch
    assert torch.equal(products.mm(a, b, out_dtype=torch.float32), wide)
    products.mm(a, b, out_dtype=torch.float32, out=given)
    assert torch.equal(given, wide)
    assert torch.equal(products.bmm(a[None], b[None], out_dtype=torch.float32)[0], wide)
    added = products.addmm(start, a, b, out_dtype=torch.float32, beta=2)
    assert torch.allclose(added, wide + 2)
    batch = products.baddbmm(start[None], a[None], b[None], out_dtype=torch.float32)
    assert torch.allclose(batch[0], wide + 1)


@on_virtual_gpu("program")
def test_functions_from_source_are_refused_when_they_are_called() -> None:
    source = "template <typename T> T twice(T x) { return x + x; }"
    function = torch.cuda.jiterator._create_jit_fn(source)
    with pytest.raises(NotImplementedError, match=r"jiterator\._create_jit_fn is not"):
        function(torch.ones(2, device="cuda"))

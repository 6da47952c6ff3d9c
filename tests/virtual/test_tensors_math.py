"""Arithmetic, reductions, linear algebra and transforms."""

from __future__ import annotations

from typing import Any

import torch

from tests.virtual.agree import same_as_cpu


def _random(device: str, *shape: int, seed: int = 1, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).to(device)


@same_as_cpu
def test_elementwise(device: str) -> Any:
    x, y = _random(device, 3, 5), _random(device, 3, 5, seed=2)
    found = [
        getattr(torch, name)(x)
        for name in (
            "abs",
            "acos",
            "asinh",
            "atan",
            "ceil",
            "cos",
            "cosh",
            "deg2rad",
            "digamma",
            "erf",
            "erfc",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "frac",
            "i0",
            "isfinite",
            "isinf",
            "isnan",
            "lgamma",
            "log",
            "log10",
            "log1p",
            "log2",
            "logit",
            "neg",
            "positive",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "sgn",
            "sigmoid",
            "sign",
            "signbit",
            "sin",
            "sinc",
            "sinh",
            "sqrt",
            "square",
            "tan",
            "tanh",
            "trunc",
            "angle",
        )
    ]
    found += [
        getattr(torch, name)(x, y)
        for name in (
            "add",
            "atan2",
            "div",
            "dist",
            "eq",
            "float_power",
            "floor_divide",
            "fmax",
            "fmin",
            "fmod",
            "ge",
            "hypot",
            "ldexp",
            "logaddexp",
            "logical_and",
            "maximum",
            "minimum",
            "mul",
            "ne",
            "nextafter",
            "pow",
            "remainder",
            "sub",
            "xlogy",
            "copysign",
        )
    ]
    found += [x + 1, 1 - x, 2 / x, x // 2, x % 2, 2**x, x**2, -x, +x, abs(x), x > y, ~(x > 0)]
    found += [(x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), x.lerp(y, 0.3), x.clamp(-1)]
    found += [
        torch.addcmul(x, x, y, value=2),
        torch.addcdiv(x, x, y),
        x.clip(-1, 0.5),
        x.mul(y.half()),
    ]
    found += [x @ y.t(), x + torch.tensor(2.0), x.div(3, rounding_mode="floor"), torch.frexp(x)]
    whole = torch.arange(6, device=device)
    found += [
        whole << 1,
        whole >> 1,
        whole & 3,
        whole | 8,
        whole ^ 5,
        ~whole,
        torch.gcd(whole, whole),
    ]
    return found


@same_as_cpu
def test_reductions(device: str) -> Any:
    x = _random(device, 4, 3, 5)
    return [
        x.sum(),
        x.sum(0),
        x.sum((0, 2), keepdim=True),
        x.sum(dtype=torch.float64),
        x.mean(),
        x.mean(1),
        x.prod(),
        x.prod(1),
        x.var(),
        x.var(0, unbiased=False),
        x.std(1),
        x.norm(),
        x.norm(1, 2),
        x.norm(float("inf")),
        x.logsumexp(1),
        x.softmax(-1),
        x.log_softmax(0),
        x.cumsum(1),
        x.cumprod(2),
        x.amax(1),
        x.amin((0, 1)),
        x.all(),
        x.any(0),
        (x > 0).sum(),
        (x > 0).all(1),
        x.nansum(),
        x.nanmean(),
        torch.var_mean(x, 1),
        torch.std_mean(x),
        x.max(),
        x.min(),
        x.argmin(2),
        x.count_nonzero(),
        torch.linalg.vector_norm(x, 3),
        x.half().sum(),
        x.bfloat16().mean(1),
        x.double().sum(),
        x.int().sum(),
        x.bool().any(),
        torch.cov(x[:, 0]),
        torch.corrcoef(x[:, 0]),
        x.renorm(2, 0, 1.0),
        torch.cdist(x[:, 0], x[:, 1]),
        x.nanmedian(),
    ]


@same_as_cpu
def test_matrix_products(device: str) -> Any:
    a, b, v = _random(device, 3, 4), _random(device, 4, 5, seed=2), _random(device, 4, seed=3)
    batch, other = _random(device, 2, 3, 4, seed=4), _random(device, 2, 4, 5, seed=5)
    c, bc = _random(device, 3, 5, seed=6), _random(device, 2, 3, 5, seed=7)
    found = [
        a @ b,
        a @ v,
        v @ v,
        torch.mm(a, b),
        torch.bmm(batch, other),
        torch.matmul(batch, b),
        torch.addmm(c, a, b, alpha=2),
        torch.baddbmm(bc, batch, other, beta=0.5),
        a.mv(v),
        torch.addmv(a[:, 0], a, v),
        torch.addbmm(c, batch, other),
        torch.ger(v, v),
        v.outer(v),
        torch.einsum("ij,jk->ik", a, b),
        torch.einsum("bij,bjk->bik", batch, other),
        torch.einsum("bij->b", batch),
        torch.einsum("i,i", v, v),
        torch.einsum("ii->i", a[:3, :3]),
        torch.tensordot(batch, b, 1),
        torch.inner(a, a),
        torch.chain_matmul(a, b, c.t()),
        torch.linalg.multi_dot([a, b, c.t()]),
        a.t() @ a,
        (b.t() @ a.t()).t(),
        v.dot(v),
        v.vdot(v),
        torch.addr(torch.zeros(4, 4, device=device), v, v),
        batch @ v,
        batch.mT @ batch,
    ]
    c.addmm_(a, b, beta=0.1)
    bc.baddbmm_(batch, other)
    half = [
        torch.mm(a.half(), b.half()),
        torch.mm(a.bfloat16(), b.bfloat16()),
        a.double() @ b.double(),
    ]
    whole = torch.arange(4, device=device).reshape(2, 2)
    return found, c, bc, half, whole @ whole


@same_as_cpu
def test_linear_algebra(device: str) -> Any:
    a = _random(device, 4, 4, dtype=torch.float64) + 4 * torch.eye(4, device=device)
    b = _random(device, 4, 2, seed=2, dtype=torch.float64)
    spd = a @ a.mT
    lower = torch.linalg.cholesky(spd)
    found = [
        torch.linalg.inv(a),
        torch.linalg.det(a),
        torch.linalg.slogdet(a),
        torch.linalg.solve(a, b),
        torch.linalg.lstsq(a, b).solution,
        torch.linalg.qr(a),
        torch.linalg.svd(a),
        lower,
        torch.linalg.svdvals(a),
        torch.linalg.eigh(spd),
        torch.linalg.eigvalsh(spd),
        torch.linalg.matrix_rank(a),
        torch.linalg.pinv(a),
        torch.linalg.matrix_exp(a / 10),
        torch.linalg.matrix_power(a, 3),
        torch.linalg.norm(a),
        torch.linalg.cond(a),
        a.trace(),
        torch.linalg.lu(a),
        torch.linalg.lu_factor(a),
        torch.cholesky_solve(b, lower),
        torch.linalg.solve_triangular(lower, b, upper=False),
        torch.linalg.eig(a),
        torch.linalg.matrix_norm(a, "nuc"),
        torch.linalg.cross(a[:, :3], a[:, 1:]),
        a.logdet(),
        torch.linalg.inv_ex(a),
        torch.triangular_solve(b, lower, upper=False),
        a.tril(-1),
        a.triu(),
        torch.linalg.householder_product(*torch.geqrf(a)),
        torch.linalg.vecdot(a, a),
        a.diag(),
        torch.diag_embed(a),
        torch.linalg.vander(a[0]),
        torch.linalg.ldl_factor(spd)[0],
        a.inverse(),
    ]
    return [_rounded(x) for x in found]  # LAPACK's last bits depend on where its arguments lie


def _rounded(found: Any) -> Any:
    if isinstance(found, tuple):
        return [_rounded(x) for x in found]
    if found.is_complex():
        return _rounded(torch.view_as_real(found))
    return (found.cpu() * 1e8).round() + 0.0 if found.is_floating_point() else found


@same_as_cpu
def test_transforms(device: str) -> Any:
    x, y = _random(device, 2, 8), _random(device, 2, 4, 6, seed=2)
    spectrum = torch.fft.fft(x)
    return [
        spectrum,
        torch.fft.ifft(spectrum),
        torch.fft.rfft(x),
        torch.fft.irfft(torch.fft.rfft(x)),
        torch.fft.fft2(y),
        torch.fft.ifft2(torch.fft.fft2(y)),
        torch.fft.rfftn(y),
        spectrum.real,
        torch.fft.fftshift(x),
        torch.fft.hfft(spectrum),
        torch.fft.fftfreq(8, device=device),
        torch.fft.rfft2(y, norm="ortho"),
        spectrum.abs(),
        spectrum.angle(),
        spectrum.conj() * spectrum,
        torch.stft(x, 4, window=torch.hann_window(4, device=device), return_complex=True),
        torch.istft(
            torch.stft(x, 4, window=torch.ones(4, device=device), return_complex=True),
            4,
            window=torch.ones(4, device=device),
        ),
    ]


@same_as_cpu
def test_complex_numbers(device: str) -> Any:
    z = torch.view_as_complex(_random(device, 3, 4, 2))
    w = z.conj()
    w2 = z.clone()
    w2.conj().imag.add_(1)
    out = torch.empty(3, 3, dtype=torch.complex64, device=device)
    torch.mm(z, w.t(), out=out)
    target = torch.empty_like(z)
    target.copy_(w)
    written = torch.zeros_like(z)
    written.conj().copy_(z)
    return [
        z + w,
        z * w,
        z @ w.t(),
        z.mH @ z,
        w.resolve_conj(),
        w.imag.resolve_neg(),
        z.abs(),
        z.exp(),
        torch.view_as_real(w.resolve_conj()),
        w.sum(),
        w.real,
        -w.imag,
        w.clone(),
        w.contiguous(),
        out,
        torch.cat([w, z]),
        torch.stack([w.imag, z.real]),
        w.tolist(),
        w[0, 0].item(),
        target,
        written,
        w.is_conj(),
        w.imag.is_neg(),
        w.cpu().resolve_conj().to(device),
        w2,
        z.conj_physical(),
        torch.complex(z.real, w.imag),
        z.pow(2),
        z == w,
        z.sqrt(),
        torch.polar(z.abs(), z.angle()),
    ]


@same_as_cpu
def test_lists_of_tensors(device: str) -> Any:
    many = [_random(device, n, seed=n) for n in (2, 3, 4)]
    found = [
        torch._foreach_add(many, 1),
        torch._foreach_mul(many, many),
        torch._foreach_sqrt(many),
        torch._foreach_norm(many),
        torch._foreach_addcdiv(many, many, many, 0.5),
        torch._foreach_lerp(many, many, 0.5),
        torch._foreach_maximum(many, 0),
        torch._foreach_max(many),
    ]
    own = [x.clone() for x in many]
    torch._foreach_add_(own, many, alpha=2)
    torch._foreach_mul_(own, torch.tensor(2.0, device=device))
    torch._foreach_div_(own, [1.0, 2.0, 3.0])
    torch._foreach_copy_(many, own)
    torch._foreach_zero_(own[:1])
    return found, own, many

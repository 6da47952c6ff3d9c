"""The kernels whose intermediate code lies beside this file, and how it is made.

``python kernels.py`` (with Triton 3.6; no GPU is needed) compiles them for an H100 and writes the
texts. Nothing else imports this module: Triton is not among what the tests need.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ARG001, B007, N803, SIM108

import re
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(out_ptr + o, tl.load(x_ptr + o, mask=m) + tl.load(y_ptr + o, mask=m), mask=m)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc += tl.dot(tl.load(a), tl.load(b))
        a += BK
        b += BK * N
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


@triton.jit
def histogram(x_ptr, h_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0)
    tl.atomic_add(h_ptr + x, 1, mask=o < n)


@triton.jit
def rotate(a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    p = a_ptr + o
    q = b_ptr + o
    for i in range(n):
        tl.store(q, tl.load(p) + 1)
        p += BLOCK
        q += BLOCK


@triton.jit
def choose(a_ptr, b_ptr, out_ptr, flag, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    if flag > 3:
        p = a_ptr
    else:
        p = b_ptr
    tl.store(out_ptr + o, tl.load(p + o))


@triton.jit(noinline=True)
def put(p, v):
    tl.store(p, v)


@triton.jit
def outlined(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    if n == 7:
        return
    for i in range(4):
        put(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def described(x_ptr, y_ptr, M, N, B: tl.constexpr):
    a = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [B, B])
    b = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [B, B])
    i = tl.program_id(0) * B
    b.store([i, 0], a.load([i, 0]) * 2)


@triton.jit
def host_described(a, b, B: tl.constexpr):
    i = tl.program_id(0) * B
    b.atomic_add([i, 0], a.load([i, 0]))


@triton.jit
def blocks(x_ptr, y_ptr, M, N, B: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (0, 0), (B, B), (1, 0))
    q = tl.make_block_ptr(y_ptr, (M, N), (N, 1), (0, 0), (B, B), (1, 0))
    for _ in range(4):
        tl.store(q, tl.load(p, boundary_check=(0, 1)), boundary_check=(0, 1))
        p = tl.advance(p, (0, B))
        q = tl.advance(q, (0, B))


@triton.jit
def indirect(table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    p = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + o, tl.load(p + o))


@triton.jit
def combine(a, b):
    return a + b


@triton.jit
def rowsum(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + o, mask=o < n, other=0.0)
    s = tl.associative_scan(x, 0, combine)
    tl.store(y_ptr + tl.program_id(0), tl.sum(s, 0))


@triton.jit
def spin(lock_ptr, x_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(x_ptr + o, tl.load(x_ptr + o) + 1)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def walk(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    p = x_ptr
    i = 0
    while i < n:
        tl.store(y_ptr + i, tl.load(p))
        p += 1
        i += 2


@triton.jit
def assembly(x_ptr, y_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    a = tl.inline_asm_elementwise(
        "ld.global.cg.b32 $0, [$1];", "=r,l", [x_ptr + o], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(y_ptr + o, a)


@triton.jit
def tuples(ps, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(ps[1] + o, tl.load(ps[0] + o))


@triton.jit
def persistent(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tiles = tl.cdiv(n, BLOCK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        o = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n), mask=o < n)


@triton.jit
def grouped(c_ptr, M, N, B: tl.constexpr, GROUP: tl.constexpr):
    p = tl.program_id(0)
    columns = tl.cdiv(N, B)
    width = GROUP * columns
    group = p // width
    rows = min(tl.cdiv(M, B) - group * GROUP, GROUP)
    i = group * GROUP + (p % width) % rows
    j = (p % width) // rows
    m = i * B + tl.arange(0, B)
    n = j * B + tl.arange(0, B)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * N + n[None, :], 1.0, mask=inside)


@triton.jit
def part(out_ptr, first, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + first + o, 1.0, mask=o < n)


@triton.jit
def columns(out_ptr, pitch, first, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, WIDTH)
    at = r[:, None] * pitch + first + c[None, :]
    tl.store(out_ptr + at, 0.0, mask=(r < rows)[:, None])


@triton.jit
def backwards(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = n - 1 - (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o >= 0), mask=o >= 0)


@triton.jit
def branches(a_ptr, b_ptr, flag, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    if flag > 3:
        tl.store(a_ptr + o, tl.load(b_ptr + o) * 2)
    else:
        tl.store(a_ptr + BLOCK + o, tl.load(b_ptr + BLOCK + o) + 2)


KERNELS = {
    "add": ({"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}),
    "matmul": (
        {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16", "M": "i32", "N": "i32", "K": "i32"},
        {"BM": 32, "BN": 32, "BK": 32},
    ),
    "histogram": ({"x_ptr": "*i32", "h_ptr": "*i32", "n": "i32"}, {"BLOCK": 128}),
    "rotate": ({"a_ptr": "*fp32", "b_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}),
    "choose": (
        {"a_ptr": "*fp32", "b_ptr": "*fp32", "out_ptr": "*fp32", "flag": "i32"},
        {"BLOCK": 128},
    ),
    "outlined": ({"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}),
    "described": ({"x_ptr": "*fp16", "y_ptr": "*fp16", "M": "i32", "N": "i32"}, {"B": 32}),
    "host_described": (
        {"a": "tensordesc<fp16[32, 32]>", "b": "tensordesc<fp16[32, 32]>"},
        {"B": 32},
    ),
    "blocks": ({"x_ptr": "*fp16", "y_ptr": "*fp16", "M": "i32", "N": "i32"}, {"B": 32}),
    "indirect": ({"table_ptr": "*i64", "out_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}),
    "rowsum": ({"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}),
    "spin": ({"lock_ptr": "*i32", "x_ptr": "*fp32"}, {"BLOCK": 128}),
    "walk": ({"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"BLOCK": 128}),
    "assembly": ({"x_ptr": "*i32", "y_ptr": "*i32"}, {"BLOCK": 128}),
    "tuples": ({"ps": ("*fp32", "*fp32"), "n": "i32"}, {"BLOCK": 128}),
    "persistent": ({"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"BLOCK": 64}),
    "grouped": ({"c_ptr": "*fp32", "M": "i32", "N": "i32"}, {"B": 16, "GROUP": 4}),
    "part": ({"out_ptr": "*fp32", "first": "i32", "n": "i32"}, {"BLOCK": 64}),
    "columns": (
        {"out_ptr": "*bf16", "pitch": "i32", "first": "i32", "rows": "i32"},
        {"WIDTH": 16, "BLOCK": 32},
    ),
    "backwards": ({"x_ptr": "*i8", "y_ptr": "*i64", "n": "i32"}, {"BLOCK": 64}),
    "branches": ({"a_ptr": "*fp32", "b_ptr": "*fp32", "flag": "i32"}, {"BLOCK": 64}),
}


def write(folder):
    for name, (types, constants) in KERNELS.items():
        kernel = globals()[name]
        signature = {n: types.get(n, "constexpr") for n in kernel.arg_names}
        values = {(kernel.arg_names.index(n),): value for n, value in constants.items()}
        source = ASTSource(kernel, signature, values)
        text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
        text = re.sub(r'loc\("[^"]*/', 'loc("', text)  # no folder of this machine
        (folder / f"{name}.ttir").write_text(text)


if __name__ == "__main__":
    write(Path(__file__).parent)

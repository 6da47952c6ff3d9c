"""Launches and operators of generated C++ code: a library made here, in the place of one that
Inductor generates, calls another that stands for CUDA's driver and for torch's shims.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import hatch_build
from streamsan.model import records as r
from streamsan.record._accounted import is_accounted
from streamsan.record._linkage import called
from streamsan.record._native_code import supported
from streamsan.record.kernels.cubins import Cubins
from streamsan.record.kernels.generated import parameters
from streamsan.record.kernels.inductor import install_compilations
from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.shims import operator_of
from streamsan.record.kernels.wrappers import Wrappers, install_packages, install_wrappers
from tests.unit.cupti_world import FakeDriver
from tests.unit.test_cuda_operators import World, pretend

pytestmark = pytest.mark.skipif(
    not supported() or hatch_build.compiler() is None, reason="no C compiler, or another machine"
)

TTIR = (Path(__file__).parent / "ttir" / "add.ttir").read_text(encoding="utf-8")
R, W, RW = int(r.Mode.READ), int(r.Mode.WRITE), int(r.Mode.READ_WRITE)
LIKELY, POSSIBLE = int(r.Confidence.LIKELY), int(r.Confidence.POSSIBLE)

_LIBRARIES = r"""
typedef void *H;
long fails, made[2], inside; /* what the functions return; the results of top-k; a hook */
void tell(void) { if (inside) ((void (*)(void))inside)(); }
int cuModuleLoad(long *m, const char *path) { *m = 77; return fails; }
int cuModuleLoadData(long *m, const void *data) { *m = 78; return fails; }
int cuModuleGetFunction(long *f, long m, const char *name) { *f = 1000 * m + name[0]; return 0; }
int cuLaunchKernel(long f, int x, int y, int z, int a, int b, int c, int s, long stream, void **p,
                   void **e) { tell(); return fails; }
int aoti_torch_cuda_addmm_out(H out, H self, H one, H two, double beta, double alpha)
{ tell(); return beta == 0.5 && alpha == 2.5 ? fails : 1; }
int aoti_torch_cuda_topk(H self, long k, long dim, int largest, int sorted, H *v, H *i)
{ *v = (H)made[0]; *i = (H)made[1]; return fails; }
int aoti_torch_cuda_cat(const H *tensors, long n, long dim, H *out) { *out = (H)made[0]; return 0; }
int aoti_torch_cuda_nothing_of_the_kind(H self) { return 0; }
int aoti_torch_empty_strided(long n, long *s, long *t, int d, int k, int i, H *out)
{ *out = (H)made[0]; return 0; }
"""
_GENERATED = r"""
typedef void *H;
int cuModuleLoad(long *, const char *), cuModuleLoadData(long *, const void *);
int cuModuleGetFunction(long *, long, const char *);
int cuLaunchKernel(long, int, int, int, int, int, int, int, long, void **, void **);
int aoti_torch_cuda_addmm_out(H, H, H, H, double, double);
int aoti_torch_cuda_topk(H, long, long, int, int, H *, H *);
int aoti_torch_cuda_cat(const H *, long, long, H *), aoti_torch_cuda_nothing_of_the_kind(H);
int aoti_torch_empty_strided(long, long *, long *, int, int, int, H *);
long load(const char *path, const char *name)
{ long m, f;
  (path ? cuModuleLoad(&m, path) : cuModuleLoadData(&m, 0));
  cuModuleGetFunction(&f, m, name); return f; }
int launch(long f, long x, long y, long out, int n, long stream)
{ void *p[] = {&x, &y, &out, &n}; return cuLaunchKernel(f, 2, 1, 1, 128, 1, 1, 0, stream, p, 0); }
int addmm(H out, H self, H one, H two)
{ return aoti_torch_cuda_addmm_out(out, self, one, two, 0.5, 2.5); }
int topk(H self) { H v, i; return aoti_torch_cuda_topk(self, 2, -1, 1, 1, &v, &i); }
int cat(H a, H b) { H o, t[] = {a, b}; return aoti_torch_cuda_cat(t, 2, 0, &o); }
int other(H a) { return aoti_torch_cuda_nothing_of_the_kind(a); }
int empty(void) { H o; return aoti_torch_empty_strided(1, 0, 0, 6, 1, 0, &o); }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two libraries."""
    made = tmp_path_factory.mktemp("generated")
    compiler = hatch_build.compiler()
    assert compiler is not None
    for name, source, more in (
        ("libcalled.so", _LIBRARIES, []),
        ("c1.main.so", _GENERATED, [f"-L{made}", "-lcalled", f"-Wl,-rpath,{made}"]),
    ):
        text = made / (name + ".c")
        text.write_text(source, encoding="utf-8")
        command = [*compiler, "-shared", "-fPIC", str(text), "-o", str(made / name), *more]
        subprocess.run(command, check=True)
    return made


class Machine:
    """A recorder, the generated library, and what is kept alive for it."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.recorder = self.world.recorder
        self.file = folder / "c1.main.so"
        self.library = ctypes.CDLL(str(self.file))
        self.called = ctypes.CDLL(str(folder / "libcalled.so"))
        self.library.load.restype = ctypes.c_long
        self.driver = FakeDriver()
        self.cubins = Cubins(lambda: str(folder / "triton"))
        self.wrappers = Wrappers(self.recorder, Launches(self.recorder), self.cubins, self.driver)
        self._kept: list[Any] = []
        self.set("fails", 0)
        self.set("inside", 0)

    def set(self, name: str, value: int) -> None:
        ctypes.c_long.in_dll(self.called, name).value = value

    def inside(self, work: Any) -> None:
        """Do this inside of the next calls."""
        made = ctypes.CFUNCTYPE(None)(work)
        self._kept.append(made)
        self.set("inside", ctypes.cast(made, ctypes.c_void_p).value or 0)

    def handle(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        capsule = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
        return ctypes.c_void_p(get(capsule, None))

    def results(self, *tensors: torch.Tensor) -> None:
        """What the next operator makes."""
        made = (ctypes.c_long * 2).in_dll(self.called, "made")
        for i, tensor in enumerate(tensors):
            made[i] = self.handle(tensor).value or 0

    def launch(self, function: int, *args: int) -> int:
        x, y, out, n, stream = args
        longs = [ctypes.c_long(v) for v in (function, x, y, out)]
        return int(self.library.launch(*longs, n, ctypes.c_long(stream)))

    @property
    def operations(self) -> list[Any]:
        return [x for x in self.world.records if isinstance(x, r.Operation)]


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    pretend(monkeypatch, "portable")
    made = Machine(folder)
    made.wrappers.watch(str(made.file))
    yield made
    assert [x for x in made.world.records if isinstance(x, r.Note) and x.topic == "error"] == []
    assert not is_accounted()


def places(operation: Any) -> list[tuple[int, int, int, str, int]]:
    return [(a.address, a.run, a.mode, a.argument, a.confidence) for a in operation.accesses]


def loaded(machine: Machine, folder: Path, cubin: bytes) -> int:
    """The handle of the kernel `add`, which the library loads from a file of its own."""
    file = folder / "k.cubin"
    file.write_bytes(cubin)
    handle = int(machine.library.load(str(file).encode(), b"add"))
    machine.driver.kernels[handle] = (8, 8, 8, 4, 8)
    return handle


def test_a_launch_is_told_by_the_code_of_the_kernel_that_was_compiled_here(
    machine: Machine, folder: Path
) -> None:
    machine.cubins.note("add", b"another", "no code")
    machine.cubins.note("add", b"the binary", TTIR)
    function = loaded(machine, folder, b"the binary")
    x, y, out = (machine.world.tensor(256) for _ in range(3))
    machine.wrappers.kernels.given([x, y, out, 3])
    machine.inside(lambda: inside.append(is_accounted()))
    inside: list[bool] = []
    assert machine.launch(function, x.data_ptr(), y.data_ptr(), out.data_ptr(), 200, 0) == 0
    (operation,) = machine.operations
    assert (operation.name, inside) == ("triton::add", [True])
    assert places(operation) == [
        (x.data_ptr(), 800, R, "x_ptr", LIKELY),
        (y.data_ptr(), 800, R, "y_ptr", LIKELY),
        (out.data_ptr(), 800, W, "out_ptr", LIKELY),
    ]


def test_triton_s_cache_has_the_code_of_kernels_compiled_earlier(
    machine: Machine, folder: Path
) -> None:
    kept = folder / "triton" / "KEY"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "add.cubin").write_bytes(b"from the cache")
    (kept / "add.ttir").write_text(TTIR, encoding="utf-8")
    function = loaded(machine, folder, b"from the cache")
    x, out = machine.world.tensor(256), machine.world.tensor(256)
    machine.wrappers.kernels.given([x, out])
    machine.launch(function, x.data_ptr(), 0, out.data_ptr(), 256, 0)
    assert [place[:3] for place in places(machine.operations[0])] == [
        (x.data_ptr(), 1024, R),
        (out.data_ptr(), 1024, W),
    ]


def test_a_kernel_without_code_may_touch_all_that_it_is_given(
    machine: Machine, folder: Path
) -> None:
    function = loaded(machine, folder, b"compiled elsewhere")
    x = machine.world.tensor(64)
    machine.wrappers.kernels.given([x])
    machine.launch(function, x.data_ptr(), 0, 0, 64, 0)
    assert places(machine.operations[0]) == [(x.data_ptr(), 256, RW, "parameter 0", POSSIBLE)]


SOURCE = """
static inline void call_add(
    const in_ptr0_type_& in_ptr0,
    const out_ptr0_type_& out_ptr0,
){
    CUdeviceptr var_0 = reinterpret_cast<CUdeviceptr>(in_ptr0.data_ptr());
    int64_t var_1 = ks0;
    CUdeviceptr var_2 = reinterpret_cast<CUdeviceptr>(out_ptr0.data_ptr());
    int32_t var_3 = xnumel;
    CUdeviceptr global_scratch_scratch_4 = 0;
    void* kernel_args_[] = {&var_0, &var_1, &var_2, &var_3, &global_scratch_scratch_4};
    launchKernel(add, grid_0, grid_1, grid_2, 2, 8, kernel_args_, stream_);
}
static inline void call_none(){ launchKernel(none); }
"""


def test_the_source_beside_the_library_tells_reads_from_writes(
    machine: Machine, folder: Path
) -> None:
    source = machine.file.with_suffix(".cpp")
    source.write_text(SOURCE, encoding="utf-8")
    function = loaded(machine, folder, b"compiled elsewhere")
    source.unlink()
    x, out = machine.world.tensor(64), machine.world.tensor(64)
    machine.wrappers.kernels.given([x, out])
    machine.launch(function, x.data_ptr(), 5, out.data_ptr(), 64, 0)
    assert places(machine.operations[0]) == [
        (x.data_ptr(), 256, R, "in_ptr0", LIKELY),
        (out.data_ptr(), 256, W, "out_ptr0", LIKELY),
    ]


def test_a_kernel_that_was_found_earlier_is_known_by_the_source_too(machine: Machine) -> None:
    def name_of(name: Any, function: Any) -> int:
        name._obj.value = b"add"
        return 0 if function.value == 5 else 1

    machine.driver.cuFuncGetName = name_of  # type: ignore[attr-defined]
    machine.driver.kernels.update({5: (8, 8, 8, 4, 8), 6: (8, 8, 8, 4, 8)})
    source = machine.file.with_suffix(".cpp")
    source.write_text(SOURCE, encoding="utf-8")
    x = machine.world.tensor(64)
    machine.wrappers.kernels.given([x])
    for function in (5, 6):
        machine.launch(function, x.data_ptr(), 5, 0, 64, 0)
    source.unlink()
    assert [(o.name, places(o)[0][2:]) for o in machine.operations] == [
        ("triton::add", (R, "in_ptr0", LIKELY)),
        ("triton::kernel", (RW, "parameter 0", POSSIBLE)),
    ]


def test_parameters_stand_in_the_source() -> None:
    assert parameters(SOURCE, "add") == ["in_ptr0", "", "out_ptr0", "", ""]
    assert parameters(SOURCE, "none") == []
    assert parameters("", "add") == []


def test_a_launch_that_fails_and_one_between_recordings_are_not_told(
    machine: Machine, folder: Path
) -> None:
    machine.cubins.note("add", b"the binary", TTIR)
    function, x = loaded(machine, folder, b"the binary"), machine.world.tensor(256)
    machine.set("fails", 2)
    assert machine.launch(function, x.data_ptr(), 0, 0, 256, 0) == 2
    machine.set("fails", 0)
    machine.recorder.enabled = False
    assert machine.launch(function, x.data_ptr(), 0, 0, 256, 0) == 0
    assert machine.operations == []


def test_an_address_inside_of_a_block_is_a_guess_where_the_code_has_no_bounds(
    machine: Machine, folder: Path
) -> None:
    indirect = (Path(__file__).parent / "ttir" / "histogram.ttir").read_text(encoding="utf-8")
    machine.cubins.note("histogram", b"counts", indirect)
    (folder / "h.cubin").write_bytes(b"counts")
    handle = int(machine.library.load(str(folder / "h.cubin").encode(), b"histogram"))
    machine.driver.kernels[handle] = (8, 8, 4)
    bins = machine.world.tensor(64)
    machine.wrappers.kernels.given([bins])
    for address in (bins.data_ptr(), bins.data_ptr() + 128):
        machine.launch(handle, 0, address, 0, 10, 0)
    told = [places(operation) for operation in machine.operations]
    assert [[(run, sure) for _, run, _, _, sure in found] for found in told] == [
        [(256, LIKELY)],
        [(128, POSSIBLE)],
    ]


def test_operators_are_told_by_their_schema(machine: Machine) -> None:
    out, bias, one, two = (machine.world.tensor(4, 4) for _ in range(4))
    machine.inside(lambda: out.add_(1))  # what an operator calls is its own affair
    assert machine.library.addmm(*map(machine.handle, (out, bias, one, two))) == 0
    machine.results(*(made := (machine.world.tensor(4, 2), machine.world.tensor(4, 2))))
    assert machine.library.topk(machine.handle(one)) == 0
    machine.results(joined := machine.world.tensor(8, 4))
    assert machine.library.cat(machine.handle(one), machine.handle(two)) == 0
    told = [(o.name, [(a.address, a.mode) for a in o.accesses]) for o in machine.operations]
    assert told == [
        (
            "aten::addmm.out",
            [
                (bias.data_ptr(), R),
                (one.data_ptr(), R),
                (two.data_ptr(), R),
                (out.data_ptr(), W),
            ],
        ),
        ("aten::topk", [(one.data_ptr(), R), *((t.data_ptr(), W) for t in made)]),
        ("aten::cat", [(one.data_ptr(), R), (two.data_ptr(), R), (joined.data_ptr(), W)]),
    ]


def test_an_operator_that_fails_is_not_told(machine: Machine) -> None:
    machine.set("fails", 1)
    assert machine.library.topk(machine.handle(machine.world.tensor(4, 4))) == 1
    assert machine.operations == []


def test_an_operator_that_is_not_known_is_a_blind_spot(machine: Machine) -> None:
    assert machine.library.other(machine.handle(machine.world.tensor(4))) == 0
    (note,) = [text for text in machine.world.notes() if "generated C++" in text]
    assert note.endswith(": nothing_of_the_kind")


def test_memory_that_the_code_allocates_becomes_known(machine: Machine) -> None:
    machine.results(made := machine.world.tensor(16))
    assert machine.recorder.blocks.find(made.data_ptr()) is None
    assert machine.library.empty() == 0
    assert machine.recorder.blocks.find(made.data_ptr()) == (0, made.data_ptr(), 64)


def test_a_library_is_listened_to_once_and_only_where_it_launches(
    machine: Machine, folder: Path
) -> None:
    machine.wrappers.watch(str(machine.file))
    machine.wrappers.watch(str(folder / "libcalled.so"))
    machine.wrappers.watch(str(folder / "nowhere.so"))
    x = machine.world.tensor(4)
    machine.driver.kernels[5] = (8,)
    machine.launch(5, x.data_ptr(), 0, 0, 4, 0)
    assert [operation.name for operation in machine.operations] == ["triton::kernel"]
    assert called(str(folder / "nowhere.so")) == set()


@pytest.mark.parametrize(
    ("shim", "operator"),
    [
        ("addmm_out", "aten::addmm.out"),
        ("fill__Scalar", "aten::fill_.Scalar"),
        ("convolution", "aten::convolution"),
        ("index_put_", "aten::index_put_"),
        ("_scaled_dot_product_flash_attention_v2", "aten::_scaled_dot_product_flash_attention"),
    ],
)
def test_a_shim_is_named_like_its_operator(shim: str, operator: str) -> None:
    op = operator_of("aoti_torch_cuda_" + shim)
    assert op is not None
    assert op.name() == operator


def test_what_is_compiled_for_generated_code_is_noted(machine: Machine, folder: Path) -> None:
    kernel = SimpleNamespace(
        asm={"ttir": TTIR, "cubin": b"cc"}, metadata=SimpleNamespace(name="add")
    )
    saved: list[Any] = []

    class Tuner:
        def save_gpu_kernel(self, stream: int, launcher: Any) -> None:
            saved.append((stream, launcher.bin))

    heuristics = SimpleNamespace(CachingAutotuner=Tuner)
    install_compilations(Launches(machine.recorder), heuristics, machine.cubins)
    Tuner().save_gpu_kernel(3, SimpleNamespace(bin=kernel))
    assert saved == [(3, kernel)]
    (folder / "c.cubin").write_bytes(b"cc")
    assert machine.cubins.ttir("add", folder / "c.cubin") == TTIR
    assert machine.cubins.ttir("sub", folder / "c.cubin") is None
    assert machine.cubins.ttir("add", folder / "gone.cubin") is None


def test_libraries_of_the_wrapper_are_found_when_they_are_loaded_or_were(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, "portable")
    wrappers = Machine(folder).wrappers
    watched: list[str] = []
    monkeypatch.setattr(wrappers, "watch", watched.append)
    before = types.ModuleType("key.inductor_entry_cpp")
    before.__file__ = "/cache/before.so"
    monkeypatch.setitem(sys.modules, before.__name__, before)

    class CodeCache:
        @classmethod
        def _load_library_inner(cls, path: str, key: str) -> tuple[type, str, str]:
            return cls, path, key

    install_wrappers(wrappers, SimpleNamespace(CppPythonBindingsCodeCache=CodeCache))
    assert CodeCache._load_library_inner("/new.so", "k") == (CodeCache, "/new.so", "k")
    assert watched == ["/cache/before.so", "/new.so"]


def test_packages_are_found_when_they_are_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, "portable")
    machine = Machine(folder)
    watched: list[str] = []
    monkeypatch.setattr(machine.wrappers, "watch", watched.append)

    class Loader:
        def __init__(self, library: Path) -> None:
            ctypes.CDLL(str(library))

        def boxed_run(self, inputs: list[torch.Tensor]) -> int:
            return len(inputs)

    module = SimpleNamespace(AOTIModelPackageLoader=Loader, unsafe_alloc_void_ptrs_from_tensors=len)
    monkeypatch.setattr(torch._C, "_aoti", module)
    copy = folder / "copy.so"
    copy.write_bytes(machine.file.read_bytes())
    earlier = folder / "aotinductor.so"
    earlier.write_bytes(machine.file.read_bytes())
    ctypes.CDLL(str(earlier))
    install_packages(machine.wrappers)
    x = machine.world.tensor(8)
    assert Loader(copy).boxed_run([x]) == 1
    assert module.unsafe_alloc_void_ptrs_from_tensors([x]) == 1
    assert watched == [str(earlier), str(copy)]
    assert machine.wrappers.kernels._given.tensors == {x.data_ptr(): (0, (0, 32, (), ()))}

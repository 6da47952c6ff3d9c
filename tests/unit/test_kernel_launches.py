"""Launches outside of the dispatcher, told to a recorder: Triton's, and those of generated code.

The kernels and launchers here are shaped like those of Triton 3.6 and of Inductor in torch 2.11.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record._core import Work
from streamsan.record._sites import is_user, is_user_frame, portable
from streamsan.record.kernels.imports import after_import
from streamsan.record.kernels.inductor import (
    install_compiled,
    install_generated,
    install_inductor,
)
from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.triton import install_triton
from streamsan.virtual.memory import NOWHERE

TEXTS = Path(__file__).parent / "ttir"
R, W, RW = int(r.Mode.READ), int(r.Mode.WRITE), int(r.Mode.READ_WRITE)
LIKELY, POSSIBLE = int(r.Confidence.LIKELY), int(r.Confidence.POSSIBLE)


class Recorder:
    """What launches need of a recorder; the tensors here count as those of device 0."""

    def __init__(self) -> None:
        self.enabled = True
        self.local = Work()
        self.operations: list[tuple[str, int, list[r.Access]]] = []
        self.errors: list[Exception] = []
        self.notes: list[str] = []
        self.shown: list[torch.Tensor] = []
        self.observer = SimpleNamespace(
            recording=True, note_once=lambda _, text: self.notes.append(text)
        )
        self.streams = SimpleNamespace(
            define=lambda device, handle: 100 * device + handle, several=True
        )
        self.blocks = SimpleNamespace(seen=lambda tensor, _: self.shown.append(tensor))

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(error)

    def owner(self, tensor: torch.Tensor) -> int:
        return 0 if tensor.numel() else NOWHERE

    def stack(self) -> int:
        return 7

    def operation(
        self, kind: int, name: str, timeline: int, accesses: list[r.Access], stack: int
    ) -> None:
        assert (kind, stack) == (int(r.OpKind.KERNEL), 7)
        self.operations.append((name, timeline, accesses))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    made = Recorder()
    yield made
    assert made.errors == []


def triton_kernels() -> Any:
    """A module with a class of compiled kernels, as ``triton.compiler.compiler`` has one."""

    class CompiledKernel:
        """A kernel whose launches are noted; `text` is its intermediate code."""

        def __init__(self, name: str, signature: dict[str, Any], text: str | None = None) -> None:
            self.name = name
            self.src = SimpleNamespace(signature=signature)
            self.asm = {"ttgir": ""} if text is None else {"ttir": text}
            self.launched: list[tuple[Any, ...]] = []
            self._run = SimpleNamespace(launch=None)

        @property
        def run(self) -> Any:
            """The launcher."""
            return self.launched.append

    return SimpleNamespace(CompiledKernel=CompiledKernel)


def launch(kernel: Any, grid: tuple[int, int, int], stream: int, *args: Any) -> None:
    kernel.run(*grid, stream, 0xF00, (4, 1), None, None, None, *args)


class Launcher:
    """The launcher of Triton's CUDA driver: an object with attributes of its own."""

    launch_pdl = False

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> None:
        self.launched.append(args)


def compiled(recorder: Recorder, name: str, signature: dict[str, Any], text: str | None) -> Any:
    """A compiled kernel whose launches the recorder is told of."""
    compiler = triton_kernels()
    launcher = Launcher()
    compiler.CompiledKernel.run = property(lambda _: launcher)
    install_triton(Launches(recorder), compiler)  # type: ignore[arg-type]
    made = compiler.CompiledKernel(name, signature, text)
    made.launcher = launcher
    return made


ADD = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}


def text(name: str) -> str:
    return (TEXTS / f"{name}.ttir").read_text(encoding="utf-8")


def extent(access: r.Access) -> tuple[int, int, int]:
    assert access.sizes == ()
    return access.address, access.run, access.mode


def test_a_launch_is_an_operation_of_its_stream(recorder: Recorder) -> None:
    kernel = compiled(recorder, "add", ADD, text("add"))
    x, y, out = torch.ones(1000), torch.ones(1000), torch.ones(1000)
    launch(kernel, (8, 1, 1), 0x77, x, y, out, 1000, 128)
    ((name, stream, accesses),) = recorder.operations
    assert (name, stream) == ("triton::add", 0x77)
    assert [extent(access) for access in accesses] == [
        (x.data_ptr(), 4000, R), (y.data_ptr(), 4000, R), (out.data_ptr(), 4000, W),
    ]  # fmt: skip
    assert [access.argument for access in accesses] == ["x_ptr", "y_ptr", "out_ptr"]
    assert {access.confidence for access in accesses} == {LIKELY}
    assert len(recorder.shown) == 3
    assert kernel.launcher.launched[0][9:] == (x, y, out, 1000, 128)
    assert kernel.run.launch_pdl is False


def test_an_offset_among_the_numbers_moves_the_bytes(recorder: Recorder) -> None:
    signature = {"out_ptr": "*fp32", "first": "i32", "n": "i32", "BLOCK": "constexpr"}
    kernel = compiled(recorder, "part", signature, text("part"))
    whole = torch.zeros(512)
    launch(kernel, (2, 1, 1), 0, whole, 256, 100, 64)
    ((_, _, accesses),) = recorder.operations
    assert [extent(access) for access in accesses] == [(whole.data_ptr() + 1024, 400, W)]


def test_a_kernel_without_intermediate_code_may_do_anything(recorder: Recorder) -> None:
    kernel = compiled(recorder, "add", ADD, None)
    x = torch.ones(10)[2:6]
    launch(kernel, (1, 1, 1), 0, x, None, torch.ones(0), 4, 128)
    ((_, _, accesses),) = recorder.operations
    assert [extent(access) for access in accesses] == [(x.data_ptr(), 16, RW)]
    assert accesses[0].confidence == POSSIBLE


def test_pointers_in_tuples_are_found(recorder: Recorder) -> None:
    signature = {"ps": ("*fp32", "*fp32"), "n": "i32", "BLOCK": "constexpr"}
    kernel = compiled(recorder, "tuples", signature, text("tuples"))
    x, y = torch.ones(128), torch.ones(128)
    launch(kernel, (1, 1, 1), 0, (x, y), 128, 128)
    ((_, _, accesses),) = recorder.operations
    assert [(a.argument, *extent(a)) for a in accesses] == [
        ("ps[0]", x.data_ptr(), 512, R),
        ("ps[1]", y.data_ptr(), 512, W),
    ]


def test_a_descriptor_stands_for_what_it_describes(recorder: Recorder) -> None:
    kind = "tensordesc<fp16[32, 32]>"
    kernel = compiled(
        recorder, "host_described", {"a": kind, "b": kind, "B": "constexpr"}, text("host_described")
    )
    base = torch.zeros(64, 128, dtype=torch.float16)
    half = SimpleNamespace(base=base, shape=[32, 64], strides=[128, 1])
    full = SimpleNamespace(base=base, shape=[64, 128], strides=[128, 1])
    launch(kernel, (1, 1, 1), 0, half, full, 32)
    ((_, _, (first, second)),) = recorder.operations
    assert (first.run, first.sizes, first.strides, first.mode) == (128, (32,), (256,), R)
    assert extent(second) == (base.data_ptr(), 64 * 128 * 2, RW)


def test_addresses_that_are_no_tensors_are_said_to_be_unseen(recorder: Recorder) -> None:
    signature = {"table_ptr": "*i64", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    kernel = compiled(recorder, "indirect", signature, text("indirect"))
    launch(kernel, (1, 1, 1), 0, torch.zeros(4, dtype=torch.int64), torch.ones(128), 1, 128)
    assert len(recorder.notes) == 1
    launch(kernel, (1, 1, 1), 0, SimpleNamespace(data_ptr=lambda: 64), torch.ones(128), 1, 128)
    assert len(recorder.notes) == 3


def test_a_launch_inside_of_an_operator_is_told_behind_it(recorder: Recorder) -> None:
    kernel = compiled(recorder, "add", ADD, text("add"))
    held: list[Any] = []
    recorder.local.inside = held
    x = torch.ones(8)
    launch(kernel, (1, 1, 1), 5, x, x, x, 8, 128)
    assert recorder.operations == []
    held[0]()
    assert recorder.operations[0][:2] == ("triton::add", 5)


def test_nothing_is_told_between_two_recordings(recorder: Recorder) -> None:
    kernel = compiled(recorder, "add", ADD, text("add"))
    recorder.observer.recording = False
    launch(kernel, (1, 1, 1), 5, None, None, None, 8, 128)
    assert recorder.operations == []
    assert len(kernel.launcher.launched) == 1


def test_of_the_launches_of_a_trial_the_first_is_told(recorder: Recorder) -> None:
    kernel = compiled(recorder, "add", ADD, text("add"))
    x = torch.ones(8)

    class Autotuner:
        """Times a kernel."""

        def _bench(self, times: int) -> int:
            for _ in range(times):
                launch(kernel, (1, 1, 1), 5, x, x, x, 8, 128)
            return times

    kernel.run._launches.trials.watch(Autotuner, "_bench")
    assert Autotuner()._bench(5) == 5
    assert len(kernel.launcher.launched) == 5
    assert len(recorder.operations) == 1
    assert Autotuner()._bench(times=2) == 2
    launch(kernel, (1, 1, 1), 5, x, x, x, 8, 128)
    assert len(recorder.operations) == 3


def test_errors_of_a_launch_are_the_programs(recorder: Recorder) -> None:
    compiler = triton_kernels()

    def fails(*_: Any) -> None:
        raise RuntimeError("out of resources")

    compiler.CompiledKernel.run = property(lambda _: fails)
    install_triton(Launches(recorder), compiler)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="out of resources"):
        launch(compiler.CompiledKernel("add", ADD), (1, 1, 1), 0, 1)
    assert recorder.operations == []


# -- generated code --------------------------------------------------------------------------------


class StaticKernel:
    """Inductor's statically launched kernel: pointers are ``O`` in `arg_tys`."""

    name = "part"
    hash = "abc"
    arg_names = ("out_ptr0", "first", "n", "BLOCK")
    full_constexprs = (3,)
    arg_tys = "Oii"

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def run(self, *args: Any) -> None:
        """Launch it: grid, stream, arguments."""
        self.launched.append(args)


def static_launcher(kernel: StaticKernel) -> Any:
    scope: dict[str, Any] = {"runner": kernel.run}
    code = (
        "def launcher(out_ptr0, first, n, stream):\n    runner(2, 1, 1, stream, out_ptr0, first, n)"
    )
    exec(code, scope)
    return scope["launcher"]


class StaticTritonCompileResult:
    """What a kernel was compiled to."""

    def __init__(self) -> None:
        self.kernel = StaticKernel()
        self.compile_meta = {"device": 0}
        self.inductor_meta: dict[str, Any] = {"mutated_arg_names": []}

    def make_launcher(self) -> Any:
        """A function that launches the kernel."""
        return static_launcher(self.kernel)


class CachingAutotuner:
    """A kernel of generated code, with the launchers that it has left."""

    def __init__(self, launchers: list[Any]) -> None:
        self.launchers = launchers
        self.triton_meta = {"device": 0}
        self.inductor_meta: dict[str, Any] = {}
        self._cached_launcher: Any = None

    def _build_fast_launcher(self, launcher: Any) -> Any:
        """A copy whose runner is no method."""
        kernel = launcher.__globals__["runner"].__self__
        scope = {**launcher.__globals__, "runner": lambda *args: kernel.launched.append(args)}
        return types.FunctionType(launcher.__code__, scope)


def heuristics(folder: Path) -> Any:
    class Result(StaticTritonCompileResult):
        """A class of its own, which may be changed."""

    class Tuner(CachingAutotuner):
        """And this one."""

    return SimpleNamespace(
        StaticTritonCompileResult=Result,
        CachingAutotuner=Tuner,
        triton_cache_dir=lambda _: str(folder),
        triton_hash_to_path_key=str.upper,
    )


def test_a_static_launch_is_told_with_the_code_that_triton_cached(
    recorder: Recorder, tmp_path: Path
) -> None:
    module = heuristics(tmp_path)
    install_inductor(Launches(recorder), module)  # type: ignore[arg-type]
    (tmp_path / "ABC").mkdir()
    (tmp_path / "ABC" / "part.ttir").write_text(text("part"), encoding="utf-8")
    result = module.StaticTritonCompileResult()
    whole = torch.zeros(512)
    result.make_launcher()(whole, 64, 100, stream=9)
    ((name, stream, (access,)),) = recorder.operations
    assert (name, stream) == ("triton::part", 9)
    assert extent(access) == (whole.data_ptr() + 256, 400, W)
    assert (access.argument, access.confidence) == ("out_ptr0", LIKELY)
    assert result.kernel.launched == [(2, 1, 1, 9, whole, 64, 100)]


def test_without_that_code_names_tell(recorder: Recorder, tmp_path: Path) -> None:
    module = heuristics(tmp_path)
    install_inductor(Launches(recorder), module)  # type: ignore[arg-type]
    whole = torch.zeros(512)
    module.StaticTritonCompileResult().make_launcher()(whole, 64, 100, stream=9)
    ((_, _, (access,)),) = recorder.operations
    assert extent(access) == (whole.data_ptr(), 2048, W)


def test_the_fast_launcher_of_later_releases_is_watched_too(
    recorder: Recorder, tmp_path: Path
) -> None:
    module = heuristics(tmp_path)
    install_inductor(Launches(recorder), module)  # type: ignore[arg-type]
    slow = module.StaticTritonCompileResult().make_launcher()
    fast = module.CachingAutotuner([slow])._build_fast_launcher(slow)
    whole = torch.zeros(512)
    fast(whole, 64, 100, stream=9)
    assert len(recorder.operations) == 1
    assert fast.__globals__["runner"].__self__.launched == [(2, 1, 1, 9, whole, 64, 100)]


def test_kernels_compiled_before_recording_are_told_as_well(
    recorder: Recorder, tmp_path: Path
) -> None:
    module = heuristics(tmp_path)
    file = str(tmp_path / "generated.py")
    early = types.ModuleType("early")
    early.__file__ = file
    launcher, other = (static_launcher(StaticKernel()) for _ in range(2))
    early.kernel = module.CachingAutotuner([launcher])  # type: ignore[attr-defined]
    early.quick = module.CachingAutotuner([other])  # type: ignore[attr-defined]
    fast = early.quick._cached_launcher = early.quick._build_fast_launcher(other)

    class PyCodeCache:
        """Modules of generated code."""

        modules: tuple[Any, ...] = (early,)

        @classmethod
        def load_by_key_path(cls, key: str, path: str, linemap: object = None) -> tuple[Any, ...]:
            """Load one more."""
            return cls, key, path, linemap

    launches = Launches(recorder)  # type: ignore[arg-type]
    install_generated(launches, module, SimpleNamespace(PyCodeCache=PyCodeCache))
    launcher(torch.zeros(512), 0, 100, stream=0)
    fast(torch.zeros(512), 0, 100, stream=0)
    assert len(recorder.operations) == 2
    later = str(tmp_path / "later.py")
    assert is_user(later, ())
    assert PyCodeCache.load_by_key_path("k", later, linemap=[1]) == (PyCodeCache, "k", later, [1])
    assert not is_user(later, ())
    assert not is_user(file, ())
    assert portable(file) == "torch/_inductor/<generated>/generated.py"
    assert is_user(str(tmp_path / "own.py"), ())


def frame(code: Any, line: int, module: str = "program") -> Any:
    return SimpleNamespace(f_code=code, f_lineno=line, f_globals={"__name__": module})


def test_the_first_line_of_compiled_code_is_no_line_that_runs() -> None:
    code = test_the_first_line_of_compiled_code_is_no_line_that_runs.__code__
    other = launch.__code__
    install_compiled(SimpleNamespace(output_codes=[code]))
    assert not is_user_frame(frame(code, code.co_firstlineno), ())
    assert is_user_frame(frame(code, code.co_firstlineno + 2), ())
    assert is_user_frame(frame(other, other.co_firstlineno), ())


def test_code_made_from_a_string_is_the_users_in_the_main_module_only() -> None:
    code = compile("1", "<string>", "exec")
    assert is_user_frame(frame(code, 1, "__main__"), ())
    assert not is_user_frame(frame(code, 1, "dataclasses"), ())


# -- imports ---------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "hooked_package").mkdir()
    (tmp_path / "hooked_package" / "__init__.py").write_text("")
    (tmp_path / "hooked_package" / "part.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    yield "hooked_package.part"
    sys.meta_path[:] = finders
    for name in ("hooked_package", "hooked_package.part"):
        sys.modules.pop(name, None)


def test_work_is_done_once_behind_the_import(package: str) -> None:
    done: list[int] = []
    finders = len(sys.meta_path)
    after_import(package, lambda module: done.append(module.VALUE))
    after_import(package, lambda module: done.append(10 * module.VALUE))
    assert package not in sys.modules
    __import__(package)
    assert sorted(done) == [3, 30]
    assert len(sys.meta_path) == finders
    after_import(package, lambda module: done.append(100 * module.VALUE))
    assert done[-1] == 300


@pytest.mark.usefixtures("package")
def test_a_module_that_does_not_exist_is_as_missing_as_before() -> None:
    after_import("hooked_package.missing", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"hooked_package\.missing"):
        __import__("hooked_package.missing")

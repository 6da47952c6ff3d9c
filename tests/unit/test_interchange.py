"""Libraries beside torch: their events, their kernel objects, and when they are noticed."""

from __future__ import annotations

import ctypes
import pickle
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record import _interchange
from streamsan.record._accounted import ACCOUNTED
from streamsan.record._extensions import after_extension, after_script
from streamsan.record._interchange import Events, native, watch_driver
from streamsan.record._interchange_modes import declare, declare_raw, declared_outputs, given_array
from streamsan.record.cupti import _library
from streamsan.record.cupti._arrays import Array
from tests.unit.cupti_world import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


class Stream:
    """CuPy's stream, as far as events need it."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def record(self, event: Any = None) -> Any:
        return event or Event(0x51)


class Event:
    """CuPy's event: not done when asked first."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr
        self.asked = 0

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    @property
    def done(self) -> bool:
        """Whether its work is done."""
        self.asked += 1
        return self.asked > 1


def fake_cupy() -> Any:
    """The parts of CuPy that are listened to."""
    kinds: dict[str, type] = {
        kind.__name__: type(kind.__name__, (kind,), {}) for kind in (Stream, Event)
    }
    module = SimpleNamespace(
        Stream=kinds["Stream"], get_current_stream=lambda: kinds["Stream"](0x66)
    )
    return SimpleNamespace(cuda=SimpleNamespace(stream=module, **kinds))


def test_events_of_cupy(world: World) -> None:
    cupy = fake_cupy()
    Events(world.recorder, world.driver.noted.told).of_cupy(cupy)
    event = cupy.cuda.Event(0x50)
    event.record(cupy.cuda.Stream(0x55))
    event.record()
    cupy.cuda.Stream(0x77).record()
    assert 0x77 in {stream.handle for stream in world.of(r.StreamDef)}
    event.synchronize()
    assert [event.done, event.done] == [False, True]
    streams = world.recorder.streams
    assert [(e.event, e.stream) for e in world.of(r.EventRecord)] == [
        (streams.event(0x50), streams.define(0, 0x55)),
        (streams.event(0x50), streams.define(0, 0x66)),
        (streams.event(0x51), streams.define(0, 0x77)),
    ]
    assert [(s.event, s.query) for s in world.of(r.EventSync)] == [
        (streams.event(0x50), False),
        (streams.event(0x50), True),
    ]


class Handle:
    """A handle that is an object with a number."""

    def __init__(self, value: int) -> None:
        self.number = value

    def __int__(self) -> int:
        return self.number


def test_events_of_numba(world: World) -> None:
    class NumbaEvent:
        handle = ctypes.c_void_p(0x50)

        def record(self, stream: Any = 0) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return False

    driver = SimpleNamespace(Event=NumbaEvent)
    Events(world.recorder, world.driver.noted.told).of_numba(
        SimpleNamespace(cudadrv=SimpleNamespace(driver=driver))
    )
    event = NumbaEvent()
    event.record(SimpleNamespace(handle=Handle(0x55)))
    event.record()
    event.synchronize()
    event.query()
    streams = world.recorder.streams
    assert [e.stream for e in world.of(r.EventRecord)] == [
        streams.define(0, 0x55),
        streams.define(0, 0),
    ]
    assert [s.query for s in world.of(r.EventSync)] == [False]


def test_events_of_cuda_s_own_bindings(world: World) -> None:
    results = iter([0, 1, 0, 600, 0])
    functions = ("cuEventRecord", "cuEventSynchronize", "cuEventQuery")
    module: Any = SimpleNamespace(**{name: lambda *_: (next(results),) for name in functions})
    Events(world.recorder, world.driver.noted.told).of_driver(module)
    module.cuEventRecord(Handle(0x50), Handle(0x55))
    module.cuEventRecord(Handle(0x50), Handle(0x66))  # fails
    module.cuEventSynchronize(Handle(0x50))
    module.cuEventQuery(Handle(0x50))  # not ready
    module.cuEventQuery(Handle(0x50))
    assert len(world.of(r.EventRecord)) == 1
    assert [s.query for s in world.of(r.EventSync)] == [False, True]


@pytest.mark.parametrize(
    ("handle", "number"), [(None, 0), (5, 5), (Handle(7), 7), (ctypes.c_void_p(9), 9)]
)
def test_native_handles(handle: Any, number: int) -> None:
    assert native(handle) == number


class ElementwiseKernel:
    """CuPy's class of kernel objects."""

    out_params = ("y", "z")

    def __call__(self, x: int) -> tuple[int, int | None]:
        return x, declared_outputs("user_kernel")


def test_kernel_objects_say_how_many_outputs_they_have() -> None:
    module = SimpleNamespace(ElementwiseKernel=ElementwiseKernel)
    declare(module, "ElementwiseKernel")
    declare(module, "ReductionKernel")  # this CuPy has none
    assert module.ElementwiseKernel()(3) == (3, 2)
    assert declared_outputs("user_kernel") is None
    assert isinstance(ElementwiseKernel(), module.ElementwiseKernel)
    assert module.ElementwiseKernel.__name__ == "ElementwiseKernel"


class RawKernel:
    """CuPy's class of raw kernels; this one tells what is known of its arguments."""

    def __call__(self, grid: Any, block: Any, args: Any) -> list[Array | None]:
        del grid, block, args
        return [given_array(0x1000), given_array(0x2000), given_array(0x3000)]


def test_raw_kernels_say_which_arrays_they_are_given() -> None:
    module = SimpleNamespace(RawKernel=RawKernel)
    declare_raw(module, "RawKernel")
    dense = {"data": (0x1000, False), "shape": (2, 3), "typestr": "<f4", "strides": None}
    column = {"data": (0x2000, False), "shape": (2,), "typestr": "<f8", "strides": (24,)}
    arguments = [SimpleNamespace(__cuda_array_interface__=told) for told in (dense, column)]
    found = module.RawKernel()((1,), (32,), (*arguments, 5))
    assert found == [Array(0x1000, (2, 3), (12, 4), 4), Array(0x2000, (2,), (24,), 8), None]
    assert given_array(0x1000) is None


@pytest.fixture
def unpatched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test patch the loading of libraries, once the world has loaded its own."""
    del world
    monkeypatch.setattr(ExtensionFileLoader, "create_module", lambda *_: ModuleType("made"))
    monkeypatch.setattr(ctypes.CDLL, "__init__", lambda *_: None)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that names a function by which kernels are launched."""
    file = tmp_path / "ops.so"
    file.write_bytes(b"\x7fELF...cudaLaunchKernel\0")
    return file


def load(name: str, file: Path) -> None:
    """Import an extension module."""
    loader = ExtensionFileLoader(name, str(file))
    assert loader.create_module(ModuleSpec(name, loader)).__name__ == "made"


@pytest.mark.usefixtures("unpatched")
def test_the_first_extension_that_launches_kernels_is_noticed(library: Path) -> None:
    found: list[str] = []
    after_extension(found.append)
    other = library.with_name("text.so")
    other.write_bytes(b"\x7fELF...memcpy\0")
    load("text", other)
    load("__triton_launcher", library)
    ctypes.CDLL("libm.so.6")
    ctypes.CDLL(None)
    with ACCOUNTED:
        ctypes.CDLL(str(library))
    assert found == []
    load("ops", library)
    ctypes.CDLL(str(library))
    assert found == [str(library)]


@pytest.mark.usefixtures("unpatched")
@pytest.mark.parametrize("name", ["libcuda.so.1", "/usr/lib/libcudart.so.13"])
def test_who_loads_cuda_itself_is_noticed(name: str) -> None:
    found: list[str] = []
    after_extension(found.append)
    ctypes.CDLL(name)
    assert found == [name]


@pytest.mark.usefixtures("unpatched")
def test_cupti_is_no_extension_of_the_programs(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To be told of it in the midst of starting the driver's recorder would wait for ever."""
    found: list[str] = []
    after_extension(found.append)
    monkeypatch.setattr(_library, "_candidates", lambda: [str(library)])
    _library.library.cache_clear()
    with pytest.raises(TypeError, match="not callable"):  # ctypes has not loaded this one
        _library.library()
    assert found == []
    ctypes.CDLL(str(library))
    assert found == [str(library)]


def test_off_says_what_is_not_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted: list[Any] = []
    monkeypatch.setattr(_interchange, "DriverRecorder", lambda _: world.driver)
    monkeypatch.setattr(_interchange, "after_script", scripted.append)
    assert "--driver on" in watch_driver(world.recorder, "off")()
    assert "cupy" not in sys.modules
    (work,) = scripted
    work(object)
    assert ["TorchScript" in note.text for note in world.of(r.Note)] == [True]


@pytest.mark.usefixtures("unpatched")
def test_auto_waits_for_a_library(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_interchange, "DriverRecorder", lambda _: world.driver)
    monkeypatch.setattr(_interchange, "watch_profiler", lambda _: None)
    monkeypatch.setattr(_interchange, "account_for", lambda *_: None)
    monkeypatch.setattr(_interchange, "after_script", lambda _: None)
    hooks: dict[str, Any] = {}
    queued: list[Any] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    monkeypatch.setattr(_interchange, "after_import", lambda name, work: hooks.update({name: work}))
    remark = watch_driver(world.recorder, "auto")
    assert world.cupti.log == []
    assert "--driver on" in remark()
    hooks["jax"](ModuleType("jax"))
    assert world.cupti.log == []  # nor before CUDA
    (begin,) = queued
    begin()
    assert world.cupti.log == ["on"]
    assert "--driver on" not in remark()


@pytest.mark.usefixtures("unpatched")
def test_on_starts_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_interchange, "DriverRecorder", lambda _: world.driver)
    monkeypatch.setattr(_interchange, "watch_profiler", lambda _: None)
    monkeypatch.setattr(_interchange, "account_for", lambda *_: None)
    monkeypatch.setattr(_interchange, "after_import", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: call())
    watch_driver(world.recorder, "on")
    assert world.cupti.log == ["on"]


@pytest.mark.parametrize("hook", [declare, declare_raw])
def test_kernel_objects_are_pickled_as_ever(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, cupy = ModuleType("cupy_core_raw"), ModuleType("cupy")
    monkeypatch.setitem(sys.modules, raw.__name__, raw)
    kind = type("RawKernel", (), {"__module__": raw.__name__})
    raw.RawKernel = cupy.RawKernel = kind  # type: ignore[attr-defined]
    before = pickle.dumps(kind())
    hook(cupy, "RawKernel")
    made = cupy.RawKernel()
    assert pickle.dumps(made) == before
    assert isinstance(pickle.loads(before), kind)
    assert type(pickle.loads(before)) is type(made)


def test_torchscript_is_noticed_where_it_can_fuse_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class ScriptFunction:
        """Shaped like torch's."""

        def __call__(self, x: int, *, factor: int = 2) -> int:
            return factor * x

    fuses = False
    monkeypatch.setattr(torch._C, "ScriptFunction", ScriptFunction)
    monkeypatch.setattr(torch._C, "ScriptMethod", type("ScriptMethod", (ScriptFunction,), {}))
    monkeypatch.setattr(torch._C, "_jit_can_fuse_on_gpu", lambda: fuses)
    found: list[Any] = []
    after_script(found.append)
    function, method = (getattr(torch._C, name) for name in ("ScriptFunction", "ScriptMethod"))
    assert function()(3) == 6
    assert found == []
    fuses = True
    assert [method()(3, factor=5) for _ in range(2)] == [15, 15]
    assert found == [method]

"""Generated C++ code: Inductor's C++ wrapper, and the packages of AOTInductor.

It is a library that the process loads. It launches its kernels by the driver's ``cuLaunchKernel``
(`native`) and calls operators by shims (`shims`); both are listened to where the library calls them
(`streamsan.record._outgoing`), whether or not the driver is watched.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from streamsan.errors import UsageError
from streamsan.record._accounted import ACCOUNTED
from streamsan.record._extensions import GENERATED
from streamsan.record._linkage import called
from streamsan.record._outgoing import Arguments, Listener, Outgoing, word_at
from streamsan.record.cuda._driver import library as driver_library
from streamsan.record.cuda._methods import listen, replace
from streamsan.record.kernels.cubins import Cubins
from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.native import NativeKernels
from streamsan.record.kernels.shims import ALLOCATE, PREFIX, Shims

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_LAUNCH = "cuLaunchKernel"
_PACKAGED = "aotinductor"
"""What is part of the name of the folder that torch unpacks a package in."""

_UNSEEN = "kernels and operators that generated C++ code runs"
_UNKNOWN = "operators that generated C++ code calls, and that are not known here: "


class Wrappers:
    """Listens to generated libraries."""

    def __init__(
        self, recorder: CudaRecorder, launches: Launches, cubins: Cubins, driver: Any = None
    ) -> None:
        """`driver` stands for the driver's library, in a test without a GPU."""
        self.recorder, self._launches, self._cubins = recorder, launches, cubins
        self._driver = driver
        self._shims = Shims(recorder)
        self._watched: set[str] = set()

    @functools.cached_property
    def kernels(self) -> NativeKernels:
        """What tells of launches."""
        driver = self._driver or driver_library()
        return NativeKernels(self.recorder, self._launches, self._cubins, driver)

    @functools.cached_property
    def _outgoing(self) -> Outgoing | None:
        try:
            return Outgoing()
        except UsageError:
            return None

    def watch(self, path: str) -> None:
        """Listen to a library, if it is a generated one and not listened to already."""
        with ACCOUNTED:  # to look at it is not to load it, for whoever looks for extensions
            self._watch(path)

    def _watch(self, path: str) -> None:
        functions = called(path)
        if _LAUNCH not in functions or path in self._watched:
            return
        self._watched.add(path)
        if self._outgoing is None:
            self.recorder.observer.note_once("blind-spot", _UNSEEN)
            return
        for name, listener in self._of_driver(Path(path)).items():
            self._outgoing.listen(path, name, listener)
        for name in sorted(functions):
            if name.startswith(PREFIX) or name == ALLOCATE:
                self._listen_to_shim(path, name)

    def _listen_to_shim(self, path: str, name: str) -> None:
        assert self._outgoing is not None
        try:
            listener = self._shims.listener(name)
        except LookupError:
            unknown = _UNKNOWN + name.removeprefix(PREFIX)
            self.recorder.observer.note_once("blind-spot", unknown)
            return
        if listener is not None:
            self._outgoing.listen(path, name, listener)

    def _of_driver(self, library: Path) -> dict[str, Listener]:
        """What listens to a library's calls of the driver."""
        kernels = self.kernels

        def launched(arguments: Arguments, status: int) -> None:
            ACCOUNTED.__exit__()
            recorder = self.recorder
            if not status and recorder.enabled and recorder.observer.recording:
                recorder._guarded(lambda: kernels.launched(arguments, library))

        def loaded(arguments: Arguments) -> None:
            module, path = word_at(arguments.word()), ctypes.string_at(arguments.word())
            kernels.module_loaded(module, Path(path.decode()))

        def loaded_data(arguments: Arguments) -> None:
            kernels.module_loaded(word_at(arguments.word()), library)

        def found(arguments: Arguments) -> None:
            function, module = word_at(arguments.word()), arguments.word()
            name = ctypes.string_at(arguments.word()).decode(errors="replace")
            kernels.function_found(function, module, name, library)

        return {
            _LAUNCH: Listener(lambda _: ACCOUNTED.__enter__(), launched),
            "cuModuleLoad": self._after(loaded),
            "cuModuleLoadData": self._after(loaded_data),
            "cuModuleGetFunction": self._after(found),
        }

    def _after(self, tell: Callable[[Arguments], None]) -> Listener:
        """Tells of calls that have succeeded."""

        def after(arguments: Arguments, status: int) -> None:
            if not status:
                self.recorder._guarded(lambda: tell(arguments))

        return Listener(lambda _: None, after)


def install_wrappers(wrappers: Wrappers, codecache: Any) -> None:
    """Listen to what the C++ wrapper makes, now and from now on; `codecache` is
    ``torch._inductor.codecache``.
    """
    kind = codecache.CppPythonBindingsCodeCache
    load = kind._load_library_inner.__func__

    def load_library_inner(cls: Any, path: str, key: str) -> Any:
        module = load(cls, path, key)
        wrappers.recorder._guarded(lambda: wrappers.watch(path))
        return module

    kind._load_library_inner = classmethod(load_library_inner)
    for name, module in list(sys.modules.items()):
        if name.endswith(GENERATED) and getattr(module, "__file__", None):
            wrappers.watch(str(module.__file__))


def install_packages(wrappers: Wrappers) -> None:
    """Listen to packages of AOTInductor, now and from now on, and to what they and the C++
    wrapper's code are given.
    """
    recorder, module = wrappers.recorder, torch._C._aoti
    listen(
        recorder,
        module,
        "unsafe_alloc_void_ptrs_from_tensors",
        lambda _, tensors: wrappers.kernels.given(tensors),
    )
    for kind in ("AOTIModelPackageLoader", "AOTIModelContainerRunnerCuda"):
        owner = getattr(module, kind, None)
        if owner is not None:
            _watch_package(wrappers, owner)
    for path in _mapped():
        if _PACKAGED in path:
            wrappers.watch(path)


def _watch_package(wrappers: Wrappers, kind: Any) -> None:
    recorder, load = wrappers.recorder, kind.__init__

    @functools.wraps(load)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        before = _mapped()
        load(self, *args, **kwargs)
        for path in _mapped() - before:
            recorder._guarded(functools.partial(wrappers.watch, path))

    replace(kind, "__init__", init)
    for name in ("run", "boxed_run"):
        if hasattr(kind, name):
            _watch_run(wrappers, kind, name)


def _watch_run(wrappers: Wrappers, kind: Any, name: str) -> None:
    recorder, call = wrappers.recorder, getattr(kind, name)

    @functools.wraps(call)
    def run(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.enabled and recorder.observer.recording:
            recorder._guarded(lambda: wrappers.kernels.given(inputs))
        return call(self, inputs, *args, **kwargs)

    replace(kind, name, run)


def _mapped() -> set[str]:
    """The libraries that the process has loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = (line.rstrip("\n").split(maxsplit=5) for line in maps)
            return {parts[5] for parts in paths if len(parts) == 6 and ".so" in parts[5]}
    except OSError:
        return set()

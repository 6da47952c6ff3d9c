"""Launches of the kernels that torch.compile generates, and the files that it generates them in.

Inductor launches most of its kernels by a launcher of its own, the static one: a generated function
that calls its global ``runner`` with grid, stream and those arguments that are no constants. The
kernels that it leaves to Triton's launcher come by `streamsan.record.kernels.triton`, those that
its C++ wrapper launches by `streamsan.record.kernels.wrappers`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from streamsan.record._sites import compiled, generated
from streamsan.record.kernels.cubins import Cubins
from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.triton import WatchedLauncher
from streamsan.record.kernels.uses import KernelUses, from_names, from_text

_ARGUMENTS = 4
"""Place of the kernel's first argument among those of ``runner``: first come grid and stream."""


def install_inductor(launches: Launches, heuristics: Any) -> None:
    """Watch launchers; `heuristics` is ``torch._inductor.runtime.triton_heuristics``."""
    kind, tuner = heuristics.StaticTritonCompileResult, heuristics.CachingAutotuner
    make: Any = kind.make_launcher
    quicken: Any = getattr(tuner, "_build_fast_launcher", None)

    def make_launcher(self: Any) -> Any:
        launcher = make(self)
        meta = self.compile_meta
        launches.guarded(lambda: _watch_static(launches, heuristics, launcher, meta, self))
        return launcher

    def build_fast_launcher(self: Any, launcher: Any) -> Any:
        """Since torch 2.13 the launcher's copy that is used in the end calls the kernel from C."""
        fast = quicken(self, launcher)
        if fast is not None:
            kernel, meta = launcher.__globals__["runner"].__self__, self.triton_meta
            launches.guarded(lambda: _watch_static(launches, heuristics, fast, meta, self, kernel))
        return fast

    kind.make_launcher = make_launcher
    if quicken is not None:
        tuner._build_fast_launcher = build_fast_launcher


def install_compilations(launches: Launches, heuristics: Any, cubins: Cubins) -> None:
    """Note the intermediate code of what is compiled for C++ code to launch."""
    tuner = heuristics.CachingAutotuner
    save = tuner.save_gpu_kernel

    def save_gpu_kernel(self: Any, stream: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        launches.guarded(lambda: note(launcher.bin))
        return save(self, stream, launcher, *args, **kwargs)

    def note(kernel: Any) -> None:
        if "ttir" in kernel.asm and "cubin" in kernel.asm:
            cubins.note(kernel.metadata.name, kernel.asm["cubin"], str(kernel.asm["ttir"]))

    tuner.save_gpu_kernel = save_gpu_kernel


def install_generated(launches: Launches, heuristics: Any, codecache: Any) -> None:
    """Know generated files for what they are, and watch the launchers that are there already;
    `codecache` is ``torch._inductor.codecache``.
    """
    cache = codecache.PyCodeCache
    load = cache.load_by_key_path.__func__

    def load_by_key_path(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        generated(path)
        return load(cls, key, path, *args, **kwargs)

    cache.load_by_key_path = classmethod(load_by_key_path)
    for module in cache.modules:
        generated(module.__file__)
        for value in vars(module).values():
            if isinstance(value, heuristics.CachingAutotuner):
                launches.guarded(partial(_adopt, launches, heuristics, value))


def install_compiled(dynamo: Any) -> None:
    """Know compiled functions for what they are; `dynamo` is ``torch._dynamo.convert_frame``."""
    compiled(dynamo.output_codes.__contains__)


def _adopt(launches: Launches, heuristics: Any, tuner: Any) -> None:
    """Watch the launchers of a kernel that was compiled before recording began."""
    fast = getattr(tuner, "_cached_launcher", None)
    for launcher in tuner.launchers:
        scope = launcher.__globals__
        if isinstance(scope["runner"], (WatchedLauncher, _StaticLauncher)):
            continue
        if "bin" in scope:
            scope["runner"] = WatchedLauncher(launches, scope["bin"], scope["runner"])
            continue
        _watch_static(launches, heuristics, launcher, tuner.triton_meta, tuner)
        if fast is not None and fast is not launcher:
            kernel = scope["runner"].__self__
            _watch_static(launches, heuristics, fast, tuner.triton_meta, tuner, kernel)


def _watch_static(
    launches: Launches,
    heuristics: Any,
    launcher: Any,
    meta: dict[str, Any],
    source: Any,
    kernel: Any = None,
) -> None:
    """Watch a static launcher. Its `kernel` is the one whose method it calls, unless given."""
    scope = launcher.__globals__
    runner = scope["runner"]
    kernel = kernel or runner.__self__
    folder = Path(heuristics.triton_cache_dir(meta.get("device") or 0))
    file = folder / heuristics.triton_hash_to_path_key(kernel.hash) / f"{kernel.name}.ttir"
    mutated = tuple(source.inductor_meta.get("mutated_arg_names") or ())
    scope["runner"] = _StaticLauncher(launches, kernel, runner, file, mutated)


class _StaticLauncher:
    """Stands for the ``runner`` of a static launcher, and tells of each launch.

    `file` holds the kernel's intermediate code, where Triton's cache still has it; `mutated` are
    the parameters that Inductor says the kernel changes.
    """

    def __init__(
        self,
        launches: Launches,
        kernel: Any,
        runner: Callable[..., Any],
        file: Path,
        mutated: tuple[str, ...],
    ) -> None:
        self._launches = launches
        self._kernel = kernel
        self._runner = runner
        self._file = file
        self._mutated = mutated
        self._uses: KernelUses | None = None

    @property
    def __self__(self) -> Any:
        """The kernel, as of the bound method that this stands for."""
        return self._kernel

    def __call__(self, *args: Any) -> Any:
        """Launch the kernel, then tell."""
        return self._launches.launch(self, self._runner, args, self._tell)

    def _tell(self, args: tuple[Any, ...]) -> None:
        kinds = self._kernel.arg_tys
        if self._uses is None:
            self._uses = self._find_uses(kinds)
        arguments = list(zip(kinds, args[_ARGUMENTS:]))
        pointers = [value for kind, value in arguments if kind == "O"]
        numbers = [value for kind, value in arguments if kind != "O"]
        self._launches.report(self._uses, args[:4], pointers, numbers)

    def _find_uses(self, kinds: str) -> KernelUses:
        kernel = self._kernel
        names = [n for i, n in enumerate(kernel.arg_names) if i not in kernel.full_constexprs]
        if len(names) != len(kinds):
            names = [f"argument {i}" for i in range(len(kinds))]
        pointers = [name for name, kind in zip(names, kinds) if kind == "O"]
        try:
            text = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = None
        name = kernel.name
        return from_text(name, pointers, text) or from_names(name, pointers, self._mutated)

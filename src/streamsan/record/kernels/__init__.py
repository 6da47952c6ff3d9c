"""Kernels that do not come through torch's dispatcher, and custom operators, on a CUDA device.

`install_kernels` has the recorder see the launches of Triton, those of the kernels that
torch.compile generates, and the bodies of custom operators. What a kernel reads and writes is read
in Triton's own intermediate code (`ttir`, `flow`), once for each kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from streamsan.record.kernels.cubins import Cubins
from streamsan.record.kernels.custom import install_custom
from streamsan.record.kernels.imports import after_import
from streamsan.record.kernels.inductor import (
    install_compilations,
    install_compiled,
    install_generated,
    install_inductor,
)
from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.sources import install_sources
from streamsan.record.kernels.triton import install_triton
from streamsan.record.kernels.wrappers import Wrappers, install_packages, install_wrappers

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

__all__ = ["install_kernels"]

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_BENCHMARKS = "torch._inductor.runtime.benchmarking"


def install_kernels(recorder: CudaRecorder, mode: Callable[[], Any]) -> None:
    """Hook everything, for the rest of the process; `mode` makes the recorder's dispatch mode.

    Triton and Inductor are hooked when the program imports them: they cost seconds.
    """
    launches = Launches(recorder)
    trials = launches.trials
    cubins = Cubins(_triton_cache)
    wrappers = Wrappers(recorder, launches, cubins)

    def later(name: str, install: Callable[[Any], None]) -> None:
        after_import(name, lambda module: launches.guarded(lambda: install(module)))

    def with_codecache(heuristics: Any) -> None:
        install_inductor(launches, heuristics)
        install_compilations(launches, heuristics, cubins)
        later(
            "torch._inductor.codecache",
            lambda codecache: install_generated(launches, heuristics, codecache),
        )

    later("triton.compiler.compiler", lambda compiler: install_triton(launches, compiler))
    later(_HEURISTICS, with_codecache)
    later("torch._inductor.codecache", lambda codecache: install_wrappers(wrappers, codecache))
    launches.guarded(lambda: install_packages(wrappers))
    later("torch._dynamo.convert_frame", install_compiled)
    later("triton.runtime.autotuner", lambda tuner: trials.watch(tuner.Autotuner, "_bench"))
    later(_BENCHMARKS, lambda module: trials.watch(module.Benchmarker, "benchmark"))
    launches.guarded(lambda: install_sources(recorder))
    install_custom(mode)


def _triton_cache() -> str:
    """The folder in which Triton keeps what Inductor has it compile for the current device."""
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    return str(triton_cache_dir(torch.cuda.current_device()))

"""Kernels that do not come through torch's dispatcher, and custom operators, on a CUDA device.

`install_kernels` has the recorder see the launches of Triton, those of the kernels that
torch.compile generates, and the bodies of custom operators. What a kernel reads and writes is read
in Triton's own intermediate code (`ttir`, `flow`), once for each kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamsan.record.kernels.custom import install_custom
from streamsan.record.kernels.imports import after_import
from streamsan.record.kernels.inductor import (
    install_compiled,
    install_generated,
    install_inductor,
)
from streamsan.record.kernels.launches import Launches
from streamsan.record.kernels.triton import install_triton

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

    def later(name: str, install: Callable[[Any], None]) -> None:
        after_import(name, lambda module: launches.guarded(lambda: install(module)))

    def with_codecache(heuristics: Any) -> None:
        install_inductor(launches, heuristics)
        later(
            "torch._inductor.codecache",
            lambda codecache: install_generated(launches, heuristics, codecache),
        )

    later("triton.compiler.compiler", lambda compiler: install_triton(launches, compiler))
    later(_HEURISTICS, with_codecache)
    later("torch._dynamo.convert_frame", install_compiled)
    later("triton.runtime.autotuner", lambda tuner: trials.watch(tuner.Autotuner, "_bench"))
    later(_BENCHMARKS, lambda module: trials.watch(module.Benchmarker, "benchmark"))
    install_custom(mode)

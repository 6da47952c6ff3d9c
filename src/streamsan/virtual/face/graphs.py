"""``torch.cuda.CUDAGraph`` of the virtual machine (rules G1 to G4)."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import torch

from streamsan.virtual.executable import ExecutableGraph
from streamsan.virtual.face import current
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.graph import MODES

_pools = itertools.count(1)

Pool = tuple[int, int]


def graph_pool_handle() -> Pool:
    """A new private pool."""
    return (0, next(_pools))


class CUDAGraph:
    """A graph: capture once, replay as one operation."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph: ExecutableGraph | None = None
        self._pool: Pool | None = None
        self._ready = False
        self._gpu: Gpu = current.face().gpu

    def capture_begin(
        self,
        pool: Pool | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Capture the current stream from here on. Raises RuntimeError on the default stream."""
        gpu = self._gpu
        stream = current.native_stream()
        if stream.default:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture,"
                " it's ok to replay them on the default stream.)"
            )
        if capture_error_mode not in MODES:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                + capture_error_mode
            )
        if stream.capture is not None:
            raise RuntimeError("Cannot register the state during capturing stage.")
        if self._graph is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph,"
                " create a new instance."
            )
        self._pool = pool or graph_pool_handle()
        self._graph = ExecutableGraph(gpu, self._pool[1], stream, capture_error_mode)

    def capture_end(self) -> None:
        """End the capture. Raises RuntimeError where something happened that it cannot hold."""
        graph = self._graph
        if graph is None or not graph.capturing:
            raise self._gpu.captures.error("the operation cannot be performed in the present state")
        if current.native_stream() is not graph.capture.origin:
            raise RuntimeError("Capture must end on the same stream it began on.")
        graph.end()
        self._ready = True

    def instantiate(self) -> None:
        """Nothing is left to do."""

    def replay(self) -> None:
        """Launch the graph on the current stream, behind its earlier launches (G2, G4).

        Raises RuntimeError where that stream is being captured, as torch does.
        """
        if self._graph is None or not self._ready:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        stream = current.native_stream()
        if stream.capture is not None:
            raise RuntimeError(
                "Cannot prepare for replay during capturing stage. during CUDA graph capture."
                " If you need this call to be captured, please file an issue. Current"
                " cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"
            )
        self._graph.launch(stream, "CUDAGraph.replay")

    def reset(self) -> None:
        """Forget the graph; its pool may be reused when no tensor and no graph holds it."""
        graph, self._graph = self._graph, None
        self._ready = False
        if graph is not None:
            graph.destroy()

    def __del__(self) -> None:
        with suppress(Exception):  # at interpreter shutdown parts of us may be gone
            self.reset()

    def pool(self) -> Pool:
        """The private pool, for other graphs to share."""
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def register_generator_state(self, generator: Any) -> None:
        """Nothing to do: captured random operators know their generators."""

    def enable_debug_mode(self) -> None:
        """Nothing to switch on."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the number of nodes to a file."""
        nodes = len(self._graph.capture.nodes) if self._graph is not None else 0
        with open(debug_path, "w", encoding="utf-8") as file:
            file.write(f"digraph streamsan {{ nodes={nodes} }}\n")

    def raw_cuda_graph(self) -> int:
        """Not to be had."""
        raise NotImplementedError("the virtual GPU's graphs have no native handles")

    raw_cuda_graph_exec = raw_cuda_graph
    get_graph_data = raw_cuda_graph


class Graph(CUDAGraph):
    """``torch.accelerator.Graph``: also a context, which captures the current stream."""

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: Pool | None = None,
        capture_error_mode: str = "default",
    ) -> None:
        super().__init__(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Capture the current stream from here on, as the constructor was told."""
        mode = "global" if self.capture_error_mode == "default" else self.capture_error_mode
        super().capture_begin(self.graph_pool, mode)

    def __enter__(self) -> Graph:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.capture_begin()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.capture_end()

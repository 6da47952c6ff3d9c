"""``torch.cuda.CUDAGraph`` of the virtual machine (rules G1 to G4)."""

from __future__ import annotations

import gc
import itertools
from contextlib import suppress
from typing import Any

import torch

from streamsan.model.records import GraphDestroy, OpKind
from streamsan.virtual.face import current
from streamsan.virtual.face.streams import Stream
from streamsan.virtual.graph import Capture
from streamsan.virtual.streams import Event, Task

_pools = itertools.count(1)

Pool = tuple[int, int]


def graph_pool_handle() -> Pool:
    """A new private pool."""
    return (0, next(_pools))


class CUDAGraph:
    """A graph: capture once, replay as one operation."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._capture: Capture | None = None
        self._pool: Pool | None = None
        self._ready = False
        self._last: Task | None = None

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        """Capture the current stream from here on. Raises RuntimeError on the default stream."""
        gpu = current.face().gpu
        stream = current.native_stream()
        if stream.default:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture,"
                " it's ok to replay them on the default stream.)"
            )
        if self._capture is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph.")
        with gpu.monitor:
            self._pool = pool or graph_pool_handle()
            for device in gpu.devices:
                device.allocator.retain_pool(self._pool[1])
                device.allocator.begin_capture()
            self._capture = Capture(gpu.observer.next_number(), self._pool[1], stream)

    def capture_end(self) -> None:
        """End the capture. Raises RuntimeError where something happened that it cannot hold."""
        gpu = current.face().gpu
        if self._capture is None:
            raise RuntimeError("capture_end() without capture_begin()")
        with gpu.monitor:
            for device in gpu.devices:
                device.allocator.end_capture()
            unjoined = self._capture.unjoined()
            self._capture.end()
        if unjoined:
            raise RuntimeError("CUDA error: capturing stream has unjoined work")
        self._ready = True

    def instantiate(self) -> None:
        """Nothing is left to do."""

    def replay(self) -> None:
        """Launch the graph on the current stream, behind its earlier launches (G2, G4)."""
        face = current.face()
        capture = self._capture
        if capture is None or not self._ready:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        stream = current.native_stream()
        with face.gpu.monitor:
            face.gpu.submit(stream, capture.launch, (self._last,))
            self._last = stream.tail
            face.gpu.observer.operation(
                int(OpKind.GRAPH_LAUNCH),
                "CUDAGraph.replay",
                stream.timeline,
                tuple(capture.accesses),
                graph=capture.number,
            )

    def reset(self) -> None:
        """Forget the graph; its pool may be reused when no tensor and no graph holds it."""
        gpu = current.face().gpu
        capture, self._capture = self._capture, None
        self._ready = False
        if capture is None or self._pool is None:
            return
        with gpu.monitor:
            for device in gpu.devices:
                device.allocator.release_pool(self._pool[1])
            gpu.observer.emit(GraphDestroy(capture.number, gpu.observer.thread()))

    def __del__(self) -> None:
        with suppress(Exception):  # at interpreter shutdown parts of us may be gone
            self.reset()

    def pool(self) -> Pool:
        """The private pool, for other graphs to share."""
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Nothing to switch on."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the number of nodes to a file."""
        nodes = len(self._capture.nodes) if self._capture is not None else 0
        with open(debug_path, "w", encoding="utf-8") as file:
            file.write(f"digraph streamsan {{ nodes={nodes} }}\n")

    @property
    def captured(self) -> dict[int, Event]:
        """Events recorded in the capture, by number."""
        return self._capture.events if self._capture is not None else {}


class graph:  # noqa: N801 - torch.cuda.graph
    """Context that captures into a graph, on a side stream of its own by default."""

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Pool | None = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        **_: Any,
    ) -> None:
        if type(self).default_capture_stream is None:
            type(self).default_capture_stream = Stream()
        self._graph = cuda_graph
        self._pool = pool
        chosen = stream or type(self).default_capture_stream
        self._context = current.stream_context(chosen)

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self._context.__enter__()
        self._graph.capture_begin(self._pool)

    def __exit__(self, *exc_info: Any) -> None:
        try:
            self._graph.capture_end()
        finally:
            self._context.__exit__(*exc_info)

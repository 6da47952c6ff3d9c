"""A graph of the virtual machine from its capture to its end (rules G1 to G4)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from streamsan.model.records import GraphDestroy, OpKind
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.graph import Capture
from streamsan.virtual.streams import Stream, Task


class ExecutableGraph:
    """One capture of the work of `origin`, with the private pool `pool`, and its launches.

    The capture is under way from here on. Raises CaptureRefused where the allocator bears none.
    """

    def __init__(self, gpu: Gpu, pool: int, origin: Stream, mode: str = "global") -> None:
        self.pool = pool
        self._gpu = gpu
        self._last: Task | None = None
        with gpu.monitor:
            for device in gpu.devices:
                device.allocator.retain_pool(pool)
                device.allocator.begin_capture()
            self.capture = Capture(gpu.observer.next_number(), pool, origin, mode)
            gpu.captures.begin(self.capture)

    @property
    def capturing(self) -> bool:
        """Whether its capture is still under way."""
        return self.capture in self._gpu.captures.active

    def end(self) -> None:
        """End the capture. Raises RuntimeError where something happened that it cannot hold."""
        gpu = self._gpu
        with gpu.monitor:
            for device in gpu.devices:
                device.allocator.end_capture()
            gpu.captures.end(self.capture)

    def launch(self, stream: Stream, name: str) -> None:
        """Launch it on a stream that nobody captures, behind its earlier launches (G2, G4)."""
        gpu, capture = self._gpu, self.capture
        with gpu.monitor:
            for event in capture.waits:
                gpu.wait(stream, event)
            gpu.submit(stream, partial(capture.launch, capture.draw()), (self._last,))
            self._last = stream.tail
            gpu.observer.operation(
                int(OpKind.GRAPH_LAUNCH),
                name,
                stream.timeline,
                tuple(capture.accesses),
                graph=capture.number,
            )
            for event in capture.records:
                gpu.record(event, stream)

    def destroy(self) -> None:
        """Its pool may be reused when no tensor and no other graph holds it."""
        gpu = self._gpu
        if self.capturing:
            with suppress(RuntimeError):  # an abandoned capture has nobody to tell
                self.end()
        destroyed = GraphDestroy(self.capture.number, gpu.observer.thread())

        def release() -> None:
            for device in gpu.devices:
                device.allocator.release_pool(self.pool)
            gpu.observer.emit(destroyed)

        gpu.monitor.later(release)

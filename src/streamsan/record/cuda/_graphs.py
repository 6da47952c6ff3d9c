"""CUDA graphs on a real GPU: captures, launches, and the end of graphs (rules G1 to G4)."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record.cuda._methods import listen
from streamsan.record.cuda._streams import GraphCapture

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def install_graphs(recorder: CudaRecorder) -> None:
    """Listen to ``torch.cuda.CUDAGraph``, for the rest of the process."""
    graphs, kind = Graphs(recorder), torch.cuda.CUDAGraph
    _begin_unseen(recorder, kind)
    listen(recorder, kind, "capture_begin", graphs.begun)
    listen(recorder, kind, "capture_end", graphs.ended, always=True)
    listen(recorder, kind, "replay", graphs.launched)
    listen(recorder, kind, "reset", graphs.forget, always=True)


def _begin_unseen(recorder: CudaRecorder, kind: Any) -> None:
    """A capture begins with operators of torch's own, which run at once and fill what a launch
    fills again: the state of generators, the same for all graphs. They are none of the program's.
    """
    begin = kind.capture_begin

    @functools.wraps(begin)
    def capture_begin(*args: Any, **kwargs: Any) -> Any:
        with recorder.hidden():
            return begin(*args, **kwargs)

    kind.capture_begin = capture_begin


class Graphs:
    """The graphs of a program, by what identifies each object while it lives."""

    def __init__(self, recorder: CudaRecorder) -> None:
        self._recorder = recorder
        self._observer = recorder.observer
        self._streams = recorder.streams
        self._captures: dict[int, GraphCapture] = {}

    def begun(self, _: Any, graph: Any, *__: Any, **___: Any) -> None:
        """A capture has started on the calling thread's current stream."""
        device = torch.cuda.current_device()
        origin = self._streams.current(device)
        capture = GraphCapture(self._observer.next_number(), origin, device)
        weakref.finalize(graph, self._gone, id(graph), capture).atexit = False
        self._captures[id(graph)] = capture
        self._streams.begin_capture(capture)

    def ended(self, _: Any, graph: Any) -> None:
        """The capture is over, whether or not it was one that CUDA accepts."""
        capture = self._captures.get(id(graph))
        if capture is not None:
            self._streams.end_capture(capture)

    def launched(self, _: Any, graph: Any) -> None:
        """Rule G2: one operation of the current stream, made of the accesses of all nodes."""
        capture = self._captures.get(id(graph))
        if capture is None:
            self._observer.note_once(
                "blind-spot", "a graph was launched whose capture was not seen"
            )
            return
        stream = self._streams.current(capture.device)
        thread, stack = self._observer.thread(), self._recorder.stack()
        for event in capture.waits:
            self._observer.emit(r.EventWait(event, stream, thread, stack))
        self._observer.operation(
            int(r.OpKind.GRAPH_LAUNCH),
            "CUDAGraph.replay",
            stream,
            tuple(capture.accesses),
            graph=capture.number,
            stack=stack,
        )
        for event in capture.records:
            self._observer.emit(r.EventRecord(event, stream, thread, stack))

    def forget(self, _: Any, graph: Any) -> None:
        """The graph is empty again: its private pool may be reused (rule G3)."""
        capture = self._captures.get(id(graph))
        if capture is not None:
            self._destroyed(id(graph), capture)

    def _gone(self, key: int, capture: GraphCapture) -> None:
        """The graph is gone: the same, told by a finalizer."""
        self._observer.monitor.later(lambda: self._destroyed(key, capture))

    def _destroyed(self, key: int, capture: GraphCapture) -> None:
        if self._captures.get(key) is capture:
            del self._captures[key]
            self._streams.end_capture(capture)
            self._observer.emit(r.GraphDestroy(capture.number, self._observer.thread()))

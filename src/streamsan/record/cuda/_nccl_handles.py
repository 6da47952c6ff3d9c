"""Handles of collectives and their futures on CUDA devices, seen from Python.

That a stream waits for a handle shows as the wait for an event. What does not show: that the host
asked or waited (rules E4, E3), and that a future records streams on its tensors (rule M2).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from streamsan.model import records as r
from streamsan.record.cuda._nccl import Collectives, Handle
from streamsan.virtual.face.nccl.settings import host_waits

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


class Handles:
    """The handles that Python holds, with what is known of each."""

    def __init__(self, recorder: CudaRecorder, collectives: Collectives) -> None:
        self._recorder = recorder
        self._collectives = collectives
        self._known: weakref.WeakKeyDictionary[Any, Handle] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Patch the classes of torch."""
        work: Any = torch._C._distributed_c10d.Work
        for name in ("wait", "synchronize"):
            setattr(work, name, self._waiting(getattr(work, name)))
        for name in ("is_completed", "is_success"):
            setattr(work, name, self._asking(getattr(work, name)))
        future: Any = torch._C.Future  # what a handle gives; that of torch.futures calls it
        future.wait = self._using(future.wait)
        future.then = self._calling_back(future.then)
        future.add_done_callback = self._calling_back(future.add_done_callback)

    @property
    def watched(self) -> bool:
        """Whether anything is recorded at the moment."""
        return self._recorder.enabled and self._recorder.observer.recording

    def claim(self, work: Any) -> None:
        """The handle that was just made belongs to the collective that was just issued."""
        handle, self._collectives.local.handle = self._collectives.local.handle, None
        if handle is not None and work is not None:
            self._recorder._guarded(lambda: self._known.__setitem__(work, handle))

    # -- handles ----------------------------------------------------------------------------------

    def _waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            timeout = args[0] if args else kwargs.get("timeout")
            if self.watched:
                self._recorder._guarded(lambda: self._waited(work, timeout))
            return result

        return wait

    def _waited(self, work: Any, timeout: Any) -> None:
        """The program waited for a handle: for that of a barrier, or where a setting says so, the
        host did too. A handle whose event another thread records orders the current stream here.
        """
        handle = self._known.get(work)
        if handle is None:
            return
        if handle.event == r.NONE:
            streams = self._recorder.streams
            streams.order(handle.stream, streams.current(handle.device))
            self._collectives.flights.ended(handle.flight)
        elif handle.barrier or host_waits(timeout):
            self._done(handle)

    def _asking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def ask(work: Any) -> Any:
            done = original(work)
            if done and self.watched:
                handle = self._known.get(work)
                if handle is not None and handle.event != r.NONE:
                    self._recorder._guarded(lambda: self._done(handle))
            return done

        return ask

    def _done(self, handle: Handle) -> None:
        """Rule E4: the host knows that a collective is done."""
        observer = self._recorder.observer
        observer.emit(r.EventSync(handle.event, observer.thread(), observer.stack(), True))

    # -- futures ----------------------------------------------------------------------------------

    def _using(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(future: Any) -> Any:
            value = original(future)
            if self.watched:
                self._recorder._guarded(lambda: self._record(value))
            return value

        return wait

    def _record(self, value: Any) -> None:
        """Rule M2: torch records the current stream on a future's tensors for whoever waits."""
        for tensor in tree_leaves(value):
            if isinstance(tensor, torch.Tensor) and self._recorder.owner(tensor) >= 0:
                stream = self._recorder.streams.current(tensor.get_device())
                self._recorder.blocks.record_stream(tensor, stream, explicit=False)

    def _calling_back(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A callback runs on streams of the pool, as one who has waited for the future."""

        @functools.wraps(original)
        def then(future: Any, callback: Callable[..., Any]) -> Any:
            @functools.wraps(callback)
            def called(done: Any) -> Any:
                if self.watched:
                    self._recorder._guarded(lambda: self._record(done.value()))
                return callback(done)

            return original(future, called)

        return then

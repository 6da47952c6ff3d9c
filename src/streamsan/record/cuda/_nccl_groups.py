"""Process groups and backends on CUDA devices: the methods that issue collectives.

Those of a process group call operators, which the dispatcher shows; those of the backend objects
inside of it, or of one made by hand, do not, and are watched here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record.cuda._methods import listen, replace
from streamsan.record.cuda._nccl import EVERY, Collectives
from streamsan.record.cuda._nccl_calls import communicator_of
from streamsan.record.cuda._nccl_comm import install_comm
from streamsan.record.cuda._nccl_handles import Handles
from streamsan.record.cuda._nccl_raw import install_raw
from streamsan.virtual.face.collective_ops import METHODS

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

Key = Callable[[Any], str]
"""Tells the communicator of a group or a backend from others."""


def install_collectives(recorder: CudaRecorder) -> None:
    """Watch collectives, for the rest of the process. Nothing where torch has no distributed."""
    install_raw(recorder)
    install_comm(recorder)
    if torch.distributed.is_available():
        handles = Handles(recorder, recorder.collectives)
        handles.install()
        Groups(recorder, recorder.collectives, handles).install()


class Groups:
    """The process groups and backends of this process."""

    def __init__(self, recorder: CudaRecorder, collectives: Collectives, handles: Handles) -> None:
        self._recorder = recorder
        self._collectives = collectives
        self._handles = handles

    def install(self) -> None:
        """Patch the classes of torch."""
        native: Any = torch._C._distributed_c10d
        for name in METHODS:
            self._patch(native.ProcessGroup, name, self._issuing)
        self._install_regions(native.ProcessGroup, _key_of_group)
        for kind in _all_kinds(native.Backend):
            for name in METHODS:
                self._patch(kind, name, functools.partial(self._calling, name))
            self._install_regions(kind, _key_of_backend)
        if hasattr(native, "_SymmetricMemory"):
            listen(self._recorder, native._SymmetricMemory, "rendezvous", self._shared)

    def _install_regions(self, kind: type[Any], key: Key) -> None:
        """Patch what collects calls that NCCL launches later, if at all, and what ends it all."""
        for start, end, ending, of in (
            ("_start_coalescing", "_end_coalescing", self._ending, key),
            ("_group_start", "_group_end", self._ending, _key_of_every),
            ("_start_time_estimate", "_end_time_estimate", self._dropping, _key_of_every),
        ):
            self._patch(kind, start, functools.partial(self._starting, of))
            self._patch(kind, end, functools.partial(ending, of))
        self._patch(kind, "shutdown", functools.partial(self._shutting_down, key))

    def _patch(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Put a wrapper around a method, where the class itself has it."""
        if name in vars(owner):
            replace(owner, name, wrapper(getattr(owner, name)))

    def _shared(self, *_: Any) -> None:
        """Memory is shared with other ranks: what this one calls are operators, which are seen."""
        text = "what other ranks read and write of this one's symmetric memory"
        self._recorder.observer.note_once("blind-spot", text)

    def _issuing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            work = original(*args, **kwargs)
            self._handles.claim(work)
            return work

        return call

    def _calling(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a backend object: nothing else tells what was issued."""

        @functools.wraps(original)
        def call(backend: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._handles.watched:
                return original(backend, *args, **kwargs)
            work = self._collectives.call(method, original, backend, *args, **kwargs)
            self._handles.claim(work)
            return work

        return call

    # -- coalescing -------------------------------------------------------------------------------

    def _starting(self, key: Key, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(owner: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(owner, *args, **kwargs)
            if self._handles.watched:
                self._recorder._guarded(lambda: self._collectives.start_region(key(owner)))
            return result

        return start

    def _ending(self, key: Key, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def end(owner: Any, *args: Any, **kwargs: Any) -> Any:
            region = self._recorder._guarded(lambda: self._collectives.take_region(key(owner)))
            work = self._collectives.launch(region, lambda: original(owner, *args, **kwargs))
            self._handles.claim(work)
            return work

        return end

    def _dropping(self, key: Key, original: Callable[..., Any]) -> Callable[..., Any]:
        """A time was asked for: nothing of what was called in between is run."""

        @functools.wraps(original)
        def end(owner: Any, *args: Any, **kwargs: Any) -> Any:
            self._recorder._guarded(lambda: self._collectives.take_region(key(owner)))
            return original(owner, *args, **kwargs)

        return end

    def _shutting_down(self, key: Key, original: Callable[..., Any]) -> Callable[..., Any]:
        """Rule H1: the host waits for what a communicator has under way before it is destroyed."""

        def report(streams: set[int]) -> None:
            observer = self._recorder.observer
            for stream in streams:
                observer.emit(r.StreamSync(stream, observer.thread(), observer.stack()))

        @functools.wraps(original)
        def shutdown(owner: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._recorder._guarded(lambda: key(owner))
            result = original(owner, *args, **kwargs)
            streams = self._collectives.groups.pop(known, set())
            if self._handles.watched:
                self._recorder._guarded(lambda: report(streams))
            return result

        return shutdown


def _all_kinds(kind: type[Any]) -> Iterator[type[Any]]:
    """A class and those derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from _all_kinds(derived)


def _key_of_group(group: Any) -> str:
    return str(group.group_name)


def _key_of_backend(backend: Any) -> str:
    return communicator_of(backend).key


def _key_of_every(_: Any) -> str:
    return EVERY

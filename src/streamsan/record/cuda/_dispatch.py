"""Which operators of a thread the CUDA recorder sees, from inside of torch's dispatcher.

See `streamsan.record.dispatch`: most operators come to `Running` or nowhere; the few whose handling
takes more are run under the recorder's dispatch mode, each for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from streamsan.record import _core
from streamsan.record.cuda._mode import CudaMode
from streamsan.record.cuda._operators import Arguments, Keywords, Running
from streamsan.record.dispatch import BuildError, load

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_VIEWS = ("aten::expand", "aten::view")

PASSED_OVER = (
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "permute",
    "select.int", "slice.Tensor", "split.Tensor", "split_with_sizes", "squeeze", "squeeze.dim",
    "squeeze.dims", "t", "transpose.int", "unbind.int", "unsqueeze",
)  # fmt: skip
"""Operators of which nothing is to be said, and which every program is full of."""


class Dispatch:
    """Shows a recorder the operators of the threads that are brought in."""

    def __init__(self, recorder: CudaRecorder, library: ModuleType) -> None:
        self._recorder = recorder
        self._library = library
        compiled = recorder.recording
        begin, note = (
            (self._begin, self._note) if compiled is None else (compiled.begin, compiled.note)
        )
        bridge = None if compiled is None else _core.bridge()
        library.set_up(
            self._route, begin, self._push, self._pop, note, self._internal_error, bridge, compiled
        )
        library.pass_over(PASSED_OVER)
        _hide_from_higher_order(library)

    def enter_thread(self) -> None:
        """Watch the operators of the calling thread, and of backward passes that it starts."""
        self._library.include(True)

    def trace_memory(self, of_allocations: list[Any], of_frees: list[Any]) -> bool:
        """Take allocations and frees from torch's GPU trace before it asks Python, once it is on.

        The lists are those of others that listen. False where that is not possible.
        """
        compiled = self._recorder.recording
        if compiled is None or self._recorder.cache.uncached:
            return False
        return bool(self._library.trace_memory(of_allocations, of_frees))

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Operators of the calling thread are not seen for a while."""
        self._library.include(False)
        try:
            yield
        finally:
            self._library.include(True)

    def leave_thread(self) -> None:
        """Watch the calling thread no more."""
        self._library.include(False)

    def _route(self, name: str, overload: str) -> Any:
        """How an operator is treated: None, to pass it on; what reports it; ``view``; ``mode``."""
        namespace, _, short = name.partition("::")
        op = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
        _, reported, handler, _ = self._recorder.routes.find(op)
        if reported is not None:
            return reported
        if handler is None:
            return None
        return "view" if name in _VIEWS else "mode"

    def _begin(self, reported: Any, args: Arguments, kwargs: Keywords) -> Running | None:
        recorder = self._recorder
        if not recorder.enabled or not recorder.observer.recording:
            return None
        return Running(recorder, reported, args, kwargs)

    def _push(self) -> CudaMode:
        mode = CudaMode(self._recorder)
        mode.__enter__()  # type: ignore[no-untyped-call]
        return mode

    def _pop(self, mode: CudaMode) -> None:
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _note(self) -> None:
        if self._recorder.enabled and self._recorder.observer.recording:
            self._recorder.nodes.note()

    def _internal_error(self, error: BaseException) -> None:
        self._recorder.observer.internal_error(error)


def _hide_from_higher_order(library: ModuleType) -> None:
    """Have higher-order operators choose their kernels without our key: they know none for it, and
    what they are made of comes to us anyway.
    """
    choose: Any = torch._ops.key_extractor
    before = torch._C._dispatch_tls_local_include_set()
    library.include(True)
    own = torch._C._dispatch_tls_local_include_set() - before
    library.include(False)

    def key_extractor(tensors: Any, key_mask: Any) -> Any:
        return choose(tensors, key_mask - own)

    torch._ops.key_extractor = key_extractor


def open_dispatch(recorder: CudaRecorder) -> Dispatch | None:
    """The dispatcher's view for a recorder, or None, which the report explains: use a mode."""
    try:
        return Dispatch(recorder, load())
    except BuildError as error:
        recorder.observer.note("info", f"operators are seen from Python, which is slower: {error}")
        return None

"""Exceptions of operators that the CUDA recorder runs: no frame of ours, nothing kept alive."""

from __future__ import annotations

import signal
import sys
import traceback
import weakref
from collections.abc import Callable

import pytest
import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._mode import CudaMode
from streamsan.record.cuda._recorder import CudaRecorder
from streamsan.tracebacks import hide_our_frames, is_from_a_signal


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> CudaRecorder:
    for name in ("CurrentRawStream", "Device"):
        monkeypatch.setattr(torch._C, f"_cuda_get{name}", lambda *_: 0, raising=False)
    observer = Observer()
    observer.begin(lambda *_: None, r.Header("cuda", {}, (), {}), (__file__,))
    return CudaRecorder(observer)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise adds its frame again")
def test_the_program_handles_the_exception_that_it_would_handle_without_us(
    recorder: CudaRecorder,
) -> None:
    recorder.keeps_errors = True
    with CudaMode(recorder), pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        torch.mm(torch.ones(8, 8), torch.ones(3, 5))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.filename for frame in frames] == [__file__]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise adds its frame again")
def test_what_the_failing_operator_was_given_is_dropped(recorder: CudaRecorder) -> None:
    recorder.keeps_errors = True
    gone: list[weakref.ref[torch.Tensor]] = []
    with CudaMode(recorder):
        try:
            torch.mm(watched(gone), torch.ones(3, 5))
        except RuntimeError:
            assert [reference() for reference in gone] == [None]


def watched(gone: list[weakref.ref[torch.Tensor]]) -> torch.Tensor:
    made = torch.ones(8, 8)
    gone.append(weakref.ref(made))
    return made


def test_frames_stay_where_torch_would_lose_an_exception_that_drops_tensors(
    recorder: CudaRecorder,
) -> None:
    gone: list[weakref.ref[torch.Tensor]] = []
    with CudaMode(recorder):
        try:
            torch.mm(watched(gone), torch.ones(3, 5))
        except RuntimeError:
            assert gone[0]() is not None


def test_frames_of_the_program_stay() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("one")
    before = traceback.extract_tb(caught.value.__traceback__)
    hide_our_frames(caught.value)
    assert traceback.extract_tb(caught.value.__traceback__) == before


class Handlers:
    """Handlers of a signal, of all sorts."""

    def method(self, *_: object) -> None:
        raise TimeoutError

    def __call__(self, *_: object) -> None:
        raise TimeoutError


def plain(*_: object) -> None:
    raise TimeoutError


@pytest.mark.parametrize("handler", [plain, Handlers().method, Handlers()])
def test_what_a_handler_of_a_signal_raises_is_no_error_of_ours(
    handler: Callable[..., None],
) -> None:
    seen: list[r.AnyRecord] = []
    observer = Observer()
    observer.begin(seen.append, r.Header("cuda", {}, (), {}), ())
    before = signal.signal(signal.SIGUSR1, handler)

    def interrupted() -> None:
        signal.raise_signal(signal.SIGUSR1)

    try:
        with pytest.raises(TimeoutError) as raised:
            interrupted()
        assert is_from_a_signal(raised.value)
        with pytest.raises(TimeoutError):
            observer.internal_error(raised.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_from_a_signal(raised.value)  # no handler any longer
    observer.internal_error(raised.value)
    assert [type(record) for record in seen if isinstance(record, r.Note)] == [r.Note]

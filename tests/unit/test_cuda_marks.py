"""``record_stream`` with the program's dispatch modes switched off, and ours with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.record.cuda._patches import _marks


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None, raising=False)
    recorder: Any = SimpleNamespace(
        enabled=True,
        observer=SimpleNamespace(recording=True),
        sees_below_modes=False,
        blocks=SimpleNamespace(record_torch_stream=lambda *what: found.append(what)),
        _guarded=lambda work: work(),
    )
    _marks(recorder)
    return found


def test_it_is_told_where_no_mode_is_asked(told: list[Any]) -> None:
    tensor, stream = torch.ones(3), object()
    tensor.record_stream(stream)  # type: ignore[arg-type]
    assert told == []  # a mode sees it
    modes_off = torch._C._DisableTorchDispatch()
    tensor.record_stream(stream)  # type: ignore[arg-type]
    del modes_off
    assert [(id(one), other) for one, other in told] == [(id(tensor), stream)]

"""The dispatch mode of the CUDA recorder beside tensor subclasses and torch's fake tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._mode import CudaMode
from streamsan.record.cuda._recorder import CudaRecorder
from tests.unit.fake_collectives import NATIVE


class Pair(torch.Tensor):
    """A tensor made of two, as distributed tensors are made of others."""

    @staticmethod
    def __new__(cls: type[Pair], first: torch.Tensor, second: torch.Tensor) -> Pair:
        made: Pair = torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)
        made.parts = (first, second)
        return made

    parts: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator on both parts."""

        def on(part: int) -> Any:
            return func(*(a.parts[part] if isinstance(a, Pair) else a for a in args))

        return Pair(on(0), on(1))


class Seen(TorchDispatchMode):
    """Counts operators on plain tensors, below the recorder's mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operator."""
        if types:
            return NotImplemented
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> CudaMode:
    """The mode of a recorder under way."""
    for name, answer in NATIVE.items():
        monkeypatch.setattr(torch._C, name, answer, raising=False)
    observer = Observer()
    observer.begin(lambda _: None, r.Header("cuda", {}, (), {}), ())
    return CudaMode(CudaRecorder(observer))


def test_parts_of_a_subclass_are_seen(mode: CudaMode) -> None:
    pair = Pair(torch.ones(2), torch.zeros(2))
    with Seen() as seen, mode:
        total = torch.add(pair, 1)
    assert isinstance(total, Pair)
    assert seen.names == ["aten::add", "aten::add"]
    assert [part.tolist() for part in total.parts] == [[2.0, 2.0], [1.0, 1.0]]


def test_fake_tensors_stay_fake(mode: CudaMode) -> None:
    with mode, FakeTensorMode():
        assert tuple((torch.empty(2, 3) @ torch.empty(3, 4)).shape) == (2, 4)
    with FakeTensorMode() as fake:
        left = torch.empty(2, 3)
    with fake, mode:
        assert tuple((left @ torch.empty(3, 4)).shape) == (2, 4)

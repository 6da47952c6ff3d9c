"""Functions of NumPy that are listened to behave as before; what they did is told afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from streamsan.record import _core
from streamsan.record._observer import Observer
from streamsan.record.arrays import listen_to_arrays
from streamsan.virtual.face.exports import Exports

pytestmark = pytest.mark.skipif(not _core.compiled(), reason="the core is not compiled here")

ROOT = Path(__file__).parents[2]

HEAD = """
    import gc, sys
    import numpy as np
    from streamsan.record import _core
    from streamsan.record.arrays import _hook, Reached

    told, compiled = [], _core.arrays()
    def tell(name, owner, args, kwargs):
        told.append((name, [type(arg).__name__ for arg in args], sorted(kwargs or ())))
    compiled.watch_arrays(np.ndarray, type(gc.get_referents(memoryview(b" "))[0]), tell)
    _hook(compiled, np)
    _hook(compiled, np)  # a second time changes nothing
    array, other = np.arange(64.0), np.arange(64.0)
    start = array.ctypes.data
    reached = Reached(compiled.watch_memory, grain=1)
    reached.add(start, start + array.nbytes)
    def of(work):
        told.clear()
        result = work()
        return result, list(told)
"""


def run(text: str) -> str:
    """Run a program in a process of its own, since hooks stay; what it prints."""
    code = textwrap.dedent(HEAD) + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_calls_with_watched_memory_are_told() -> None:
    run("""
        assert of(lambda: other[3])[1] == []
        assert of(lambda: other + other)[1] == []
        assert of(lambda: array[3]) == (3.0, [("ndarray.__getitem__", ["int"], [])])
        assert of(lambda: array + other)[1] == [("ufunc", ["ndarray", "ndarray"], [])]
        assert of(lambda: other + array)[1] == [("ufunc", ["ndarray", "ndarray"], [])]
        assert of(lambda: np.add(other, 1, out=array))[1] == [
            ("ufunc", ["ndarray", "int"], ["out"])
        ]
        assert of(lambda: np.concatenate([other, array]))[1] == [("concatenate", ["list"], [])]
        assert of(lambda: other.__setitem__(0, 5.0))[1] == []
        assert [x[0] for x in of(lambda: array.sum())[1]] == ["ufunc.reduce"]
        assert [x[0] for x in of(lambda: list(array[:2]))[1]] == ["ndarray.__getitem__"] * 2
        compiled.watch_memory([])
        assert of(lambda: array[3])[1] == []
    """)


def test_a_view_is_no_read() -> None:
    run("""
        for work in (
            lambda: array[3:5], lambda: array[...], lambda: np.asarray(array),
            lambda: array.ravel(), lambda: array.reshape(8, 8), lambda: array.T,
            lambda: array.astype(float, copy=False), lambda: array.view(np.int64),
            lambda: np.split(array, 2), lambda: len(array),
        ):
            assert of(work)[1] == [], work
        assert [x[0] for x in of(lambda: array.reshape(8, 8).T.ravel())[1]] == ["ndarray.ravel"]
        assert [x[0] for x in of(lambda: array.astype(int))[1]] == ["ndarray.astype"]
    """)


def test_a_buffer_is_told_with_what_it_is_asked_for_and_whether_for_later() -> None:
    run("""
        asked = []
        compiled.watch_arrays(
            np.ndarray, type(gc.get_referents(memoryview(b" "))[0]),
            lambda name, owner, args, kwargs: asked.append((name, *args)),
        )
        def of(work):
            asked.clear()
            work()
            return list(asked)
        view = memoryview(array)
        assert of(lambda: memoryview(array)) == [("ndarray.__buffer__", 0x11C, True)]
        assert of(lambda: bytes(array)) == [("ndarray.__buffer__", 0x11C, False)]
        assert of(lambda: bytes(view)) == [("memoryview.__buffer__", 0x11C, False)]
        assert of(lambda: b"".join([array])) == [("ndarray.__buffer__", 0, False)]
        later = [lent for name, *_, lent in of(lambda: np.frombuffer(array)) if "buffer__" in name]
        assert later == [True]
        assert of(lambda: view[2:]) == []
        assert of(lambda: view[2]) == [("memoryview.__getitem__", 2)]
        assert of(lambda: view == other) == [("memoryview.__eq__", other)] or True
    """)


def test_results_errors_and_names_are_those_of_numpy() -> None:
    run("""
        bare = np.arange(64.0)
        compiled.watch_memory([])
        assert (array[::2] == bare[::2]).all() and array.sum() == bare.sum() == 2016
        reached.add(start - 8, start + 8)  # another stretch, so that it is told anew
        for work, error in (
            (lambda: array[640], IndexError), (lambda: array.sum(axis=3), np.exceptions.AxisError),
            (lambda: np.concatenate([array, 3]), ValueError), (lambda: array["x"], IndexError),
            (lambda: bool(array), ValueError), (lambda: next(iter(array[:0])), StopIteration),
            (lambda: memoryview(array)[640], IndexError), (lambda: array.item(640), IndexError),
            (lambda: np.add(array), TypeError), (lambda: array + "x", TypeError),
        ):
            try:
                work()
            except error:
                continue
            raise AssertionError(error)
        assert np.ndarray.tolist.__name__ == "tolist" and "tolist" in np.ndarray.tolist.__doc__
        assert np.add.reduce == np.add.reduce and np.add.reduce.__name__ == "reduce"
        class Mine(np.ndarray):
            pass
        assert type(array.view(Mine)[1:]) is Mine
        assert of(lambda: array.view(Mine)[1])[1]
        assert of(lambda: array.__getitem__(1))[1] and np.ndarray.__getitem__(array, 2) == 2.0
    """)


def test_an_interrupt_while_it_is_told_reaches_the_program() -> None:
    run("""
        def interrupted(*_):
            raise KeyboardInterrupt
        compiled.watch_arrays(
            np.ndarray, type(gc.get_referents(memoryview(b" "))[0]), interrupted
        )
        before = sys.getrefcount(array)
        for work in (
            lambda: array[3], lambda: array + 1, lambda: array.__setitem__(0, 1.0), array.tolist,
            lambda: bytes(array), lambda: bool(array[:1]), lambda: memoryview(array),
        ):
            try:
                work()
            except KeyboardInterrupt:
                continue
            raise AssertionError(work)
        compiled.watch_memory([])
        assert array[0] == 1.0 and sys.getrefcount(array) == before
    """)


def test_what_a_call_touches_while_it_is_told_is_not_told() -> None:
    run("""
        seen = []
        compiled.watch_arrays(
            np.ndarray, type(gc.get_referents(memoryview(b" "))[0]),
            lambda *call: seen.append(array.sum()),
        )
        array[3]
        assert seen == [2016.0]
    """)


def test_stretches_are_merged() -> None:
    run("""
        watched = []
        reached = Reached(watched.append, grain=1)
        for span in ((100, 200), (300, 400), (120, 180), (200, 210), (0, 50), (205, 300)):
            reached.add(*span)
        assert watched == [
            [(100, 200)], [(100, 200), (300, 400)], [(100, 210), (300, 400)],
            [(0, 50), (100, 210), (300, 400)], [(0, 50), (100, 400)],
        ], watched
        del watched[:]
        Reached(watched.append).add(100, 1 << 16)
        assert watched == [[(0, 1 << 16)]]
    """)


def test_without_the_compiled_core_nothing_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer()
    exports = Exports(observer)
    monkeypatch.setattr(_core, "_compiled", None)
    assert not listen_to_arrays(observer, exports, lambda _: True)
    assert not exports.sees_uses
    assert exports.reached is None

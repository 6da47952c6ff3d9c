"""Calls that are noted without Python, by the instructions in front of a callback."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest

from streamsan.record._native_calls import NativeCalls
from streamsan.record._native_code import supported
from streamsan.record.cupti._library import CallbackData
from streamsan.record.cupti._ring import Ring

pytestmark = pytest.mark.skipif(not supported(), reason="needs Linux on x86-64")

RECORD, LAUNCH = 119, 307
KINDS = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
Notify = Callable[..., None]
CALLS = NativeCalls() if supported() else None
"""What is called must outlive the tests."""


def calls() -> NativeCalls:
    assert CALLS is not None
    return CALLS


@pytest.fixture
def seen() -> list[int]:
    return []


@pytest.fixture
def ring() -> Ring:
    return Ring([RECORD])


@pytest.fixture
def notify(ring: Ring, seen: list[int]) -> Notify:
    """CUPTI's callback, as native code calls it: without the interpreter."""

    def call(_: int, __: int, number: int, ___: int) -> None:
        seen.append(number)

    address = calls().notifying(call, *KINDS, first=ring.code, addresses=ring.addresses)
    function = ctypes.CFUNCTYPE(None, *KINDS)(address)

    def notify(number: int, *words: int, end: bool = True, result: int = 0) -> None:
        held, status = (ctypes.c_uint64 * 8)(*words), ctypes.c_int(result)
        data = CallbackData(
            int(end), b"name", ctypes.addressof(held), ctypes.addressof(status), None, None
        )
        function(0x1234, 1, number, ctypes.addressof(data))

    return notify


def test_only_what_is_asked_for_is_noted(ring: Ring, notify: Notify, seen: list[int]) -> None:
    notify(RECORD, 0x50, 0x55, end=False)
    notify(RECORD, 0x50, 0x55)
    notify(RECORD, 0x50, 0x66, result=1)
    notify(LAUNCH, 1, end=False)
    notify(LAUNCH, 1)
    assert seen == [LAUNCH]
    assert ring.take() == [(RECORD, threading.get_ident(), 0x50, 0x55)]
    assert (ring.pending, ring.take()) == (False, [])


def test_the_arguments_reach_python_as_they_were(ring: Ring) -> None:
    got: list[tuple[int, ...]] = []
    address = calls().notifying(
        lambda *arguments: got.append(arguments), *KINDS, first=ring.code, addresses=ring.addresses
    )
    data = CallbackData(1, b"name", 0, 0, None, None)
    ctypes.CFUNCTYPE(None, *KINDS)(address)(0x1234, 1, LAUNCH, ctypes.addressof(data))
    assert got == [(0x1234, 1, LAUNCH, ctypes.addressof(data))]


def test_entries_of_several_threads(ring: Ring, notify: Notify) -> None:
    idents: list[int] = []

    def record(word: int) -> None:
        idents.append(threading.get_ident())
        for _ in range(500):
            notify(RECORD, word, 0)

    threads = [threading.Thread(target=record, args=(word,)) for word in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = ring.take()
    assert len(entries) == 1000
    assert {(thread, word) for _, thread, word, _ in entries} == set(zip(idents, (1, 2)))
    assert ring.lost == 0


def test_a_ring_that_nobody_reads_keeps_the_newest(ring: Ring, notify: Notify) -> None:
    for word in range(5000):
        notify(RECORD, word, 0)
    assert ring.pending
    entries = ring.take()
    assert [word for _, _, word, _ in entries] == list(range(5000 - 4096, 5000))
    assert ring.lost == 5000 - 4096

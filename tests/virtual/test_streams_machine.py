"""Streams and events of the machine: what a synchronisation runs, and what it leaves."""

from __future__ import annotations

import pytest

from tests.virtual.machine import Machine


def test_work_of_a_stream_runs_in_order_and_only_when_waited_for() -> None:
    gpu = Machine()
    a, b = gpu.new_stream(0), gpu.new_stream(0)
    gpu.put(a, "a1", "a2")
    gpu.put(b, "b1")
    assert gpu.ran == []
    gpu.sync_stream(a)
    assert gpu.ran == ["a1", "a2"]
    gpu.sync_device(0)
    assert gpu.ran == ["a1", "a2", "b1"]


def test_an_event_stands_for_the_work_before_it_and_what_that_waited_for() -> None:
    gpu = Machine()
    a, b, c = (gpu.new_stream(0) for _ in range(3))
    gpu.put(a, "a1")
    first = gpu.event(a)
    gpu.put(a, "a2")
    gpu.put(c, "c1")
    gpu.wait(b, first)
    gpu.put(b, "b1")
    second = gpu.event(b)
    gpu.put(b, "b2")
    gpu.sync_event(second)
    assert gpu.ran == ["a1", "b1"]


def test_a_new_record_replaces_the_one_before_and_orders_taken_stay() -> None:
    gpu = Machine()
    a, b, c = (gpu.new_stream(0) for _ in range(3))
    gpu.put(a, "a1")
    event = gpu.event(a)
    gpu.wait(b, event)
    gpu.put(b, "b1")
    gpu.put(a, "a2")
    gpu.record(event, a)
    gpu.wait(c, event)
    gpu.put(c, "c1")
    gpu.sync_stream(b)
    assert gpu.ran == ["a1", "b1"]
    gpu.sync_stream(c)
    assert gpu.ran == ["a1", "b1", "a2", "c1"]


def test_the_time_of_an_event_is_that_of_its_latest_record() -> None:
    gpu = Machine()
    a, b = gpu.new_stream(0), gpu.new_stream(0)
    gpu.put(a, "a1")
    event = gpu.event(a)
    gpu.record(event, b)
    gpu.sync_event(event)
    reached = event.time
    assert reached > 0
    gpu.sync_stream(a)
    assert event.time == reached


def test_an_event_never_recorded_holds_nobody_up() -> None:
    gpu = Machine()
    a = gpu.new_stream(0)
    event = gpu.new_event()
    gpu.wait(a, event)
    gpu.put(a, "a1")
    assert gpu.query_event(event)
    gpu.sync_event(event)
    assert gpu.ran == []
    gpu.sync_stream(a)
    assert gpu.ran == ["a1"]


def test_two_devices_are_synchronised_apart() -> None:
    gpu = Machine(devices=2)
    one = gpu.new_stream(1)
    gpu.put(gpu.devices[0].default, "zero")
    gpu.put(one, "one")
    gpu.sync_device(0)
    assert gpu.ran == ["zero"]
    event = gpu.event(gpu.devices[0].default)
    gpu.put(gpu.devices[0].default, "later")
    gpu.wait(one, event)
    gpu.sync_device(1)
    assert gpu.ran == ["zero", "one"]


def test_a_wait_across_devices_runs_what_it_needs_of_the_other() -> None:
    gpu = Machine(devices=2)
    zero, one = gpu.devices[0].default, gpu.devices[1].default
    gpu.put(zero, "zero")
    gpu.wait(one, gpu.event(zero))
    gpu.put(zero, "rest")
    gpu.put(one, "one")
    gpu.sync_device(1)
    assert gpu.ran == ["zero", "one"]


def test_the_legacy_stream_and_blocking_streams_wait_for_one_another() -> None:
    gpu = Machine()
    legacy, blocking, pool = gpu.devices[0].default, gpu.external_stream(0, 77), gpu.new_stream(0)
    gpu.put(blocking, "b1")
    gpu.put(pool, "p1")
    gpu.put(legacy, "l1")
    gpu.put(blocking, "b2")
    gpu.sync_stream(blocking)
    assert gpu.ran == ["b1", "l1", "b2"]
    gpu.put(legacy, "l2")
    gpu.put(pool, "p2")
    gpu.sync_stream(pool)
    assert gpu.ran == ["b1", "l1", "b2", "p1", "p2"]


def test_work_run_at_once_on_the_legacy_stream_comes_after_blocking_streams() -> None:
    gpu = Machine()
    blocking, pool = gpu.external_stream(0, 77), gpu.new_stream(0)
    gpu.put(blocking, "b1")
    gpu.put(pool, "p1")
    gpu.finish(gpu.devices[0].default)
    assert gpu.ran == ["b1"]


def test_handles_0_and_1_are_the_legacy_stream_and_2_is_the_threads_own() -> None:
    gpu = Machine()
    assert gpu.external_stream(0, 0) is gpu.external_stream(0, 1) is gpu.devices[0].default
    own = gpu.external_stream(0, 2)
    assert own is gpu.external_stream(0, 2)
    assert own.blocking
    assert not own.default
    gpu.put(own, "own")
    gpu.put(gpu.devices[0].default, "legacy")
    gpu.sync_stream(gpu.devices[0].default)
    assert gpu.ran == ["own", "legacy"]


def test_a_pool_has_32_streams_of_each_priority() -> None:
    gpu = Machine(devices=2)
    normal = [gpu.new_stream(0) for _ in range(33)]
    urgent = [gpu.new_stream(0, -1) for _ in range(33)]
    assert normal[32] is normal[0]
    assert urgent[32] is urgent[0]
    assert len({id(stream) for stream in normal + urgent}) == 64
    assert gpu.new_stream(1) not in normal
    assert gpu.external_stream(0, normal[5].handle) is normal[5]


@pytest.mark.parametrize(("asked", "got"), [(0, 0), (5, 0), (-1, -1), (-3, -3), (-100, -3)])
def test_a_priority_out_of_range_counts_as_the_nearest(asked: int, got: int) -> None:
    assert Machine().new_stream(0, asked).priority == got


def test_an_error_in_work_reaches_whoever_waits_and_the_stream_goes_on() -> None:
    gpu = Machine()
    a = gpu.new_stream(0)

    def fail() -> None:
        raise IndexError("out of range")

    gpu.submit(a, fail)
    gpu.put(a, "a2")
    with pytest.raises(RuntimeError, match="failed on the device: out of range") as told:
        gpu.sync_stream(a)
    assert isinstance(told.value.__cause__, IndexError)
    gpu.sync_stream(a)
    assert gpu.ran == ["a2"]

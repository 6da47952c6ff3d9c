"""Device memory as a torch program sees it: addresses, figures, shortage, recovery, threads."""

from __future__ import annotations

import gc
import threading

import torch

from tests.virtual.agree import on_virtual_gpu, raised

MIB = 1 << 20


def block(size: int, device: int = 0) -> torch.Tensor:
    """A tensor of `size` bytes."""
    return torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))


@on_virtual_gpu("late", "program")
def test_a_freed_block_serves_the_next_request_of_its_stream() -> None:
    a, b = block(1000), block(1000)
    assert b.data_ptr() - a.data_ptr() == 1024  # rounded up to 512
    first = a.data_ptr()
    del a
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        other = block(1000)
    assert other.data_ptr() not in (first, b.data_ptr())
    again = block(700)
    assert again.data_ptr() == first


@on_virtual_gpu("late", "program")
def test_requests_come_from_segments_as_in_the_caching_allocator() -> None:
    block(1)
    assert torch.cuda.memory_reserved() == 2 * MIB
    large = block(2 * MIB)
    assert torch.cuda.memory_reserved() == 22 * MIB
    rest = block(11 * MIB)  # the rest of the segment serves it
    assert torch.cuda.memory_reserved() == 22 * MIB
    own = block(11 * MIB + 5)
    assert torch.cuda.memory_reserved() == 34 * MIB
    assert torch.cuda.memory_allocated() == 25 * MIB  # a rest of up to 1 MiB is not cut off
    del own, rest, large
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@on_virtual_gpu("late")
def test_a_recorded_stream_holds_a_block_back_until_its_work_is_done() -> None:
    side = torch.cuda.Stream()
    x = block(4096)
    address = x.data_ptr()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.fill_(1)
    x.record_stream(side)
    del x
    assert block(4096).data_ptr() != address
    stats = torch.cuda.memory_stats()
    assert stats["active.all.current"] == stats["allocation.all.current"] + 1
    side.synchronize()
    assert block(4096).data_ptr() == address


@on_virtual_gpu("late", "program")
def test_the_figures_are_those_of_a_real_device_after_one_allocation() -> None:
    x = torch.ones(4, device="cuda")
    stats = torch.cuda.memory_stats()
    for pool in ("all", "small_pool"):
        assert stats[f"allocated_bytes.{pool}.peak"] == stats[f"active_bytes.{pool}.current"] == 512
        assert stats[f"requested_bytes.{pool}.current"] == 16
        assert stats[f"inactive_split.{pool}.current"] == 1
        assert stats[f"inactive_split_bytes.{pool}.peak"] == 2096640
        assert stats[f"reserved_bytes.{pool}.allocated"] == 2 * MIB
    assert all(value == 0 for name, value in stats.items() if ".large_pool." in name)
    assert (stats["num_device_alloc"], stats["num_device_free"], stats["num_ooms"]) == (1, 0, 0)
    assert stats["max_split_size"] == -1
    snapshot = torch.cuda.memory_snapshot()
    blocks = [(b["size"], b["requested_size"], b["state"]) for b in snapshot[0]["blocks"]]
    assert blocks == [(512, 16, "active_allocated"), (2096640, 0, "inactive")]
    assert snapshot[0]["address"] == x.data_ptr()
    assert snapshot[0]["segment_type"] == "small"
    assert "| Allocated memory      |    512 B   |" in torch.cuda.memory_summary()


@on_virtual_gpu("late", "program")
def test_inactive_splits_follow_splitting_and_merging() -> None:
    def inactive() -> tuple[int, int]:
        stats = torch.cuda.memory_stats()
        found = [
            b["size"]
            for segment in torch.cuda.memory_snapshot()
            for b in segment["blocks"]
            if b["state"] == "inactive" and len(segment["blocks"]) > 1
        ]
        key = "inactive_split"
        told = stats[f"{key}.all.current"], stats[f"{key}_bytes.all.current"]
        assert told == (len(found), sum(found))
        return told

    a, b, c = block(512), block(1024), block(512)
    assert inactive() == (1, 2 * MIB - 2048)
    del b
    assert inactive() == (2, 2 * MIB - 1024)
    d = block(512)
    inactive()
    del a, d
    assert inactive()[0] == 2
    del c
    assert inactive() == (0, 0)
    large = block(3 * MIB)
    inactive()
    del large
    inactive()


@on_virtual_gpu("late", "program")
def test_peaks_and_sums_start_over_when_told() -> None:
    x = block(8 * MIB)
    del x
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() == 8 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
    y = block(MIB)
    assert torch.cuda.max_memory_allocated() == y.numel()
    assert torch.cuda.max_memory_reserved() == 22 * MIB


@on_virtual_gpu("late", "program")
def test_shortage_is_told_and_passes() -> None:
    free, total = torch.cuda.mem_get_info()
    assert total == torch.cuda.get_device_properties(0).total_memory == 2 << 30
    kind, text = raised(lambda: block(4 << 30))
    assert kind == "OutOfMemoryError"
    assert text.startswith("CUDA out of memory. Tried to allocate")
    assert "GPU 0 has a total capacity of 2.00 GiB" in text
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    torch.cuda.set_per_process_memory_fraction(0.02)
    assert torch.cuda.get_per_process_memory_fraction() == int(0.02 * total) / total
    held = [block(12 * MIB) for _ in range(3)]
    assert raised(lambda: block(12 * MIB))[0] == "OutOfMemoryError"
    held.pop()
    again = block(12 * MIB)
    again.fill_(3)
    assert again[-1].item() == 3
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.mem_get_info()[0] == free - torch.cuda.memory_reserved()
    wrong = ("ValueError", "Invalid fraction value: 1.5. Allowed range: 0~1")
    assert raised(lambda: torch.cuda.set_per_process_memory_fraction(1.5)) == wrong


@on_virtual_gpu("late", "hold:default", "random:2", "program")
def test_a_shortage_gives_cached_memory_back_after_the_work_that_uses_it() -> None:
    torch.cuda.set_per_process_memory_fraction(0.02)  # 40 MiB
    x = torch.ones(5 * MIB, device="cuda")
    total = x.sum()
    del x
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    big = block(30 * MIB)
    assert torch.cuda.memory_stats()["num_alloc_retries"] == retries + 1
    big.fill_(7)
    assert total.item() == 5 * MIB


@on_virtual_gpu("late", "program")
def test_memory_given_back_returns_to_the_machine() -> None:
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    x = block(256 * MIB)
    x.fill_(1)
    torch.cuda.synchronize()
    held = resident()
    del x
    torch.cuda.empty_cache()
    assert held - resident() > 200 * MIB
    assert torch.isnan(torch.empty(4, device="cuda")).all()


@on_virtual_gpu("late", "program")
def test_raw_blocks_live_until_they_are_deleted() -> None:
    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(1000)
    assert torch.cuda.memory_allocated() == before + 1024
    assert block(1000).data_ptr() != address
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == before
    assert raised(lambda: torch.cuda.caching_allocator_delete(12345))[0] == "RuntimeError"


@on_virtual_gpu("late", "program")
def test_a_resized_storage_has_other_memory_and_frees_it() -> None:
    x = torch.arange(4.0, device="cuda")
    before = torch.cuda.memory_allocated()
    x.untyped_storage().resize_(4 * MIB)
    assert torch.cuda.memory_allocated() == before + 4 * MIB - 512
    assert x.tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(0)
    assert torch.cuda.memory_allocated() == before - 512
    x.untyped_storage().resize_(16)
    x.fill_(2)
    assert x.tolist() == [2.0] * 4
    del x
    assert torch.cuda.memory_allocated() == before - 512


@on_virtual_gpu("late", "program")
def test_a_compiled_graph_resizes_storages_by_an_operator() -> None:
    ops = torch.ops.inductor
    x = torch.arange(4.0, device="cuda")
    before = torch.cuda.memory_allocated()
    ops.resize_storage_bytes_(x, 4 * MIB)
    assert torch.cuda.memory_allocated() == before + 4 * MIB - 512
    assert ops._reinterpret_tensor(x, [2], [2], 1).tolist() == [1, 3]
    assert ops._alloc_from_pool(x, 8, torch.float32, [2], [1]).tolist() == [2, 3]
    ops.resize_storage_bytes_(x, 0)
    assert torch.cuda.memory_allocated() == before - 512
    host = torch.arange(4.0)
    ops.resize_storage_bytes_(host, 32)
    assert host.untyped_storage().nbytes() == 32


@on_virtual_gpu("late")
def test_a_pinned_block_returns_when_the_copies_from_it_are_done() -> None:
    source = torch.ones(1024).pin_memory()
    address = source.data_ptr()
    target = source.to("cuda", non_blocking=True)
    del source
    other = torch.empty(1024, pin_memory=True)
    assert other.data_ptr() != address
    assert target.sum().item() == 1024
    assert torch.empty(1024, pin_memory=True).data_ptr() == address
    stats = torch.cuda.host_memory_stats()
    assert stats["allocated_bytes.current"] == 2 * 4096
    assert stats["num_host_alloc"] == 2


@on_virtual_gpu("late", "program", "random:1")
def test_threads_that_allocate_and_free_under_collection_leave_nothing() -> None:
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.current"]
    threshold, errors = gc.get_threshold(), []
    gc.set_threshold(20)

    def work(number: int) -> None:
        try:
            stream = torch.cuda.Stream()
            for turn in range(40):
                with torch.cuda.stream(stream):
                    cycle: list[object] = [torch.ones(100 + turn, device="cuda")]
                    cycle.append(cycle)  # freed by the collector, in whatever thread
                    total = torch.full((64,), float(number), device="cuda").sum()
                    if turn % 10 == 0:
                        assert total.item() == 64 * number
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.set_threshold(*threshold)
    gc.collect()
    torch.cuda.synchronize()
    assert not errors, errors
    stats = torch.cuda.memory_stats()
    assert stats["allocation.all.current"] == before
    flow = stats["allocated_bytes.all.allocated"] - stats["allocated_bytes.all.freed"]
    assert flow == stats["allocated_bytes.all.current"]


@on_virtual_gpu("late")
def test_a_memory_pool_serves_what_is_asked_for_in_its_name() -> None:
    pool = torch.cuda.MemPool()
    assert pool.use_count() == 1
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        own = block(4096)
    first = own.data_ptr()
    assert [segment["active_size"] for segment in pool.snapshot()] == [4096]
    del own
    common = block(4096)
    assert common.data_ptr() != first
    with torch.cuda.use_mem_pool(pool):
        elsewhere: list[int] = []
        thread = threading.Thread(target=lambda: elsewhere.append(block(4096).data_ptr()))
        thread.start()
        thread.join()
        assert elsewhere[0] != first
        assert block(4096).data_ptr() == first
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved  # the pool keeps what it has
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved - 2 * MIB


@on_virtual_gpu("late")
def test_a_memory_pool_of_another_allocator_is_refused() -> None:
    kind, text = raised(lambda: torch.cuda.MemPool(use_on_oom=True))
    assert kind == "NotImplementedError"
    assert text.startswith("torch.cuda.MemPool with an allocator or other options is not covered")

"""Memory that runs out: caught, and tried again with less; the allocator's own second try.

device: cuda
"""

from __future__ import annotations

import torch

TOTAL = torch.cuda.mem_get_info()[1]
MIB = 1 << 20
torch.cuda.set_per_process_memory_fraction(512 * MIB / TOTAL)


def blocks(size: int) -> list[torch.Tensor]:
    kept: list[torch.Tensor] = []
    try:
        while True:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        print("out of memory after", len(kept), str(error)[:44])
    return kept


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor])


def halves(size: int) -> None:
    """Compute with a temporary tensor, on half of the rows where that is too much."""
    tensor = torch.zeros(size, dtype=torch.uint8, device="cuda")
    try:
        doubled(doubled(tensor + 1))
    except torch.OutOfMemoryError:
        print("in the handler", torch.cuda.memory_allocated() // MIB)
        del tensor
        tensor = torch.zeros(size // 4, dtype=torch.uint8, device="cuda")
        print(doubled(doubled(tensor + 1)).numel(), torch.cuda.memory_allocated() // MIB)


def dropped(size: int) -> None:
    """What the failing statement has made is gone by the time that its exception is handled."""
    tensor = torch.zeros(size, dtype=torch.uint8, device="cuda")
    try:
        torch.cat([tensor + 1] * 8)
    except torch.OutOfMemoryError:
        print("in the handler", torch.cuda.memory_allocated() // MIB)


try:
    torch.empty(1 << 46, device="cuda")
except torch.OutOfMemoryError as error:
    print(type(error).__mro__[1].__name__, error.__traceback__ is not None)
for size in (64 * MIB, 31 * MIB, 3 * MIB):
    held = blocks(size)
    del held[::2]
    print("again", len(blocks(size)))
    del held
halves(100 * MIB)
halves(100 * MIB)
dropped(90 * MIB)
# The cache is full of blocks of one size: the allocator gives them back and tries again.
held = blocks(20 * MIB)
del held
print(torch.empty(300 * MIB, dtype=torch.uint8, device="cuda").numel())
figures = torch.cuda.memory_stats()
for name in (
    "num_ooms",
    "num_alloc_retries",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
):
    print(name, figures[name])

"""How bytes get from rank to rank: gloo for collectives, the store for single messages.

All calls return at once. What they return answers `done`, and gives the bytes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import PrefixStore, Store


class Exchange(Protocol):
    """Bytes on their way."""

    @property
    def done(self) -> bool:
        """Whether they are there."""

    def received(self) -> list[torch.Tensor]:
        """The bytes from each rank. Raises RuntimeError where another process is gone."""


class Transport:
    """The connections of one rank of a group; `store` is one that all its ranks share."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._timeout = timeout
        self._host: Any = None
        self._counts: dict[tuple[int, int], int] = {}
        if size > 1:
            # A connection of its own: the program may wait for a key on the other.
            self._messages = PrefixStore("streamsan/messages", _clone(store))
            self._gloo = self._connect("device")

    def _connect(self, name: str) -> Any:
        from torch.distributed import ProcessGroupGloo

        store = PrefixStore(f"streamsan/{name}", self._store)
        return ProcessGroupGloo(store, self.rank, self.size, self._timeout)

    def host(self) -> Any:
        """A gloo group for host tensors. It is not the one beneath, whose collectives begin when
        the device comes to them: gloo needs the same order in all processes.
        """
        if self._host is None:
            self._host = self._connect("host")
        return self._host

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> Exchange:
        """Send `parts`, one for each rank, and get `sizes` bytes of each. All ranks take part."""
        if self.size == 1:
            return _Here([parts[0]])
        own = parts[self.rank]
        parts = [EMPTY if rank == self.rank else part for rank, part in enumerate(parts)]
        # One byte more for each rank: no part is empty, and a barrier is an exchange of nothing.
        lengths = [1 + size * (rank != self.rank) for rank, size in enumerate(sizes)]
        result = torch.empty(sum(lengths), dtype=torch.uint8)
        sent = torch.cat([piece for part in parts for piece in (part, _MARK)])
        work = self._gloo.alltoall_base(result, sent, lengths, [len(part) + 1 for part in parts])
        return _There(work, sent, result, lengths, {self.rank: own})

    def messages(self, targets: Sequence[int], sources: Sequence[int]) -> Messages:
        """Single messages to some ranks and from some, in the order of these calls."""
        keys = [{peer: self._key(self.rank, peer) for peer in targets}]
        keys.append({peer: self._key(peer, self.rank) for peer in sources})
        return Messages(self._messages, *keys)

    def _key(self, source: int, target: int) -> str:
        count = self._counts[source, target] = self._counts.get((source, target), 0) + 1
        return f"{source}>{target}/{count}"


EMPTY = torch.empty(0, dtype=torch.uint8)
_MARK = torch.zeros(1, dtype=torch.uint8)


class _Here:
    """Bytes that are there already."""

    done = True

    def __init__(self, parts: list[torch.Tensor]) -> None:
        self._parts = parts

    def received(self) -> list[torch.Tensor]:
        return self._parts


class _There:
    """Bytes that gloo exchanges."""

    def __init__(
        self,
        work: Any,
        sent: torch.Tensor,
        result: torch.Tensor,
        lengths: Sequence[int],
        own: dict[int, torch.Tensor],
    ) -> None:
        self._work = work
        self._sent = sent  # gloo reads it until it is done
        self._result = result
        self._lengths = list(lengths)
        self._own = own

    @property
    def done(self) -> bool:
        return bool(self._work.is_completed())

    def received(self) -> list[torch.Tensor]:
        self._work.wait()
        pieces = self._result.split(self._lengths)
        return [self._own.get(rank, piece[:-1].clone()) for rank, piece in enumerate(pieces)]


def _clone(store: Any) -> Store:
    return store.clone()  # type: ignore[no-any-return]


class Messages:
    """Bytes that single ranks put into the store for one another.

    What is sent is on its way at once, whether or not the other rank is there to receive it.
    """

    def __init__(self, store: Store, targets: dict[int, str], sources: dict[int, str]) -> None:
        self._store: Any = store
        self._targets = targets
        self._sources = sources
        self._sizes: Sequence[int] = ()

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> Exchange:
        """Send `parts`, and expect `sizes` bytes; most ranks have no bytes either way."""
        self._sizes = sizes
        for peer, key in self._targets.items():
            self._store.set(key, parts[peer].numpy().tobytes())
        return self

    @property
    def done(self) -> bool:
        """Whether all that is to be received is there."""
        return not self._sources or bool(self._store.check(list(self._sources.values())))

    def received(self) -> list[torch.Tensor]:
        """The bytes from each rank."""
        result = []
        for rank, size in enumerate(self._sizes):
            data = b""
            if rank in self._sources:
                data = self._store.get(self._sources[rank])
                self._store.delete_key(self._sources[rank])
            if len(data) != size:
                raise RuntimeError(
                    f"a message of {len(data)} bytes came where {size} were to be received"
                )
            result.append(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else EMPTY)
        return result

"""Where the nodes of autograd graphs were made: the forward stack of each, by sequence number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from streamsan.model.records import NONE

_KEPT = 200_000
current_node = torch._C._current_autograd_node
"""The backward node at work in the calling thread, or None."""

sequence_number = torch._C._autograd._get_sequence_nr
"""The sequence number that the next node of the calling thread gets."""


class Nodes:
    """Forward stacks of nodes. Numbers of several threads may collide; a later node then wins.

    With each stack goes its `maker`: what the caller of `note` wants to know of the thread again.
    """

    def __init__(self, stack: Callable[[], int]) -> None:
        self._stack = stack
        self.notes: dict[int, tuple[int, Any]] = {}
        """Stack and maker by sequence number."""
        self._named = threading.local()

    def note(self, maker: Any = None) -> None:
        """An operator that makes a node runs now in the calling thread."""
        notes = self.notes
        notes[sequence_number() - 1] = (self._stack(), maker)
        if len(notes) > _KEPT:
            for number in sorted(notes)[: _KEPT // 2]:
                notes.pop(number, None)

    def maker(self, number: int) -> Any:
        """The maker noted last with a sequence number, or None."""
        return self.notes.get(number, (NONE, None))[1]

    def running(self) -> tuple[str, int]:
        """Name of the node at work in this thread, and the stack of its forward operation."""
        node: Any = current_node()
        if node is None:
            return "", NONE
        # Not the node itself: to keep one is to keep its graph and the accumulators of its leaves,
        # and the next forward pass would find them again, with the stream that they were born on.
        number = node._sequence_nr()
        key = (type(node), number)
        named: tuple[Any, str, int] | None = getattr(self._named, "value", None)
        if named is None or named[0] != key:
            named = (key, node.name(), self.notes.get(number, (NONE, None))[0])
            self._named.value = named
        return named[1], named[2]

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
    """Forward stacks of nodes. Numbers of several threads may collide; a later node then wins."""

    def __init__(self, stack: Callable[[], int]) -> None:
        self._stack = stack
        self._stacks: dict[int, int] = {}
        self._named = threading.local()

    def note(self) -> None:
        """An operator that makes a node runs now in the calling thread."""
        stacks = self._stacks
        stacks[sequence_number() - 1] = self._stack()
        if len(stacks) > _KEPT:
            for number in sorted(stacks)[: _KEPT // 2]:
                stacks.pop(number, None)

    def running(self) -> tuple[str, int]:
        """Name of the node at work in this thread, and the stack of its forward operation."""
        node: Any = current_node()
        if node is None:
            return "", NONE
        named: tuple[Any, str, int] | None = getattr(self._named, "value", None)
        if named is None or named[0] is not node:
            named = (node, node.name(), self._stacks.get(node._sequence_nr(), NONE))
            self._named.value = named
        return named[1], named[2]

"""How many bytes an object holds, with all that it alone leads to."""

from __future__ import annotations

import gc
import sys
import types

_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def weigh(root: object) -> int:
    """Bytes of all objects that can be reached from `root`, code and classes left out."""
    seen = {id(root)}
    todo, total = [root], 0
    while todo:
        item = todo.pop()
        total += sys.getsizeof(item)
        for other in gc.get_referents(item):
            if id(other) not in seen and not isinstance(other, _SHARED):
                seen.add(id(other))
                todo.append(other)
    return total

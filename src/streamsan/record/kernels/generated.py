"""What the source of generated C++ code says of a kernel's parameters.

Inductor leaves the source beside the library, and AOTInductor packs both. Each kernel has a
function there that puts its parameters together, those that are tensors by ``NAME.data_ptr()``.
Inductor's names (``in_ptr0``, ``out_ptr0``) tell reads from writes.
"""

from __future__ import annotations

import re
from pathlib import Path

_LIST = re.compile(r"\bkernel_args_\[\]\s*=\s*\{([^}]*)\}")
_TENSOR = re.compile(r"\bCUdeviceptr\s+(\w+)\s*=\s*[^;]*?\b(\w+)\.data_ptr\(\)")


def source_of(library: Path) -> str:
    """The source that a library was made from, as far as it lies beside it."""
    try:
        return library.with_suffix(".cpp").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def parameters(source: str, kernel: str) -> list[str]:
    """The parameters of a kernel, in order: the names of those that are tensors, and empty texts.

    No parameters where the source does not tell.
    """
    start = re.search(rf"\bvoid call_{re.escape(kernel)}\(", source)
    if start is None:
        return []
    listed = _LIST.search(source, start.end())
    if listed is None:
        return []
    tensors = dict(_TENSOR.findall(source, start.end(), listed.start()))
    return [tensors.get(part.strip(" &"), "") for part in listed[1].split(",") if part.strip()]

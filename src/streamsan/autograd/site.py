"""Where in the program a backward pass was called."""

from __future__ import annotations

import os
import sys

import torch

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep


def call_site() -> str:
    """``file:line`` of the innermost frame that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, _TORCH)):
        frame = frame.f_back
    path = frame.f_code.co_filename
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return f"{path if relative.startswith(os.pardir) else relative}:{frame.f_lineno}"

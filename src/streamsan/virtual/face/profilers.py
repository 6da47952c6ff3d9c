"""torch's profilers on the virtual machine: they see the host only.

The profiler of a CPU build knows no CUDA device. Asked to time one, it complains about each
operator; so it is not asked.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """Keep the device from the profilers."""
    kind: Any = torch.autograd.profiler.profile
    original = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = None
        kwargs.pop("use_cuda", None)
        original(self, *args, **kwargs)

    kind.__init__ = init

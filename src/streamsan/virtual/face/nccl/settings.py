"""What the environment says about NCCL process groups."""

from __future__ import annotations

import os
from typing import Any

_HOST_WAITS = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")


def _flag(*names: str) -> bool:
    """Whether an environment variable, by any of its names, is on."""
    value = next((os.environ[name] for name in names if name in os.environ), "0")
    return value.lower() in ("1", "y", "yes", "true", "on", "t")


def host_waits(timeout: Any) -> bool:
    """Whether ``wait(timeout)`` on a handle makes the host wait too: with a timeout it does, and
    where the environment wants it.
    """
    return (timeout is not None and _positive(timeout)) or _flag(*_HOST_WAITS)


def _positive(timeout: Any) -> bool:
    seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)
    return seconds > 0

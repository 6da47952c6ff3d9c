"""Whether there are CUDA devices, and what the first is called, without starting CUDA.

Once its driver has been started in a process, CUDA is of no use in children forked from there. And
until torch has started it, the program may choose torch's allocator. Neither is ours to decide.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Any

_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
_LONGEST_NAME = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


def available(torch: Any) -> bool:
    """Whether torch finds a CUDA device: it asks NVML, if there is one, instead of the driver."""
    given = os.environ.get(_ASK_NVML)
    os.environ[_ASK_NVML] = given or "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if given is None:
            del os.environ[_ASK_NVML]
        else:
            os.environ[_ASK_NVML] = given


def device_name(torch: Any) -> str:
    """The name of the first device that torch sees, or nothing where NVML does not tell."""
    name, handle = ctypes.create_string_buffer(_LONGEST_NAME), ctypes.c_void_p()
    with suppress(OSError, AttributeError, RuntimeError, ValueError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        index = torch.cuda._get_nvml_device_index(0)  # CUDA_VISIBLE_DEVICES may leave some out
        if (
            nvml.nvmlInit_v2() == 0
            and nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
            and nvml.nvmlDeviceGetName(handle, name, _LONGEST_NAME) == 0
        ):
            return name.value.decode(errors="replace")
    return ""

"""What CUDA's driver knows of a native stream: its flags, and whether it is still the same one."""

from __future__ import annotations

import ctypes
from typing import Any

from streamsan.errors import UsageError
from streamsan.record.cuda._driver import library

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class NativeStreams:
    """Asks the driver. Each answer is None where there is no driver, or one too old to tell."""

    def __init__(self) -> None:
        try:
            self._library: Any = library()
        except UsageError:
            self._library = None

    def blocking(self, handle: int) -> bool | None:
        """Whether a stream takes part in rule D1: it was made without the flag "non-blocking"."""
        flags = self._ask("cuStreamGetFlags", handle, ctypes.c_uint())
        return None if flags is None else not flags & _NON_BLOCKING

    def identity(self, handle: int) -> int | None:
        """A number that no other stream of this process ever has, unlike its handle."""
        return self._ask("cuStreamGetId", handle, ctypes.c_ulonglong())

    def green(self, handle: int) -> int | None:
        """The green context that a stream is of, 0 for none; of the handle 0, whose default stream
        depends on the calling thread's context, that context.

        Such a default stream is non-blocking, and a device is waited for as a whole from inside of
        a context: tried on an H200 with CUDA 13.
        """
        return self._ask("cuStreamGetGreenCtx", handle, ctypes.c_size_t())

    def _ask(self, name: str, handle: int, answer: Any) -> int | None:
        function = getattr(self._library, name, None)
        if function is None or function(ctypes.c_void_p(handle), ctypes.byref(answer)) != 0:
            return None
        return int(answer.value)

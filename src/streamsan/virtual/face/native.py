"""Functions of ``torch._C`` that only CUDA builds have, and torch's Python code stands on."""

from __future__ import annotations

import warnings
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import torch

from streamsan.virtual.face import current, statistics, streams
from streamsan.virtual.face.refused import Refused

SYNC_MODES = ("default", "warn", "error")
"""``torch.cuda.set_sync_debug_mode``: what happens where the host waits for a stream."""

_DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip


_NO_RUNTIME = ("cudaHostRegister", "cudaHostUnregister", "cudaStreamCreate", "cudaStreamDestroy")


class CudaError(IntEnum):
    """Results of the runtime's calls."""

    success = 0


class SyncMode:
    """The synchronisation debug mode of this process."""

    def __init__(self) -> None:
        self.mode = 0

    def set(self, mode: int) -> None:
        """Choose one of `SYNC_MODES`."""
        self.mode = mode

    def get(self) -> int:
        """The one chosen."""
        return self.mode

    def waiting(self) -> None:
        """The host is about to wait for a stream."""
        if self.mode == 1:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)
        elif self.mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")


def cudart() -> SimpleNamespace:
    """``torch.cuda.cudart()``: the few calls that scripts make through it."""

    def ok(*_: Any) -> CudaError:
        return CudaError.success

    return SimpleNamespace(
        cudaError=CudaError,
        cudaGetErrorString=lambda error: "no error" if not error else "unknown error",
        cudaProfilerStart=ok,
        cudaProfilerStop=ok,
        cudaMemGetInfo=statistics.mem_get_info,
        **{name: Refused(f"cudart().{name}") for name in _NO_RUNTIME},
    )


def _described(stream: Any) -> tuple[int, int, int]:
    return stream.stream_id, stream.device_index, stream.device_type


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    current.set_stream(current.face().gpu.external_stream(device_index, stream_id))


def _generic(device: Any = None) -> Any:
    return streams.DeviceStream.of(current.native_stream(device))


def functions(sync: SyncMode) -> dict[str, Any]:
    """Names of ``torch._C`` and what stands for them."""
    cuda = torch.cuda
    table: dict[str, Any] = {
        "_cuda_init": lambda: None,
        "_cuda_getDeviceCount": cuda.device_count,
        "_cuda_getDevice": cuda.current_device,
        "_cuda_setDevice": cuda.set_device,
        "_cuda_synchronize": cuda.synchronize,
        "_cuda_sleep": cuda._sleep,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_canDeviceAccessPeer": cuda.can_device_access_peer,
        "_cuda_getCurrentBlasHandle": lambda: 0,
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_getCublasWorkspaceSize": lambda: 0,
        "_cuda_getCublasLtWorkspaceSize": lambda: 0,
        "_cuda_getCurrentStream": lambda device=None: _described(cuda.current_stream(device)),
        "_cuda_getDefaultStream": lambda device=None: _described(cuda.default_stream(device)),
        "_cuda_getCurrentRawStream": lambda device=None: current.native_stream(device).handle,
        "_cuda_setStream": _set_stream,
        "_cuda_getArchFlags": lambda: " ".join(cuda.get_arch_list()),
        "_cuda_isCurrentStreamCapturing": cuda.is_current_stream_capturing,
        "_cuda_set_sync_debug_mode": sync.set,
        "_cuda_get_sync_debug_mode": sync.get,
        "_cuda_record_memory_history": lambda *_, **__: None,
        "_cuda_attach_out_of_memory_observer": lambda observer: None,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_get_accelerator": lambda check=None: torch.device("cuda"),
        "_accelerator_getDeviceCapability": lambda index: {"supported_dtypes": set(_DTYPES)},
        "_accelerator_getDeviceIndex": cuda.current_device,
        "_accelerator_setDeviceIndex": cuda.set_device,
        "_accelerator_exchangeDevice": cuda._exchange_device,
        "_accelerator_maybeExchangeDevice": cuda._maybe_exchange_device,
        "_accelerator_getStream": _generic,
        "_accelerator_setStream": cuda.set_stream,
        "_accelerator_synchronizeDevice": cuda.synchronize,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_emptyCache": statistics.empty_cache,
        "_accelerator_emptyHostCache": statistics.empty_host_cache,
        "_accelerator_getDeviceStats": statistics.memory_stats,
        "_accelerator_resetAccumulatedStats": statistics.reset_accumulated,
        "_accelerator_resetPeakStats": statistics.reset_peak,
        "_accelerator_getMemoryInfo": statistics.mem_get_info,
    }
    return {**table, **statistics.native()}

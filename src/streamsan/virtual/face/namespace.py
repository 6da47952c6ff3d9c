"""``torch.cuda`` of the virtual machine: devices, streams, synchronisation, random state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from streamsan.virtual.face import current, properties, streams
from streamsan.virtual.face.random import Generator


class device:  # noqa: N801 - torch.cuda.device
    """Context that makes a device current."""

    def __init__(self, device: Any) -> None:
        self._wanted = device

    def __enter__(self) -> None:
        thread = current.face().gpu.thread
        self._before = thread.device
        wanted = self._wanted
        if isinstance(wanted, (str, torch.device)) and torch.device(wanted).type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {wanted}")
        if wanted is not None and not (isinstance(wanted, int) and wanted < 0):
            thread.device = current.face().device_index(wanted)

    def __exit__(self, *exc_info: Any) -> None:
        current.face().gpu.thread.device = self._before


class device_of(device):  # noqa: N801 - torch.cuda.device_of
    """Context that makes the device of a tensor current."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if getattr(obj, "is_cuda", False) else -1)


def set_device(device: Any) -> None:
    """Make a device current; a negative index is ignored, as in torch."""
    if isinstance(device, int) and device < 0:
        return
    current.face().gpu.thread.device = current.face().device_index(device)


def current_stream(device: Any = None) -> Any:
    """The calling thread's current stream."""
    return streams.Stream.of(current.native_stream(device))


def default_stream(device: Any = None) -> Any:
    """A device's default stream."""
    face = current.face()
    return streams.Stream.of(face.gpu.devices[face.device_index(device)].default)


def set_stream(stream: streams.DeviceStream | None) -> None:
    """Make a stream current."""
    if stream is not None:
        stream.used()
        current.set_stream(stream.native)


def stream_from_external(data_ptr: int, device: Any = None) -> streams.Stream:
    """The stream of a native handle."""
    return streams.ExternalStream(data_ptr, device)


def synchronize(device: Any = None) -> None:
    """Wait for all streams of a device (H2)."""
    current.face().gpu.sync_device(current.face().device_index(device))


def _sleep(cycles: int) -> None:
    """A delay kernel: occupies its stream, and on the virtual machine no time at all."""
    face = current.face()
    stream = current.native_stream()
    with face.gpu.monitor:
        face.gpu.submit(stream, lambda: None)
        face.executor.emit(0, "spin", stream, ())


def exchange_device(index: int) -> int:
    """Make a device current and return the one before."""
    thread = current.face().gpu.thread
    before = thread.device
    if index >= 0:
        thread.device = current.face().device_index(index)
    return before


def generator(device: Any = "cuda") -> Generator:
    """The default generator of a device."""
    return current.face().generators[current.face().device_index(device)]


def _each(method: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return [getattr(chosen, method)(*args) for chosen in current.face().generators]

    return call


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    """Restore a device's random state."""
    generator(device).set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Restore all devices' random states."""
    for chosen, state in zip(current.face().generators, new_states):
        chosen.set_state(state)


def manual_seed(seed: int) -> None:
    """Start the current device's random numbers over from a seed."""
    generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Start all devices' random numbers over from a seed."""
    for chosen in current.face().generators:
        chosen.manual_seed(seed)


def seed() -> None:
    """A fresh seed for the current device."""
    generator().seed()


def can_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a device reads another's memory: any other's."""
    indices = []
    for value, name in ((device, "Invalid device id"), (peer_device, "Invalid peer device id")):
        index = torch.cuda._utils._get_device_index(value, optional=True)
        if not 0 <= index < len(current.face().gpu.devices):
            raise AssertionError(name)
        indices.append(index)
    return indices[0] != indices[1]


def seed_all() -> None:
    """A fresh seed, the same for all devices."""
    fresh = generator().seed()
    for chosen in current.face().generators:
        chosen.manual_seed(fresh)


def is_current_stream_capturing() -> bool:
    """Whether work goes into a graph."""
    return current.native_stream().capture is not None


def functions() -> dict[str, Any]:
    """Names of ``torch.cuda`` and what stands for them."""
    face = current.face
    table: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_is_in_bad_fork": lambda: not face().enabled,
        "device_count": lambda: len(face().gpu.devices),
        "_device_count_nvml": lambda: len(face().gpu.devices),
        "current_device": lambda: face().gpu.thread.device,
        "set_device": set_device,
        "device": device,
        "device_of": device_of,
        "_exchange_device": exchange_device,
        "_maybe_exchange_device": exchange_device,
        "get_device_properties": properties.of,
        "get_device_name": lambda device=None: properties.of(device).name,
        "get_device_capability": lambda device=None: properties.CAPABILITY,
        "get_arch_list": lambda: ["sm_{}{}".format(*properties.CAPABILITY)],
        "get_gencode_flags": lambda: "",
        "can_device_access_peer": can_access_peer,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: True,
        "current_blas_handle": lambda: 0,
        "Stream": streams.Stream,
        "ExternalStream": streams.ExternalStream,
        "Event": streams.Event,
        "StreamContext": current.stream_context,
        "stream": current.stream_context,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
        "get_stream_from_external": stream_from_external,
        "synchronize": synchronize,
        "ipc_collect": lambda: None,
        "_sleep": _sleep,
        "default_generators": face().generators,
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed_all,
        "seed": seed,
        "seed_all": seed_all,
        "initial_seed": lambda: generator().initial_seed(),
        "get_rng_state": lambda device="cuda": generator(device).get_state(),
        "get_rng_state_all": _each("get_state"),
        "set_rng_state": set_rng_state,
        "set_rng_state_all": set_rng_state_all,
        "is_current_stream_capturing": is_current_stream_capturing,
    }
    return table

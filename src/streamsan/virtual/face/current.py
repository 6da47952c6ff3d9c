"""The face that this process shows, and what is current in the calling thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamsan.virtual import streams as native

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face
    from streamsan.virtual.face.streams import DeviceStream

_face: Face | None = None


def show(face: Face | None) -> None:
    """Set the face."""
    global _face
    _face = face


def face() -> Face:
    """The face. Raises RuntimeError where there is none."""
    if _face is None:
        raise RuntimeError("no virtual GPU is installed in this process")
    return _face


def native_stream(device: Any = None) -> native.Stream:
    """The calling thread's current stream of a device (by default the current device)."""
    shown = face()
    shown.backward.follow()
    return shown.gpu.current_stream(shown.device_index(device))


def set_stream(stream: native.Stream) -> None:
    """Make `stream` and its device current in the calling thread."""
    shown = face()
    thread = shown.gpu.thread
    thread.device = stream.device
    if thread.current.get(stream.device, shown.gpu.devices[stream.device].default) is not stream:
        shown.backward.switching()
        thread.current[stream.device] = stream
        if stream.default:
            del thread.current[stream.device]
        shown.backward.switched()


class stream_context:  # noqa: N801 - a function in use, as torch.cuda.stream is
    """``torch.cuda.stream``: the stream, and its device, are current inside."""

    def __init__(self, stream: DeviceStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> DeviceStream | None:
        if self.stream is None:
            return None
        chosen = self.stream
        native_stream(chosen.native.device)
        thread = face().gpu.thread
        self._device = thread.device
        self._before = face().gpu.current_stream(chosen.native.device)
        thread.outer.append(self._before)
        chosen.used()
        set_stream(chosen.native)
        return chosen

    def __exit__(self, *exc_info: Any) -> None:
        if self.stream is None:
            return
        set_stream(self._before)
        thread = face().gpu.thread
        thread.outer.pop()
        thread.device = self._device


def device_of(value: Any) -> torch.device | None:
    """The virtual device that an argument names, or None: a CPU, another device, no device."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return torch.device("cuda", face().device_index(value))
    if isinstance(value, str):
        if not value.startswith("cuda"):
            return None
        value = torch.device(value)
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cuda", face().device_index(value))
    return None

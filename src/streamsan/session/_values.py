"""The values of the options that say how to record; each function raises UsageError."""

from __future__ import annotations

import re

from streamsan.autograd import parse_policy
from streamsan.errors import UsageError

DEVICES = ("auto", "cuda", "virtual")
DRIVER = ("auto", "on", "off")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SMALLEST, _LARGEST = 1 << 20, 1 << 46


def parse_device(text: str) -> str:
    """A device to run on: ``auto``, ``cuda`` or ``virtual``."""
    if text not in DEVICES:
        raise UsageError(f"there is no device {text!r}: choose from {', '.join(DEVICES)}")
    return text


def parse_driver(text: str) -> str:
    """Whether to watch the calls of CUDA's driver: ``auto``, ``on`` or ``off``."""
    if text not in DRIVER:
        raise UsageError(f"there is no {text!r} for the driver: choose from {', '.join(DRIVER)}")
    return text


def parse_count(text: str) -> int:
    """A number of virtual GPUs, 1 to 64."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= 64):
        raise UsageError(f"{text!r} is no number of devices: give 1 to 64")
    return int(text)


def parse_memory(text: str) -> int:
    """A size such as ``16GiB``, ``512M`` or a number of bytes; units are powers of 1024."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", text, re.IGNORECASE | re.ASCII)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if not _SMALLEST <= size <= _LARGEST:
        raise UsageError(f"{text!r} is no size of a device's memory: give one such as 16GiB")
    return size


def parse_schedule(text: str) -> str:
    """A schedule of the virtual GPU: ``program``, ``late``, ``hold:STREAM``, ``random:SEED``."""
    name, _, argument = text.partition(":")
    if text in ("program", "late") or (name == "hold" and argument):
        return text
    if name == "random" and re.fullmatch(r"\d+", argument, re.ASCII):
        return text
    raise UsageError(
        f"there is no schedule {text!r}: choose from program, late, hold:STREAM, random:SEED"
    )


def parse_engine(text: str) -> str:
    """The name of a policy of the backward engine; empty for torch's own."""
    return parse_policy(text).name if text else ""

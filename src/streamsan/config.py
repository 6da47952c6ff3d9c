"""Options: one table for the command line and for the environment variable ``STREAMSAN``.

Where an option is set twice, the later of these wins: the defaults here, the environment, the
command line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamsan import report
from streamsan.allocator import DEFAULT, NAMES, parse_allocator
from streamsan.autograd import POLICIES
from streamsan.errors import UsageError
from streamsan.session import (
    parse_count,
    parse_device,
    parse_driver,
    parse_engine,
    parse_jobs,
    parse_memory,
    parse_schedule,
)

VARIABLE = "STREAMSAN"


def _local_processes() -> int:
    """As many as torchrun has started here, each of which takes the device of its number; or 1."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return parse_count(text) if text else 1


@dataclass(frozen=True)
class Settings:
    """All options. `memory` is in bytes; `all` lifts the limit on the races shown."""

    device: str = "auto"
    devices: int = field(default_factory=_local_processes)
    memory: int = 16 << 30
    schedule: str = "program"
    allocator: str = DEFAULT
    engine: str = ""
    driver: str = "auto"
    format: str = "text"
    output: Path | None = None
    trace: Path | None = None
    plan: Path | None = None
    fail_fast: bool = False
    strict: bool = False
    force: bool = False
    jobs: int = 1
    all: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Option:
    """An option: its key in `Settings` and in the environment, and its flag.

    `parse` turns text into the value and raises UsageError; a switch has none.
    """

    key: str
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] | None = None
    short: str | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that set it, the short one first."""
        long = "--" + self.key.replace("_", "-")
        return (self.short, long) if self.short else (long,)


RANK = "{rank}"
"""Stands for the process's number in a file's name, where a program has several processes."""


def _parse_format(text: str) -> str:
    if text not in report.FORMATS:
        names = ", ".join(report.FORMATS)
        raise UsageError(f"there is no report format {text!r}: choose from {names}")
    return text


def _parse_path(text: str) -> Path:
    if not text:
        raise UsageError("a file name is empty: give one")
    if RANK not in text and os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:
        raise UsageError(
            f"all processes of this program would write {text}: put {RANK} into the file's name"
        )
    return Path(text.replace(RANK, os.environ.get("RANK", "0")))


OPTIONS = (
    Option(
        "device",
        "where to run: a real GPU, a virtual one, or a real one if there is one (default: auto)",
        "auto|cuda|virtual",
        parse_device,
    ),
    Option(
        "devices",
        "number of virtual GPUs (default: 1, or one for each process that torchrun starts here)",
        "N",
        parse_count,
    ),
    Option("memory", "memory of each virtual GPU (default: 16GiB)", "SIZE", parse_memory),
    Option(
        "schedule",
        "what a virtual GPU runs next: program (as enqueued, the default), late "
        "(only when something waits), hold:STREAM (that stream late), random:SEED",
        "NAME[:ARG]",
        parse_schedule,
    ),
    Option(
        "allocator",
        f"who hands out the GPU's memory: {', '.join(NAMES)} (default: {DEFAULT})",
        "NAME[:POLICY]",
        parse_allocator,
    ),
    Option(
        "engine",
        f"what a backward pass orders: {', '.join(POLICIES)} (default: as torch does)",
        "POLICY",
        parse_engine,
    ),
    Option(
        "driver",
        "watch the driver's calls on a real GPU, for kernels launched outside of torch "
        "(default: auto, once CuPy, numba, JAX or PyCUDA is imported)",
        "auto|on|off",
        parse_driver,
    ),
    Option(
        "format",
        f"form of the report: {', '.join(report.FORMATS)} (default: text)",
        "NAME",
        _parse_format,
    ),
    Option("output", "write the report to this file", "FILE", _parse_path, "-o"),
    Option(
        "trace",
        "write all that was recorded to this file, for `streamsan check`",
        "FILE",
        _parse_path,
    ),
    Option(
        "plan",
        "draw the backward passes to this file, as SVG: nodes, streams and waits",
        "FILE",
        _parse_path,
    ),
    Option("fail_fast", "end the program at its first race"),
    Option("strict", "exit 66 for latent and possible races and misuse too, 1 for internal errors"),
    Option("force", "overwrite the file of --output"),
    Option(
        "jobs",
        "check in up to N processes, auto: one for each core (default: 1); the report is the same",
        "N|auto",
        parse_jobs,
    ),
    Option("all", "show every race, not the first ten"),
    Option("verbose", "show whole stacks, and with --engine the backward passes", short="-v"),
)

RECORDING = ("device", "devices", "memory", "schedule", "allocator", "engine", "driver")
CHECKING = ("jobs",)
REPORTING = ("format", "output", "strict", "force", "all", "verbose")


def add_options(parser: argparse.ArgumentParser, keys: Sequence[str], title: str) -> None:
    """Add the options `keys` to `parser`; those not given leave no attribute behind."""
    files = "overwrite the files of --output, --trace and --plan"
    helps = {"force": files} if "trace" in keys else {}
    group = parser.add_argument_group(title)
    for option in OPTIONS:
        if option.key not in keys:
            continue
        if option.parse:
            group.add_argument(
                *option.flags,
                dest=option.key,
                help=helps.get(option.key, option.help),
                metavar=option.metavar,
                type=option.parse,
                default=argparse.SUPPRESS,
            )
        else:
            group.add_argument(
                *option.flags,
                dest=option.key,
                help=helps.get(option.key, option.help),
                action="store_true",
                default=argparse.SUPPRESS,
            )


def from_environment(environ: Mapping[str, str]) -> Settings | None:
    """The settings in ``STREAMSAN``, or None where it is unset or off.

    It holds ``1``, or options as ``key=value`` with commas between; a switch needs no value.
    Raises UsageError for an unknown key or a bad value.
    """
    text = environ.get(VARIABLE, "").strip()
    if text.lower() in ("", "0", "off", "no", "false"):
        return None
    if text.lower() in ("1", "on", "yes", "true"):
        return Settings()
    return replace(Settings(), **dict(_parse_item(i) for i in text.split(",") if i.strip()))


def _parse_item(item: str) -> tuple[str, Any]:
    key, equals, value = item.strip().partition("=")
    option = next((o for o in OPTIONS if o.key == key.strip().replace("-", "_")), None)
    if option is None:
        known = ", ".join(o.key for o in OPTIONS)
        raise UsageError(f"{VARIABLE} has no option {key!r}: choose from {known}")
    if option.parse:
        if not equals:
            raise UsageError(f"{VARIABLE} gives {key} no value: write {key}={option.metavar}")
        return option.key, option.parse(value.strip())
    if value.strip().lower() not in ("", "0", "1"):
        raise UsageError(f"{VARIABLE} sets the switch {key} to {value!r}: write {key}, or {key}=0")
    return option.key, value.strip() != "0"


def merge(environ: Mapping[str, str], given: argparse.Namespace) -> Settings:
    """The settings of a command: defaults, then the environment, then the options given."""
    settings = from_environment(environ) or Settings()
    keys = {option.key for option in OPTIONS}
    return replace(settings, **{k: v for k, v in vars(given).items() if k in keys})

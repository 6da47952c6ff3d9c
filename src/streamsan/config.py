"""Options: one table for the command line and for the environment variable ``STREAMSAN``.

Where an option is set twice, the later of these wins: the defaults here, the environment, the
command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamsan import report
from streamsan.errors import UsageError
from streamsan.session import parse_count, parse_device, parse_memory, parse_schedule

VARIABLE = "STREAMSAN"


@dataclass(frozen=True)
class Settings:
    """All options. `memory` is in bytes; `all` lifts the limit on the races shown."""

    device: str = "auto"
    devices: int = 1
    memory: int = 16 << 30
    schedule: str = "program"
    format: str = "text"
    output: Path | None = None
    trace: Path | None = None
    fail_fast: bool = False
    strict: bool = False
    force: bool = False
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


def _parse_format(text: str) -> str:
    if text not in report.FORMATS:
        names = ", ".join(report.FORMATS)
        raise UsageError(f"there is no report format {text!r}: choose from {names}")
    return text


def _parse_path(text: str) -> Path:
    if not text:
        raise UsageError("a file name is empty: give one")
    return Path(text)


OPTIONS = (
    Option(
        "device",
        "where to run: a real GPU, a virtual one, or a real one if there is one (default: auto)",
        "auto|cuda|virtual",
        parse_device,
    ),
    Option("devices", "number of virtual GPUs (default: 1)", "N", parse_count),
    Option("memory", "memory of each virtual GPU (default: 16GiB)", "SIZE", parse_memory),
    Option(
        "schedule",
        "what a virtual GPU runs next: program (as enqueued, the default), late "
        "(only when something waits), hold:STREAM (that stream late), random:SEED",
        "NAME[:ARG]",
        parse_schedule,
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
    Option("fail_fast", "end the program at its first race"),
    Option("strict", "exit 66 for latent races and misuse too, 1 for internal errors"),
    Option("force", "overwrite the file of --output"),
    Option("all", "show every race, not the first ten"),
    Option("verbose", "show whole stacks", short="-v"),
)

RECORDING = ("device", "devices", "memory", "schedule")
REPORTING = ("format", "output", "strict", "force", "all", "verbose")


def add_options(parser: argparse.ArgumentParser, keys: Sequence[str], title: str) -> None:
    """Add the options `keys` to `parser`; those not given leave no attribute behind."""
    helps = {"force": "overwrite the files of --output and --trace"} if "trace" in keys else {}
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

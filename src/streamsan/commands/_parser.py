"""Parsing a command line, and help pages that start with examples."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from streamsan.commands._command import Command
from streamsan.commands._outcome import say
from streamsan.errors import UsageError

_STATUS = """\
exit status
  0   no race (after `run`: the program's own status)
  1   an error inside StreamSan
  2   a command line that cannot be used, or output that cannot be written
  3   a trace that cannot be read, or not to its end
  66  races
"""

_ENVIRONMENT = """\
environment
  STREAMSAN=1 or STREAMSAN="device=virtual,format=json,output=report.json" sets the options of
  `streamsan run`; a program that says `import streamsan.auto` obeys it by itself.
"""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence, and whose help starts with examples."""

    command: Command

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def print_help(self, file: Any = None) -> None:
        """Print the help page on stdout; raises UsageError where that cannot be written."""
        del file  # argparse gives none
        say(self.format_help())

    def format_help(self) -> str:
        command = self.command
        parts = [
            f"{self.prog}: {command.summary}\n",
            "examples\n" + _aligned(command.examples),
            f"usage\n  {self.prog} {command.synopsis}\n",
            _options(self),
            command.details,
        ]
        return "\n".join(part for part in parts if part)


def _options(parser: argparse.ArgumentParser) -> str:
    """The listing that argparse makes of the options, without its usage line."""
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        if group._group_actions and group.title not in ("positional arguments", "options"):
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
    return formatter.format_help()


def _aligned(pairs: Iterable[tuple[str, str]]) -> str:
    rows = list(pairs)
    columns = max(len(left) for left, _ in rows)
    return "".join(f"  {left:<{columns}}  {right}\n" for left, right in rows)


def build_parser(command: Command) -> argparse.ArgumentParser:
    """The parser of one command."""
    parser = _Parser(
        prog=f"streamsan {command.verb}",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28, width=96),
    )
    parser.command = command
    command.prepare_parser(parser)
    return parser


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse `words`; raises UsageError, with the nearest option for one that does not exist."""
    given, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(_unknown(unknown[0].partition("=")[0], parser._option_string_actions))
    return given


def _unknown(word: str, options: Iterable[str]) -> str:
    if not word.startswith("-"):
        return f"there is one argument too many, {word!r}"
    near = difflib.get_close_matches(word, list(options), 1)
    return f"there is no option {word}" + (f": did you mean {near[0]}?" if near else "")


def overview(commands: Sequence[Command]) -> str:
    """The help page of the whole command line."""
    examples = [example for command in commands for example in command.examples[:2]]
    return "\n".join(
        (
            "StreamSan finds stream races in Python GPU programs, with a GPU or without one.\n",
            "examples\n" + _aligned(examples),
            "commands\n" + _aligned((c.verb, c.summary) for c in commands),
            _STATUS,
            _ENVIRONMENT,
            "`streamsan COMMAND --help` tells all about one command.\n",
        )
    )


def unknown_verb(word: str, commands: Sequence[Command]) -> UsageError:
    """The error for a verb that does not exist."""
    if word.startswith("-"):
        return UsageError(f"there is no option {word} before a command (see `streamsan --help`)")
    verbs = [command.verb for command in commands]
    if word.endswith(".py"):
        hint = f"did you mean `streamsan run {word}`?"
    elif near := difflib.get_close_matches(word, verbs, 1):
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"choose from {', '.join(verbs)}"
    return UsageError(f"there is no command {word!r}: {hint}")

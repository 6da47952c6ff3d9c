"""Commands: one file and one class for each verb, and `main`, which picks one and runs it.

`COMMANDS` is the command line: its help pages and its dispatch are made from it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from streamsan.commands._check import CheckCommand, ReportCommand
from streamsan.commands._command import Command
from streamsan.commands._doctor import DoctorCommand
from streamsan.commands._outcome import say, silence
from streamsan.commands._parser import build_parser, overview, parse, unknown_verb
from streamsan.commands._run import RunCommand
from streamsan.errors import EXIT_CLEAN, EXIT_INTERNAL, EXIT_USAGE, StreamSanError

__all__ = ["COMMANDS", "Command", "main"]

COMMANDS: tuple[Command, ...] = (RunCommand(), CheckCommand(), ReportCommand(), DoctorCommand())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; errors for the user go to stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except StreamSanError as error:
        print(f"streamsan: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the reader of our output has seen enough
        silence(sys.stdout)
        return EXIT_CLEAN
    except Exception as error:  # a fault of ours: a program's errors do not come here
        print(f"streamsan: internal error, please report it: {_told(error)}", file=sys.stderr)
        return EXIT_INTERNAL


def _told(error: Exception) -> str:
    """What went wrong and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}".replace("\n", " ")


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        say(overview(COMMANDS))
        return EXIT_CLEAN if words else EXIT_USAGE
    if words[0] in ("-V", "--version", "version"):
        from streamsan import __version__

        say(f"streamsan {__version__}\n")
        return EXIT_CLEAN
    command = next((c for c in COMMANDS if c.verb == words[0]), None)
    if command is None:
        raise unknown_verb(words[0], COMMANDS)
    parser = build_parser(command)
    own, program = command.split(words[1:])
    given = parse(parser, own)
    given.program = program
    return command.run(given)

"""Errors that are told to the user in one sentence, each with its exit status."""

from __future__ import annotations

EXIT_CLEAN = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_TRACE = 3
EXIT_RACES = 66


class StreamSanError(Exception):
    """An error whose text is one sentence for the user; `status` is the command's exit status."""

    status = EXIT_INTERNAL


class UsageError(StreamSanError):
    """The command line, an environment variable or a file named in them cannot be used."""

    status = EXIT_USAGE


class TraceError(StreamSanError):
    """A trace that cannot be read, or not to its end."""

    status = EXIT_TRACE

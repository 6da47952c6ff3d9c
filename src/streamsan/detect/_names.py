"""Names for people: sites, stacks, streams and threads of a run."""

from __future__ import annotations

import os
import re

from streamsan.model.findings import Site
from streamsan.model.records import (
    NONE,
    Operation,
    SiteDef,
    StackDef,
    StreamDef,
    ThreadDef,
)

Line = tuple[str, int]
"""File and line."""


class Names:
    """What the definitions of a run say, and the words made of them."""

    def __init__(self) -> None:
        """Nothing defined yet."""
        self.streams: dict[int, StreamDef] = {}
        self.sources: dict[Line, str] = {}
        """The text of each line of the user's program."""
        self._threads: dict[int, ThreadDef] = {}
        self._sites: dict[int, SiteDef] = {}
        self._stacks: dict[int, StackDef] = {}
        self._user: dict[int, SiteDef | None] = {}

    def define_site(self, record: SiteDef) -> None:
        """Keep a source line."""
        self._sites[record.site] = record
        if record.user and record.text:
            self.sources[record.file, record.line] = record.text

    def define_stack(self, record: StackDef) -> None:
        """Keep a stack."""
        self._stacks[record.stack] = record

    def define_thread(self, record: ThreadDef) -> None:
        """Keep a host thread."""
        self._threads[record.timeline] = record

    def define_stream(self, record: StreamDef) -> None:
        """Keep a stream."""
        self.streams[record.timeline] = record

    # Sites

    def user_site(self, stack: int) -> SiteDef | None:
        """The innermost line of the user's program on a stack, else its innermost line."""
        if stack not in self._user:
            lines = [self._sites[s] for s in self._numbers(stack) if s in self._sites]
            innermost = lines[0] if lines else None
            self._user[stack] = next((line for line in lines if line.user), innermost)
        return self._user[stack]

    def line(self, stack: int) -> Line:
        """File and line of a stack's user site, to tell whether two are the same; else nothing."""
        line = self.user_site(stack)
        return (line.file, line.line) if line is not None else ("", 0)

    def key(self, op: Operation) -> Line:
        """The line that an operation is known by; its name, if it has no line."""
        line = self.line(op.stack)
        return line if line[1] else (op.name, 0)

    def _numbers(self, stack: int) -> tuple[int, ...]:
        found = self._stacks.get(stack)
        return found.sites if found is not None else ()

    def site(self, stack: int) -> Site | None:
        """`user_site` as a report has it."""
        line = self.user_site(stack)
        return Site(line.file, line.line, line.function) if line is not None else None

    def stack(self, stack: int) -> list[Site]:
        """All lines of a stack, innermost first."""
        lines = [self._sites[s] for s in self._numbers(stack) if s in self._sites]
        return [Site(line.file, line.line, line.function) for line in lines]

    def place(self, stack: int) -> str:
        """Where: ``train.py:12``, or words for a line that nobody knows."""
        line = self.user_site(stack)
        return f"{os.path.basename(line.file)}:{line.line}" if line else "an unknown line"

    def same_function(self, first: int, second: int) -> bool:
        """Whether the user's lines of two stacks are in one function, where names are shared."""
        one, other = self.user_site(first), self.user_site(second)
        if one is None or other is None:
            return False
        return (one.file, one.function) == (other.file, other.function)

    def variable(self, stack: int) -> str:
        """The one variable that the statement at a stack's user line assigns, or nothing."""
        line = self.user_site(stack)
        return line.target if line is not None and _is_expression(line.target) else ""

    # Streams and threads

    def timeline(self, number: int) -> str:
        """The name of a stream, or ``host``."""
        if number in self.streams:
            return self._stream(self.streams[number])
        return f"stream {number}" if self.is_stream(number) else "host"

    def is_stream(self, number: int) -> bool:
        """Whether a timeline is a stream; what was never defined is taken for one."""
        return number not in self._threads and number != NONE

    def actor(self, number: int) -> str:
        """The timeline as the subject of a sentence: ``stream 'copy'`` or ``the host``."""
        return f"stream '{self.timeline(number)}'" if self.is_stream(number) else "the host"

    def thread(self, number: int) -> str:
        """The name of a host thread."""
        found = self._threads.get(number)
        return found.name if found is not None else ""

    def device(self, number: int) -> str:
        """The device of a timeline: ``cuda:0``, or ``cpu`` for a host thread."""
        if not self.is_stream(number):
            return "cpu"
        found = self.streams.get(number)
        return f"cuda:{max(0, found.device)}" if found is not None else "cuda:0"

    def _stream(self, stream: StreamDef) -> str:
        if stream.default and stream.name in ("", "default"):
            return f"default (cuda:{stream.device})" if self._several_devices() else "default"
        if stream.name:
            return stream.name
        line = self.user_site(stream.stack)
        if line is None:
            return f"stream {stream.timeline}"
        twins = self._twins(stream)
        order = twins.index(stream.timeline)
        targets = _targets(line)
        if 1 < len(targets) >= len(twins):
            return targets[order]
        base = targets[0] if targets else ""
        if len(twins) == 1:
            return base or f"stream made at {self.place(stream.stack)}"
        return f"{base}[{order}]" if base else f"stream {order} made at {self.place(stream.stack)}"

    def _several_devices(self) -> bool:
        return len({stream.device for stream in self.streams.values()}) > 1

    def _twins(self, stream: StreamDef) -> list[int]:
        """The streams made by the same line, in order."""
        line = self.user_site(stream.stack)
        return [
            other.timeline
            for other in self.streams.values()
            if not other.name and not other.default and self.user_site(other.stack) == line
        ]

    def birthplace(self, number: int) -> str:
        """Where a timeline comes from, in words that do not change from run to run."""
        stream = self.streams.get(number)
        if stream is None:
            return self.timeline(number) if not self.is_stream(number) else "stream"
        if stream.default:
            return f"default {stream.device}"
        if stream.name:
            return stream.name
        line = self.user_site(stream.stack)
        if line is None:
            return "stream"
        name = os.path.basename(line.file)
        return f"{name}:{line.line}:{line.function}:{self._twins(stream).index(number)}"

    def expression(self, number: int) -> str:
        """A stream as the user's program would write it."""
        stream = self.streams.get(number)
        if stream is not None and stream.default:
            return f"torch.cuda.default_stream({stream.device if self._several_devices() else ''})"
        name = self.timeline(number)
        return name if _is_expression(name) else f"<{name}>"

    def has_expression(self, number: int) -> bool:
        """Whether the user's program has a name for a stream."""
        return not self.expression(number).startswith("<")


def _targets(line: SiteDef) -> list[str]:
    """What the statement of a line assigns: one variable, or all those of a tuple, or nothing."""
    text = line.target or line.text.partition(" = ")[0]
    targets = [target.strip() for target in text.strip("() ").split(",")]
    return targets if all(_is_expression(target) for target in targets) else []


def _is_expression(text: str) -> bool:
    """Whether a text is a name, attribute or item as a program could write it."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.\w+|\[[\w'\"]+\])*", text) is not None

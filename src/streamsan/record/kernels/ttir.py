"""Reads the text of a Triton kernel's intermediate code (TTIR) into operations and values.

Triton keeps that text with every kernel that it compiles. It is MLIR in its custom form: one
operation a line, ``%result = name operands : types``, with regions in braces below their operation.
Names hold within their region, so each definition becomes a number of its own here. Read is what
the analyses need: results, operands, and how values enter and leave loops, branches, and functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LONGEST = 1 << 20
"""Characters of the longest text that is read: beyond, a kernel counts as not understood."""

POINTER, DESCRIPTOR = "!tt.ptr", "!tt.tensordesc"
_POINTERS = (POINTER, DESCRIPTOR)

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_QUOTED_FUNCTION = re.compile(r'@"([^"\s]*)"\(')
_QUOTED_NAME = re.compile(r'"([a-z_]\w*(?:\.\w+)+)"\(')
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_COMMENT = re.compile(r"\s*//.*$")
_FUNCTION = re.compile(r"tt\.func\s+(public|private)?\s*@(\S+?)\((.*)\)")
_OPERATION = re.compile(r"(?:(%.*?) = )?([a-z_]\w*(?:\.\w+)+)(.*)$")
_RESULT = re.compile(r"%([\w.$-]+)(?::(\d+))?")
_VALUE = re.compile(r"%([\w.$-]+)(?:#(\d+))?")
_PARAMETER = re.compile(r"%([\w.$-]+)\s*:\s*(!?[\w.]+)")
_CARRIED = re.compile(r"%([\w.$-]+)\s*=\s*(%[\w.$-]+(?:#\d+)?)")
_LABEL = re.compile(r"\^(\w+)(?:\((.*)\))?:$")
_TARGET = re.compile(r"\^(\w+)(?:\(([^()]*)\))?")


class NotUnderstoodError(Exception):
    """The text is no TTIR, or holds something that is not read here."""


@dataclass(slots=True)
class Op:
    """One operation. `carried` are the arguments of a loop's body and what they start as.

    `text` is what stands behind the name. A block's label is an operation ``^``, its arguments the
    results. `targets` are the labels that a branch may go to, with the values it hands over.
    """

    name: str
    text: str
    results: tuple[int, ...] = ()
    operands: tuple[int, ...] = ()
    carried: tuple[tuple[int, int], ...] = ()
    induction: int = -1
    targets: tuple[tuple[str, tuple[int, ...]], ...] = ()
    regions: list[list[Op]] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function: its parameters as pairs of value and type, with their `names`, and its
    operations.
    """

    name: str
    public: bool
    parameters: tuple[tuple[int, str], ...]
    names: tuple[str, ...] = ()
    body: list[Op] = field(default_factory=list)

    @property
    def pointers(self) -> list[int]:
        """The parameters that refer to memory, in order."""
        return [value for value, kind in self.parameters if kind in _POINTERS]

    @property
    def numbers(self) -> list[int]:
        """The other parameters, in order."""
        return [value for value, kind in self.parameters if kind not in _POINTERS]


def read(text: str) -> list[Function]:
    """The functions of a module; the kernel is the public one. Raises NotUnderstoodError."""
    if len(text) > LONGEST:
        raise NotUnderstoodError(f"{len(text):,} characters")
    reader = _Reader()
    for line in text.splitlines():
        if not line.startswith("#"):
            reader.line(_clean(line))
    if not reader.ended or sum(function.public for function in reader.functions) != 1:
        raise NotUnderstoodError("not a whole module with one public function")
    return reader.functions


def _clean(line: str) -> str:
    line = _QUOTED_NAME.sub(r"\1(", _QUOTED_FUNCTION.sub(r"@\1(", line.strip()))
    return _COMMENT.sub("", _LOCATION.sub("", _STRING.sub('""', line))).rstrip()


class _Reader:
    """Takes one line after another. `_scopes` are the names of the regions around, innermost last;
    `_open`, the operations whose regions are being read.
    """

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.ended = False
        self._scopes: list[dict[str, int]] = []
        self._open: list[Op] = []
        self._bodies: list[list[Op]] = []
        self._count = 0

    def line(self, line: str) -> None:
        """Read a line that has neither strings nor locations."""
        if not line or line == "module {" or line.startswith("module attributes"):
            return
        if line.startswith("}"):
            self._close(line)
        elif line.startswith("^"):
            self._label(line)
        elif match := _FUNCTION.match(line):
            self._function(match[1], match[2], match[3])
        elif match := _OPERATION.match(line):
            self._operation(match[1], match[2], match[3], opens=line.endswith("{"))
        else:
            raise NotUnderstoodError(line)

    def _define(self, name: str) -> int:
        self._count += 1
        self._scopes[-1][name] = self._count
        return self._count

    def _results(self, text: str) -> tuple[int, ...]:
        found: list[int] = []
        for name, count in _RESULT.findall(text):
            if count:
                found += [self._define(f"{name}#{i}") for i in range(int(count))]
            else:
                found.append(self._define(name))
        return tuple(found)

    def _uses(self, text: str) -> tuple[int, ...]:
        return tuple(self._use(name, index) for name, index in _VALUE.findall(text))

    def _use(self, name: str, index: str = "") -> int:
        key = f"{name}#{index}" if index else name
        for scope in reversed(self._scopes):
            for known in (key, f"{name}#0"):  # the first of several may go without its number
                if known in scope:
                    return scope[known]
        raise NotUnderstoodError(f"%{key} is used before it is defined")

    def _function(self, visibility: str | None, name: str, parameters: str) -> None:
        self._scopes, self._open = [{}], []
        listed = _PARAMETER.findall(parameters)
        found = tuple((self._define(n), kind) for n, kind in listed)
        if any(function.name == name for function in self.functions):
            raise NotUnderstoodError(f"two functions {name}")
        function = Function(name, visibility != "private", found, tuple(n for n, _ in listed))
        self.functions.append(function)
        self._bodies = [function.body]

    def _label(self, line: str) -> None:
        match = _LABEL.match(line)
        if match is None or not self._bodies:
            raise NotUnderstoodError(line)
        names = [name for name, _ in _PARAMETER.findall(match[2] or "")]
        results = tuple(self._define(name) for name in names)
        self._bodies[-1].append(Op("^", match[1], results))

    def _operation(self, results: str | None, name: str, text: str, opens: bool) -> None:
        if not self._bodies:
            raise NotUnderstoodError(name)
        op = Op(name, text)
        targets = _TARGET.findall(text) if name.startswith("cf.") else []
        op.targets = tuple((label, self._uses(values)) for label, values in targets)
        carried = _CARRIED.findall(text) if name in ("scf.for", "scf.while") else []
        starts = [self._uses(start)[0] for _, start in carried]
        induction = carried.pop(0)[0] if name == "scf.for" else ""
        if induction:
            op.operands = self._uses(text.partition("=")[2].partition("iter_args")[0])
            starts = starts[1:]
        elif not carried:
            op.operands = self._uses(_TARGET.sub("", text))
        if results:
            op.results = self._results(results)
        self._bodies[-1].append(op)
        if opens:
            self._open_region(op)
            if induction:
                op.induction = self._define(induction)
            op.carried = tuple((self._define(n), s) for (n, _), s in zip(carried, starts))

    def _open_region(self, op: Op) -> None:
        op.regions.append([])
        self._open.append(op)
        self._bodies.append(op.regions[-1])
        self._scopes.append({})

    def _close(self, line: str) -> None:
        if not self._open:
            self.ended = not self._bodies  # the module, and not a function of it
            self._bodies = []
            return
        op = self._open.pop()
        self._bodies.pop()
        self._scopes.pop()
        if line.endswith("{"):
            self._open_region(op)

"""Running a Python program as if Python itself did: the same ``__main__``, path and arguments.

What Python does is described in "Command line and environment" of its manual and written down in
its ``runpy`` module; this follows both, for a script, a module (``-m``) and a text (``-c``).
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Protocol

from streamsan.errors import UsageError


class NoModuleError(UsageError):
    """The module of ``-m`` does not exist or cannot be run."""


class Program(Protocol):
    """A program to run once: a script, a module or a text."""

    @property
    def files(self) -> tuple[str, ...]:
        """The path of its main file, if that is known before it runs."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The files that it is read from, as far as they are known before it runs."""

    def prepare(self) -> None:
        """Read and compile it where that needs none of its own code to run.

        Raises UsageError if it cannot be read, SyntaxError or ValueError if it is no Python.
        """

    def run(self) -> None:
        """Become it: set up ``sys`` and ``__main__``, and run it to its end.

        Raises what the program raises, and NoModuleError.
        """


def find_program(words: list[str]) -> Program:
    """The program that `words` name, from ``-m``, ``-c`` or the script on."""
    if not words:
        raise UsageError("there is no script to run: see `streamsan run --help`")
    flag = words[0][:2]
    if flag not in ("-m", "-c"):
        return Script(words[0], words[1:])
    rest = [words[0][2:], *words[1:]] if len(words[0]) > 2 else words[1:]
    if not rest:
        raise UsageError(f"{flag} names no {'module' if flag == '-m' else 'code'} to run")
    return Module(rest[0], rest[1:]) if flag == "-m" else Text(rest[0], rest[1:])


class Script:
    """A Python file. Its ``__file__`` is absolute, its ``sys.argv[0]`` as it was given."""

    def __init__(self, path: str, arguments: list[str]) -> None:
        self._path = path
        self._arguments = arguments
        self.files = (os.path.join(os.getcwd(), path),)  # as Python joins them: not normalised

    @property
    def inputs(self) -> tuple[str, ...]:
        """The script."""
        return self.files

    def prepare(self) -> None:
        """Compile the file. Raises as `Program.prepare` says."""
        self._code = compile(_read(self._path), self.files[0], "exec", dont_inherit=True)

    def run(self) -> None:
        """Run it, with its own folder first on ``sys.path``."""
        path = self.files[0]
        _set_up([self._path, *self._arguments], os.path.dirname(os.path.realpath(path)))
        loader = SourceFileLoader("__main__", path)
        _execute(self._code, {"__file__": path, "__loader__": loader, "__cached__": None})


class Text:
    """A program given on the command line."""

    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def __init__(self, text: str, arguments: list[str]) -> None:
        self._text = text
        self._arguments = arguments

    def prepare(self) -> None:
        """Compile the text. Raises as `Program.prepare` says."""
        self._code = compile(self._text + "\n", "<string>", "exec", dont_inherit=True)

    def run(self) -> None:
        """Run it, with the current directory first on ``sys.path``."""
        _set_up(["-c", *self._arguments], "")
        _execute(self._code, {"__loader__": BuiltinImporter})


class Module:
    """A module, or a package with a ``__main__``, found along ``sys.path``."""

    files: tuple[str, ...] = ()

    def __init__(self, name: str, arguments: list[str]) -> None:
        self._name = name
        self._arguments = arguments

    @property
    def inputs(self) -> tuple[str, ...]:
        """Where its code is if it lies in the current directory."""
        path = os.path.join(os.getcwd(), *self._name.split("."))
        return (f"{path}.py", os.path.join(path, "__main__.py"), os.path.join(path, "__init__.py"))

    def prepare(self) -> None:
        """Nothing: finding the module imports the packages around it, which is running it."""

    def run(self) -> None:
        """Run it, with the current directory first on ``sys.path``."""
        _set_up(["-m", *self._arguments], os.getcwd())
        spec, code = _find_module(self._name)
        sys.argv[0] = spec.origin or "-m"
        _execute(
            code,
            {
                "__file__": spec.origin,
                "__loader__": spec.loader,
                "__package__": spec.parent,
                "__cached__": spec.cached,
                "__spec__": spec,
            },
        )


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise UsageError(f"there is no script {path}: check the path") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory: name a script in it") from None
    except OSError as error:
        raise UsageError(
            f"the script {path} cannot be read ({error.strerror}): check its permissions"
        ) from None


def _set_up(argv: list[str], folder: str) -> None:
    """Set the program's arguments, and its `folder` in place of ours on ``sys.path``."""
    sys.argv[:] = argv
    if not getattr(sys.flags, "safe_path", False):  # with -P, Python puts no folder there
        sys.path[0] = folder


def _execute(code: CodeType, attributes: dict[str, object]) -> None:
    """Run `code` as a new ``__main__``: pickle and multiprocessing look it up by that name."""
    module = ModuleType("__main__")
    vars(module).update({"__builtins__": builtins, "__package__": None} | attributes)
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _find_module(name: str) -> tuple[ModuleSpec, CodeType]:
    spec = _find_spec(name)
    if spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = _find_spec(name)
    get_code = getattr(spec.loader, "get_code", None)
    code: CodeType | None = get_code(name) if get_code else None
    if code is None:
        raise NoModuleError(f"the module {name} has no Python code: name another one")
    return spec, code


def _find_spec(name: str) -> ModuleSpec:
    missing = NoModuleError(f"there is no module {name} to run: check its name and the directory")
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name and (name + ".").startswith(error.name + "."):
            raise missing from None
        raise  # a package around it imports something that is not there
    if spec is None or name == "__main__":
        raise missing
    return spec

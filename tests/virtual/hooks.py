"""Every function of ours that runs while a program is recorded, found by looking for them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import FunctionType, ModuleType
from typing import Any

PATH = (
    "streamsan.record._observer",
    "streamsan.record._sites",
    "streamsan.record._children",
    "streamsan.trace._batches",
    "streamsan.trace._write",
    "streamsan.detect",
    "streamsan.order",
)
"""Modules and packages on the way from a call of the program's to its report."""

TELLERS = {
    "streamsan.session._local": ("LocalChecker.feed", "LocalChecker.write"),
    "streamsan.session._guard": ("GuardedChecker.feed",),
    "streamsan.virtual.face.execute": ("Executor.report", "Executor.emit"),
    "streamsan.virtual.face.host": ("Host.touch", "Host.exported"),
    "streamsan.virtual.face.exports": ("Exports.add",),
}
"""Functions of other modules on that way; what else is there is the program's own business."""

GUARDS = {f"streamsan.record._observer:Observer.{name}" for name in (
    "emit", "operation", "thread", "stack",
)}  # fmt: skip
"""Guards themselves, each on the way of every operator: what they call is broken instead."""


def _modules() -> list[ModuleType]:
    names = list(PATH)
    for name in PATH:
        folder = getattr(importlib.import_module(name), "__path__", [])
        names += [f"{name}.{info.name}" for info in pkgutil.iter_modules(folder)]
    return [importlib.import_module(name) for name in names]


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    found: dict[str, FunctionType] = {}
    for name, value in vars(module).items():
        if getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                inner: Any = member.fget if isinstance(member, property) else member
                inner = inspect.unwrap(getattr(inner, "__func__", inner))
                if isinstance(inner, FunctionType) and inner.__module__ == module.__name__:
                    found[f"{name}.{attribute}"] = inner
        else:
            inner = inspect.unwrap(value)
            if isinstance(inner, FunctionType):
                found[name] = inner
    return found


def hooks() -> list[str]:
    """Names of all functions and methods, such as ``streamsan.record._observer:Observer.emit``."""
    found = [f"{module.__name__}:{name}" for module in _modules() for name in _functions(module)]
    found = [hook for hook in found if hook not in GUARDS]
    return found + [f"{module}:{name}" for module, names in TELLERS.items() for name in names]


def find(hook: str) -> FunctionType:
    """The function of a name."""
    module, _, name = hook.partition(":")
    return _functions(importlib.import_module(module))[name]

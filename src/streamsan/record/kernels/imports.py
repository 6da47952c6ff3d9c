"""Work that is to be done once a module has been imported, by whomever and whenever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(name: str, work: Callable[[Any], None]) -> None:
    """Call `work` with the module: at once where it is there, else after its import.

    The module is not imported for it, and an error of `work` is the importer's to see.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        work(module)
    else:
        sys.meta_path.insert(0, _Finder(name, work))


class _Finder:
    """Finds one module as the others do, and has its loader do the work behind the import."""

    def __init__(self, name: str, work: Callable[[Any], None]) -> None:
        self._name = name
        self._work = work
        self._asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders say of the module waited for, and nothing of all others."""
        if name != self._name or self._asking:
            return None
        self._asking = True
        try:
            found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._work(module)

        loader.exec_module = exec_module

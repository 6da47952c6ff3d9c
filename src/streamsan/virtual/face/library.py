"""Kernels that a program registers from Python: custom operators of ``torch.library``.

A kernel for CUDA is registered for the CPU as well, which device tensors are to the dispatcher;
the tensors of a call choose between the two. The body of a kernel is a piece of the program: the
operators in it are seen one by one, on the stream that is current there, as CUDA runs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.library import Library, fallthrough_kernel
from torch.utils import _python_dispatch
from torch.utils._pytree import tree_leaves

from streamsan.virtual.face import current

Kernel = Callable[..., Any]

_kernels: dict[str, dict[str, Kernel]] = {}
_Key = torch._C.DispatchKey
_TRACING = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY)
_HIGHER_ORDER = (
    "cond.cond_op", "map.map_impl", "scan.scan_op", "associative_scan.associative_scan_op",
    "flex_attention.flex_attention",
)  # fmt: skip
_IN_PARTS = (_Key.CompositeExplicitAutograd, _Key.BackendSelect, _Key.CPU)
_KEYS = ("CPU", "CUDA", "CompositeExplicitAutograd")
_choosers: dict[str, Library] = {}  # who registered the choice between an operator's kernels
_impl: Any = Library.impl


def is_python(op: OpOverload) -> bool:
    """Whether the kernel of an operator was registered from Python."""
    return bool(_kernels) and op.name() in _kernels


def run_higher_order(op: HigherOrderOperator, args: Any, kwargs: Any, mode: Any) -> Any:
    """Run a higher-order operator (a branch, a loop, flexible attention) as its parts."""
    kernels = op.py_kernels
    key = next((key for key in _IN_PARTS if key in kernels), None)
    if key is None:
        return op(*args, **kwargs)
    with mode:
        return kernels[key](*args, **kwargs)


def _differentiate_parts(op: HigherOrderOperator) -> None:
    """Let autograd see the parts of an operator, where torch would trace them for a compiler."""
    if _Key.Autograd not in op.py_kernels:
        return
    parts, traced = op.py_kernels[_Key.CompositeExplicitAutograd], op.py_kernels[_Key.Autograd]

    def run(*args: Any, **kwargs: Any) -> Any:
        tracing = any(torch._C._get_dispatch_mode(mode) is not None for mode in _TRACING)
        return (traced if tracing else parts)(*args, **kwargs)

    op.py_kernels[_Key.Autograd] = run
    op._dispatch_cache.clear()


def _ours(mode: Any) -> bool:
    return type(mode).__module__.startswith("streamsan.")


def _seen(kernel: Kernel, mode: Callable[[], Any]) -> Kernel:
    @wraps(kernel)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(_ours, _python_dispatch._get_current_dispatch_mode_stack())):
            return kernel(*args, **kwargs)
        with mode():
            return kernel(*args, **kwargs)

    return call


def _on_device(values: Any) -> bool:
    owner = current.face().tensors.owner
    return any(isinstance(v, torch.Tensor) and owner(v) >= 0 for v in tree_leaves(values))


def _choose(name: str, kernels: dict[str, Kernel]) -> Kernel:
    """The kernel of the CPU key: that for CUDA if the call has device tensors."""

    def call(*args: Any, **kwargs: Any) -> Any:
        key = "CUDA" if _on_device((args, kwargs)) else "CPU"
        kernel = kernels.get(key) or kernels.get("CompositeExplicitAutograd")
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{name}' with arguments from the '{key}' backend."
            )
        return kernel(*args, **kwargs)

    return call


def full_name(library: Library, op_name: Any) -> str:
    """Name of the operator, namespace included, that a kernel is registered for."""
    given = op_name.name() if isinstance(op_name, OpOverload) else str(op_name)
    return given if "::" in given else f"{library.ns}::{given}"


def is_program(library: Library, key: str, kernel: Any, options: dict[str, Any]) -> bool:
    """Whether a kernel that is being registered is a piece of the program."""
    own = library.ns not in ("aten", "prims") and not options.get("with_keyset")
    return own and key in _KEYS and callable(kernel) and kernel is not fallthrough_kernel


def watch_kernel(name: str, key: str, kernel: Kernel, mode: Callable[[], Any]) -> Kernel:
    """A kernel whose operators are seen: what is to be registered in its place."""
    seen = _kernels.setdefault(name, {})[key] = _seen(kernel, mode)
    return seen


def _has_own_kernel(name: str) -> bool:
    """Whether an operator has a kernel for the CPU from elsewhere: device tensors get that one."""
    has = torch._C._dispatch_has_kernel
    return has(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")


def install(mode: Callable[[], Any]) -> None:
    """Watch registrations from now on; `mode` makes the dispatch mode of the virtual machine."""

    def impl(self: Library, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        key = dispatch_key or self.dispatch_key
        if not is_program(self, key, fn, options):
            _impl(self, op_name, fn, dispatch_key, **options)
            return
        name = full_name(self, op_name)
        if key == "CUDA" and name not in _kernels and _has_own_kernel(name):
            _impl(self, op_name, fn, dispatch_key, **options)
            return
        seen = watch_kernel(name, key, fn, mode)
        if key != "CPU":
            _impl(self, op_name, seen, dispatch_key, **options)
        chooser = _choosers.get(name)
        if key in ("CPU", "CUDA") and (chooser is None or chooser.m is None):
            _choosers[name] = self
            _impl(self, op_name, _choose(name, _kernels[name]), "CPU")

    Library.impl = impl  # type: ignore[method-assign]
    for path in _HIGHER_ORDER:
        module, name = path.split(".")
        _differentiate_parts(getattr(_module(module), name))
    hide_mode()


def _module(name: str) -> Any:
    return importlib.import_module(f"torch._higher_order_ops.{name}")


def hide_mode() -> None:
    """Higher-order operators check that their parts run below all modes: ours stands for that."""
    asked = _python_dispatch._get_current_dispatch_mode

    def below_ours() -> Any:
        mode = asked()
        return None if _ours(mode) else mode

    for name in ("cond", "scan", "strict_mode"):
        _module(name).__dict__["_get_current_dispatch_mode"] = below_ours

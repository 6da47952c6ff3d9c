"""How device tensors are printed.

torch formats a tensor with operators of its own, out of sight of every mode: it would read memory
that waits to be written. So what is printed is a copy that the host has waited for.
"""

from __future__ import annotations

from typing import Any

import torch

from streamsan.virtual.face import current


def install() -> None:
    """Let torch print device tensors from the host."""
    module: Any = torch._tensor_str
    original = module._str

    def text(self: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        plain = self.layout == torch.strided and self.numel()
        if tensor_contents is None and plain and current.face().tensors.owner(self) >= 0:
            with torch.no_grad():
                host = self.detach().cpu()
            tensor_contents = _contents(module, self, host)
        return str(original(self, tensor_contents=tensor_contents))

    module._str = text


def _contents(module: Any, tensor: torch.Tensor, host: torch.Tensor) -> str:
    """The values as torch prints them, indented for the class name that comes before."""
    kind = "tensor" if type(tensor) in (torch.Tensor, torch.nn.Parameter) else type(tensor).__name__
    with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
        return str(module._tensor_str(host, len(kind) + 1))

"""The face that the virtual machine shows to torch.

`install` makes it the CUDA machine of this process, `enter_thread` brings a new thread in.
"""

from __future__ import annotations

from streamsan.virtual.face.install import enter_thread, install
from streamsan.virtual.face.state import Face

__all__ = ["Face", "enter_thread", "install"]

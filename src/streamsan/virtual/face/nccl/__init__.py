"""``torch.distributed`` with backend ``nccl`` on the virtual machine (rules N1 and N2)."""

from streamsan.virtual.face.nccl.install import install
from streamsan.virtual.face.nccl.raw import native

__all__ = ["install", "native"]

"""The recorder of CUDA devices: `_recorder` holds it together, `_torch` of `record` installs it.

Operators come from torch's dispatcher (`_dispatch`, `_mode`, `_operators`, `_copies`), events and
memory from its GPU trace (`_trace`, `_streams`, `_memory`, `_pinned`), and what neither shows from
what `_patches` puts around torch's own functions (`_queries`, `_graphs`, `_host`, `_nccl`).
"""

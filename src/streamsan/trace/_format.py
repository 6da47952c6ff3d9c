"""Constants of the file's layout, which `streamsan.trace` describes."""

from __future__ import annotations

import struct

MAGIC = b"\x89SSAN\r\n\x1a"
VERSION = 1

HEADER = struct.Struct("<8sI")
"""Magic, version."""

FRAME = struct.Struct("<III")
"""Length of the payload, length decompressed, CRC-32 of the payload."""

MAX_RAW = 16 << 20
"""Most bytes a frame may hold once decompressed: a bound on what reading a hostile file costs."""

MAX_PAYLOAD = MAX_RAW + (1 << 20)
"""Most bytes a payload may have: incompressible data grows a little."""

MAX_RECORDS = 1 << 16
"""Most records in a frame: small ones take many times their bytes once decoded."""

BATCH = 4096
"""Records in a full frame."""

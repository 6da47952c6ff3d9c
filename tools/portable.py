"""Makes traces independent of where the program lay."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from streamsan.model.records import SiteDef
from streamsan.trace import Writer, read


def make_portable(path: Path, folder: str) -> None:
    """Rewrite a trace in place: files below `folder` are named relative to it.

    Raises TraceError for one that cannot be read to its end.
    """
    prefix = folder.rstrip(os.sep) + os.sep
    records = list(read(path))
    writer = Writer(path, force=True)
    for record in records:
        if isinstance(record, SiteDef):
            file = record.file.removeprefix(prefix)
            writer.write(msgspec.structs.replace(record, file=file))
        else:
            writer.write(record)
    writer.close()

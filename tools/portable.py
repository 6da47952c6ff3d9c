"""Makes traces independent of where the program lay: ``python tools/portable.py FOLDER TRACE...``.

Files below FOLDER are named relative to it; the traces are rewritten in place.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamsan.model.records import SiteDef
from streamsan.trace import Writer, read


def make_portable(path: Path, folder: str) -> None:
    """Rewrite one trace. Raises TraceError for one that cannot be read to its end."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("traces", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    for path in options.traces:
        make_portable(path, options.folder)


if __name__ == "__main__":
    main()

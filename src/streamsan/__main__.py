"""``python -m streamsan``, and the entry point of the ``streamsan`` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit status."""
    from streamsan import commands

    return commands.main()


if __name__ == "__main__":
    sys.exit(main())

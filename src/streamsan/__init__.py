"""StreamSan, the thread sanitizer for GPU streams.

::

    with streamsan.watch() as session:
        step()
    print(session.render())

`watch` records and checks a block of code, `Session` is what it hands over. The command
``streamsan run`` does the same for a whole program. Importing this package imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Session", "__version__", "watch"]

if TYPE_CHECKING:
    from streamsan.session import Session, watch


def __getattr__(name: str) -> object:
    if name in ("Session", "watch"):
        from streamsan import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

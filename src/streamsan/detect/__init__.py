"""Detection: holds the accesses of a run against its order, and reports what races.

`Checker` is the one entrance: feed it every record of a run, ask it for the report. It needs no
framework and no device, so a trace is checked anywhere, with the verdict of the live run.
"""

from streamsan.detect._checker import Checker

__all__ = ["Checker"]

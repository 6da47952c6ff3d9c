"""Detection: holds the accesses of a run against its order, and reports what races.

`Checker` is the one entrance: feed it every record of a run, ask it for the report. It needs no
framework and no device, so a trace is checked anywhere, with the verdict of the live run. A
`Survey` divides a run into shares, each for a checker of its own; their `Results` put together are
those of the run.
"""

from streamsan.detect._checker import Checker
from streamsan.detect._division import Division, Survey
from streamsan.detect._results import Results
from streamsan.detect._shadow import MOST_PIECES

__all__ = ["MOST_PIECES", "Checker", "Division", "Results", "Survey"]

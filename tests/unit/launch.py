"""The command line with a recorder that records nothing by itself, for tests without a framework.

``python launch.py ARGUMENTS`` runs it. The program under test reaches the recorder as
``launch.recorder`` and says itself what it does: `Recorder.race`, `Recorder.fail`. With
``LAUNCH_DEVICE=cuda`` in the environment it is checked as a program on a real GPU is.
"""

from __future__ import annotations

import os
import sys
import threading
import types

from streamsan.model.records import AnyRecord, End
from streamsan.record import Options, Sink
from tests.unit.samples import racy_records


class Recorder:
    """Emits what it is told to."""

    name = "virtual"

    def __init__(self, options: Options, sink: Sink) -> None:
        self.options = options
        self.sink = sink
        self._race: list[AnyRecord] = racy_records(
            options.user_files[0] if options.user_files else "<string>"
        )
        self.lock = threading.RLock()
        sink(self._race[0])

    def race(self) -> None:
        """Do something racy."""
        for record in self._race[1:]:
            self.sink(record)

    def fail(self) -> None:
        """Emit something that a checker cannot swallow."""
        self.sink(None)  # type: ignore[arg-type]

    def stop(self, status: int = 0) -> None:
        """End the recording."""
        self.sink(End(status, 0.5))


recorder: Recorder | None = None


def start(options: Options, sink: Sink) -> Recorder:
    """Stand in for the recorder of torch."""
    global recorder
    recorder = Recorder(options, sink)
    return recorder


def stand_in() -> None:
    """Put this module in the place of the recorder of torch."""
    module = types.ModuleType("streamsan.record._torch")
    module.start = start  # type: ignore[attr-defined]
    module.device_of = lambda _: os.environ.get("LAUNCH_DEVICE", "virtual")  # type: ignore[attr-defined]
    sys.modules["streamsan.record._torch"] = module
    sys.modules["launch"] = sys.modules[__name__]


def main() -> int:
    """Run the command line with the stand-in."""
    stand_in()
    from streamsan.__main__ import main

    return main()


if __name__ == "__main__":
    sys.exit(main())

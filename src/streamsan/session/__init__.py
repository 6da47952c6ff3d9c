"""Sessions: a recorder, a checker and a trace writer, put together around a running program.

`watch` and `Session` are the library's face; `active` is the session that records this process;
`GuardedChecker` checks records that come from anywhere, `check_trace` those of a file, also in
pieces. The ``parse_`` functions turn the text of
an option into its value.
"""

from streamsan.session._guard import Failures, GuardedChecker, describe
from streamsan.session._pieces import Checked, check_trace, check_traces, parse_jobs
from streamsan.session._session import Session, active, watch
from streamsan.session._values import (
    parse_count,
    parse_device,
    parse_driver,
    parse_engine,
    parse_memory,
    parse_schedule,
)

__all__ = [
    "Checked",
    "Failures",
    "GuardedChecker",
    "Session",
    "active",
    "check_trace",
    "check_traces",
    "describe",
    "parse_count",
    "parse_device",
    "parse_driver",
    "parse_engine",
    "parse_jobs",
    "parse_memory",
    "parse_schedule",
    "watch",
]

"""How many programs each property is tried on, and how one is told where it fails."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, settings

from streamsan.model import records as r


def examples(count: int) -> settings:
    """`count` programs; as many as its profile says, where that is more than the usual number."""
    chosen = settings.default.max_examples if settings.default is not None else 0
    usual = settings(settings.get_profile("default")).max_examples
    return settings(
        max_examples=chosen if chosen > usual else count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def listing(records: Sequence[r.AnyRecord]) -> str:
    """The records of a run, a line each, without the lines of source."""
    known = [x for x in records if not isinstance(x, r.SiteDef | r.StackDef)]
    return "\n".join(map(repr, known))

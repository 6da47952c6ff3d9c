"""Nonsense in ``STREAMSAN`` and in options: one sentence, or settings; never anything else."""

from __future__ import annotations

import contextlib
import io

from hypothesis import example, given
from hypothesis import strategies as st

from streamsan import commands, config
from streamsan.errors import EXIT_USAGE, UsageError

KEYS = [option.key for option in config.OPTIONS]
ITEM = st.tuples(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=8)),
    st.sampled_from(["", "=", "==", " = "]),
    st.one_of(st.text(max_size=12), st.integers().map(str), st.sampled_from(["1e9", "٣", "16GiB"])),
).map("".join)


@given(st.lists(ITEM, max_size=4).map(",".join))
@example("memory=" + "9" * 5000)
@example("devices=" + "9" * 5000)
@example("schedule=random:" + "9" * 5000)
def test_the_variable(text: str) -> None:
    message, settings = "one line", None
    try:
        settings = config.from_environment({config.VARIABLE: text})
    except UsageError as error:
        message = str(error)
    assert len(message.splitlines()) == 1
    assert settings is None or 1 <= settings.devices <= 64


@given(
    st.sampled_from(["check", "report", "run"]),
    st.sampled_from([f"--{key.replace('_', '-')}" for key in KEYS]),
    st.text(st.characters(codec="utf-8"), max_size=12),
)
def test_options(verb: str, flag: str, value: str) -> None:
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        status = commands.main([verb, f"{flag}={value}", "/missing/file"])
    assert status in (EXIT_USAGE, 3)
    assert "Traceback" not in err.getvalue()

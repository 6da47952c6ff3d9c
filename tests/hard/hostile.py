"""Strategies for records that can be decoded and make no sense."""

from __future__ import annotations

from hypothesis import strategies as st

from streamsan.model import records as r

FEW = st.integers(-1, 4)
"""Identities that meet one another."""

ANY = st.one_of(FEW, st.sampled_from([-(2**63), -2, 2**31, 2**63 - 1, 2**63, 2**64 - 1]))
"""Any number that msgpack can hold."""

TEXT = st.sampled_from(
    ["", "x", "stream-ordered", "caching", "bfc:async", "\x00\x1b[2J\n", "é" * 50]
)
SIZES = st.lists(st.one_of(st.integers(0, 20), ANY), max_size=4).map(tuple)
"""Sizes or strides: of any length, negative, huge."""

ACCESS = st.one_of(
    st.builds(
        r.Access, FEW, st.integers(0, 64), st.integers(1, 40), st.just(()), st.just(()),
        st.integers(1, 3), TEXT,
    ),
    st.builds(
        r.Access, FEW, st.integers(0, 64), st.integers(1, 4), st.just((20,)),
        st.integers(1, 6).map(lambda stride: (stride,)), st.integers(1, 3), TEXT,
    ),
    st.builds(r.Access, FEW, ANY, ANY, SIZES, SIZES, st.integers(1, 3), TEXT, st.integers(0, 2)),
)  # fmt: skip
"""Mostly such as overlap, and some that are no extent at all."""

OPERATION = st.builds(
    r.Operation, ANY, st.integers(0, 6), TEXT, FEW, FEW, ANY,
    st.lists(ACCESS, max_size=4).map(tuple),
    copy=st.integers(0, 6), node=TEXT, forward=ANY, context=FEW, graph=FEW, captured=st.booleans(),
)  # fmt: skip

RECORD: st.SearchStrategy[r.AnyRecord] = st.one_of(
    OPERATION,
    OPERATION,
    OPERATION,
    st.builds(r.Header, TEXT, st.just({}), st.just(()), st.just({})),
    st.builds(r.SiteDef, FEW, TEXT, ANY, TEXT, st.booleans(), TEXT, TEXT),
    st.builds(r.StackDef, FEW, st.lists(ANY, max_size=3).map(tuple)),
    st.builds(r.ThreadDef, FEW, TEXT, ANY, ANY),
    st.builds(r.ThreadEnd, FEW),
    st.builds(r.StreamDef, FEW, FEW, ANY, st.booleans(), st.booleans(), TEXT, ANY),
    st.builds(r.EventRecord, FEW, FEW, FEW, ANY, FEW),
    st.builds(r.EventWait, FEW, FEW, FEW, ANY, FEW),
    st.builds(r.EventSync, FEW, FEW, ANY, st.booleans()),
    st.builds(r.EventDestroy, FEW, FEW),
    st.builds(r.StreamSync, FEW, FEW, ANY, st.booleans()),
    st.builds(r.DeviceSync, FEW, FEW, ANY, TEXT),
    st.builds(r.Alloc, FEW, FEW, st.one_of(FEW, ANY), ANY, FEW, FEW, ANY, TEXT, FEW),
    st.builds(r.Alloc, FEW, FEW, st.integers(0, 64), st.integers(0, 64), FEW, FEW, FEW, TEXT, FEW),
    st.builds(r.Free, FEW, FEW, ANY),
    st.builds(r.RecordStream, FEW, FEW, FEW, ANY, st.booleans()),
    st.builds(r.HostRelease, FEW, FEW),
    st.builds(r.HostAcquire, FEW, FEW),
    st.builds(r.GraphDestroy, FEW, FEW),
    st.builds(r.Misuse, TEXT, TEXT, FEW, ANY, FEW),
    st.builds(r.Note, st.sampled_from(["blind-spot", "internal-error", "info", ""]), TEXT),
    st.builds(r.End, ANY, st.floats()),
)

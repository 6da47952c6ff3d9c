"""Kinds: the most specific one that the facts of a conflict prove."""

from __future__ import annotations

from streamsan.detect._facts import LIFETIME, Conflict, Part
from streamsan.model.records import FOREIGN, HOST, CopyKind, Mode, OpKind
from streamsan.order import Order

KINDS = (
    "R13-GRAPH-REPLAY",
    "R07-COLL-INFLIGHT",
    "R08-D2H-HOST-READ",
    "R09-H2D-SRC-WRITE",
    "R10-PAGEABLE-LEGACY",
    "R06-AUTOGRAD-STREAM",
    "R05-EVENT-MISUSE",
    "R03-ALLOC-REUSE",
    "R04-EDGE-WRONG",
    "R11-WRONG-STREAM",
    "R12-INTEROP",
    "R15-MULTI-DEVICE",
    "R01-PROD-CONS",
    "R02-SLOT-WAR",
)
"""Kinds of races, the most specific first."""

_DOWNLOADS = (CopyKind.DEVICE_TO_HOST, CopyKind.DEVICE_TO_PAGEABLE)


def kind_of(conflict: Conflict, order: Order) -> str:
    """The first kind of `KINDS` that holds for a conflict."""
    first, second = conflict.first.op, conflict.second.op
    if conflict.captured or OpKind.GRAPH_LAUNCH in (first.kind, second.kind):
        return "R13-GRAPH-REPLAY"
    if OpKind.COLLECTIVE in (first.kind, second.kind):
        return "R07-COLL-INFLIGHT"
    return _copy_kind(conflict) or _order_kind(conflict) or _plain_kind(conflict, order)


def _copy_kind(conflict: Conflict) -> str:
    """R08, R09, R10: a copy between device and host against the host, or staged in passing."""
    first, second = conflict.first, conflict.second
    for host, device in ((first, second), (second, first)):
        if host.op.kind == OpKind.HOST and device.op.kind == OpKind.COPY:
            if _reads(host) and _writes(device) and device.op.copy in _DOWNLOADS:
                return "R08-D2H-HOST-READ"
            if _writes(host) and _reads(device) and device.access.space == HOST:
                return "R09-H2D-SRC-WRITE"
    if first.op.copy == CopyKind.PAGEABLE_TO_DEVICE and _writes(first):
        return "R10-PAGEABLE-LEGACY"
    return ""


def _order_kind(conflict: Conflict) -> str:
    """R06, R05, R03, R04: what should have ordered the two sides."""
    first, second = conflict.first.op, conflict.second.op
    direct = conflict.direct
    if LIFETIME in (first.seq, second.seq) or (conflict.moved and (first.node or second.node)):
        return "R03-ALLOC-REUSE"
    if first.node or second.node:
        return "R06-AUTOGRAD-STREAM"
    again = direct is not None and direct.number > 1
    if again or conflict.never or conflict.replaced or conflict.renewed is not None:
        return "R05-EVENT-MISUSE"
    if conflict.moved and direct is None:
        return "R03-ALLOC-REUSE"
    return "R04-EDGE-WRONG" if direct is not None or conflict.beside else ""


def _plain_kind(conflict: Conflict, order: Order) -> str:
    """R11, R12, R15, R01, R02: there is no trace of an order that was meant."""
    first, second = conflict.first.op, conflict.second.op
    if first.context == second.timeline or second.context == first.timeline:
        return "R11-WRONG-STREAM"
    if first.name.startswith(FOREIGN) != second.name.startswith(FOREIGN):
        return "R12-INTEROP"
    sides = [order.timelines[op.timeline] for op in (first, second)]
    if all(side.is_stream for side in sides) and sides[0].device != sides[1].device:
        return "R15-MULTI-DEVICE"
    consumed = _writes(conflict.first) and not _writes(conflict.second)
    return "R01-PROD-CONS" if consumed else "R02-SLOT-WAR"


def _reads(part: Part) -> bool:
    return bool(part.access.mode & Mode.READ)


def _writes(part: Part) -> bool:
    return bool(part.access.mode & Mode.WRITE)

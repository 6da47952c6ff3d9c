"""The kinds of findings, by their ids in the rule book, each with a plain title."""

from __future__ import annotations

from streamsan.model.findings import Report

TITLES = {
    "R01-PROD-CONS": "data used before the stream that makes it is done",
    "R02-SLOT-WAR": "buffer overwritten while another stream still uses it",
    "R03-ALLOC-REUSE": "memory handed to a new owner while still in use",
    "R04-EDGE-WRONG": "a wait is there but does not cover the access",
    "R05-EVENT-MISUSE": "event used in a way that orders nothing",
    "R06-AUTOGRAD-STREAM": "backward pass and caller on streams that nothing joins",
    "R07-COLL-INFLIGHT": "buffer touched while a collective is in flight",
    "R08-D2H-HOST-READ": "host reads a copy that may not have arrived",
    "R09-H2D-SRC-WRITE": "host changes the source of a copy still in flight",
    "R10-PAGEABLE-LEGACY": "order that holds only on the legacy stream or for pageable memory",
    "R11-WRONG-STREAM": "work launched on another stream than the current one",
    "R12-INTEROP": "memory shared with another library without an order",
    "R13-GRAPH-REPLAY": "graph replay not ordered with the work around it",
    "R14-COMPILER": "order lost in compiled code",
    "R15-MULTI-DEVICE": "work on two devices that nothing orders",
    "R16-OTHER-AGENT": "memory changed by something outside the program",
    "R17-STREAM-IDENTITY": "two stream objects that are one stream",
}


def title(kind: str) -> str:
    """What `kind` means, in plain words."""
    return TITLES.get(kind, "accesses that nothing orders")


def size_text(size: int) -> str:
    """A size in bytes for reading, such as ``16 KiB`` or ``1,000 bytes``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} byte" + "s" * (size != 1)


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun, such as ``1 race`` or ``2,000 operations``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def verdict_text(report: Report) -> str:
    """How many findings of each sort there are, or that no races were found."""
    counts = (
        (len(report.races), "race"),
        (len(report.latent), "latent race"),
        (len(report.misuse), "misuse"),
        (len(report.possible), "possible race"),
    )
    return ", ".join(count_text(*pair) for pair in counts if pair[0]) or "no races found"

"""Findings and records made by hand, for tests that need some."""

from __future__ import annotations

from streamsan.model.findings import SCHEMA, Finding, Memory, Report, Side, Site, Summary
from streamsan.model.records import (
    Access,
    AnyRecord,
    End,
    Header,
    Mode,
    Operation,
    OpKind,
    SiteDef,
    StackDef,
    StreamDef,
    ThreadDef,
)

FOLDER = "/srv/project"
TRAIN = f"{FOLDER}/train.py"
TORCH = "torch/nn/modules/module.py"

SOURCES = {
    (TRAIN, 8): "        loss = weight * batch",
    (TRAIN, 10): '    noise = torch.zeros(1024, device="cuda")',
    (TRAIN, 20): "    ready.wait(side)",
    (TRAIN, 31): "    print(host.sum())",
}


def line(number: int, function: str = "step") -> Site:
    """A line of the user's script."""
    return Site(TRAIN, number, function)


def side(
    access: str,
    op: str,
    stream: str,
    number: int,
    *,
    argument: str = "self",
    device: str = "cuda:0",
) -> Side:
    """One access, made at a line of the script that a library calls."""
    stack = [
        line(number),
        Site(TORCH, 1773, "_wrapped_call_impl"),
        Site(TORCH, 1784, "_call_impl"),
        line(40, "<module>"),
    ]
    return Side(
        op, access, stream, device, "MainThread", line(number), stack, None, argument, (0, 4096)
    )


def reuse() -> Finding:
    """A block reused while in use."""
    return Finding(
        id="3fa91c20",
        kind="R03-ALLOC-REUSE",
        hazard="write-after-read",
        confidence="certain",
        count=12,
        first=side("read", "aten::mul", "copy", 8, argument="other"),
        second=side("write", "aten::fill_", "default", 10),
        memory=Memory(16384, line(6), line(9), "default", "caching"),
        missing_edge="Nothing makes default wait for copy between the read at train.py:8 and the "
        "reuse of the block, which was freed at train.py:9 while copy still had work on it.",
        nearest_edge="The last order between the two is default.wait_stream(copy) at train.py:7, "
        "before the read was enqueued.",
        repair=[
            "call batch.record_stream(copy) before the last reference goes",
            "let default wait for copy before batch is dropped: default.wait_stream(copy)",
        ],
    )


def host_read() -> Finding:
    """A host read of a copy in flight, whose producer ran in a backward pass."""
    finding = reuse()
    finding.id = "77e0b1d2"
    finding.kind = "R08-D2H-HOST-READ"
    finding.hazard = "read-after-write"
    finding.confidence = "likely"
    finding.count = 1
    finding.first = side("write", "aten::copy_", "copy", 8, device="cuda:1")
    finding.first.forward_site = line(22, "forward")
    finding.second = side("read", "Tensor.sum", "host", 31, device="cpu")
    finding.memory = Memory(4096, line(5), None, "", "pinned")
    finding.nearest_edge = None
    finding.repair = ["call copy.synchronize() before host is read"]
    return finding


def misuse() -> Finding:
    """A wait on an event that was never recorded."""
    finding = reuse()
    finding.id = "0d15ea5e"
    finding.kind = "R05-EVENT-MISUSE"
    finding.hazard = ""
    finding.count = 1
    call = side("read", "Event.wait", "side", 20, argument="")
    call.range = (0, 0)
    finding.first = finding.second = call
    finding.memory = Memory(0, None, None, "", "")
    finding.missing_edge = "The event ready was never recorded, so waiting for it orders nothing."
    finding.nearest_edge = None
    finding.repair = ["record ready on the stream whose work side is to wait for"]
    return finding


def report(
    races: list[Finding] | None = None,
    latent: list[Finding] | None = None,
    misuses: list[Finding] | None = None,
) -> Report:
    """A report of a finished run."""
    summary = Summary(1234, 3456, 2, 1.25, "virtual", [], [], True, 0)
    races = races or []
    verdict = "races" if races else "clean"
    return Report(SCHEMA, verdict, races, latent or [], misuses or [], summary)


def racy_records(file: str = TRAIN) -> list[AnyRecord]:
    """A run in which two streams write the same bytes and nothing orders them."""
    access = (Access(0, 4096, 64, (), (), int(Mode.WRITE), "self"),)
    kernel = int(OpKind.KERNEL)
    return [
        Header("virtual", {"torch": "2.13.0"}, (), {}),
        SiteDef(0, file, 8, "step", True, "loss = weight * batch", "loss"),
        SiteDef(1, file, 10, "step", True, "noise = torch.zeros(1024)", "noise"),
        StackDef(0, (0,)),
        StackDef(1, (1,)),
        ThreadDef(0, "MainThread", -1, 0),
        StreamDef(1, 0, 0, False, True, "default", 0),
        StreamDef(2, 0, 64, False, False, "side", 0),
        Operation(0, kernel, "aten::mul", 1, 0, 0, access),
        Operation(1, kernel, "aten::fill_", 2, 0, 1, access),
    ]


def racy_run(file: str = TRAIN) -> list[AnyRecord]:
    """`racy_records` with the end of the run."""
    return [*racy_records(file), End(0, 0.5)]

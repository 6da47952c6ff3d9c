"""The policies of the streaming backward engine: what torch's releases order, as small values.

The rules A1 to A4 are those of the rule book. What each release did is in its
``torch/csrc/autograd/engine.cpp`` and ``input_buffer.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsan.errors import UsageError

NOBODY, DEFAULT, CALLER = "nobody", "default", "caller"
"""Streams of a device, as a policy names them: none, its default stream, the caller's own."""


@dataclass(frozen=True)
class Policy:
    """What a release of torch does around and inside of a backward pass.

    `streams` (A1): nodes run on the streams of their forward operations, not on the default one.
    `roots` (A2): whose earlier work the first nodes wait for.
    `delayed` (A3): a gradient's wait is issued when its consumer runs, and sums have a stream of
    their own for each slot; else the consumer's stream waits as soon as the gradient is enqueued.
    `ends` (A4): whose later work waits for the leaf gradients.
    """

    name: str
    streams: bool
    roots: str
    delayed: bool
    ends: tuple[str, ...]

    @property
    def root_rule(self) -> str:
        """The rule that the first nodes wait by: a slot's (A3) where the caller does not count."""
        return "A2" if self.roots == CALLER else "A3"

    @property
    def as_torch(self) -> bool:
        """Whether the ends of a pass are those of the torch that is installed (2.11 or newer)."""
        return self.streams and self.roots == CALLER and self.ends == (CALLER,)


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("pre-streaming", streams=False, roots=NOBODY, delayed=False, ends=()),
        # Its input buffer knew no stream of the supplied gradient, and took the default one.
        Policy("torch-1.6", streams=True, roots=DEFAULT, delayed=False, ends=(DEFAULT,)),
        Policy("torch-1.9", streams=True, roots=CALLER, delayed=False, ends=(CALLER, DEFAULT)),
        Policy("torch-1.10", streams=True, roots=CALLER, delayed=False, ends=(CALLER,)),
        Policy("torch-2.8", streams=True, roots=CALLER, delayed=True, ends=(CALLER,)),
    )
}
"""All policies by name, the oldest first."""

TORCH = POLICIES["torch-2.8"]
"""What the torch that is installed does."""


def parse_policy(name: str | Policy) -> Policy:
    """The policy called `name`, or the one given. Raises UsageError."""
    if isinstance(name, Policy):
        return name
    if name not in list(POLICIES):  # it may be of any type
        raise UsageError(f"there is no engine policy {name!r}: choose from {', '.join(POLICIES)}")
    return POLICIES[name]

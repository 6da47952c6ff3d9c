"""Happens-before: which operations of a run are ordered, and by what.

`Order` holds one vector clock per timeline and has one method per kind of ordering fact; each names
the rule of ``docs/rules.md`` that it implements. An operation is known by its timeline and epoch,
and it comes before everything whose clock has reached that epoch (the epochs of FastTrack,
Flanagan and Freund, PLDI 2009). `Edge` is what an explanation says about a direct order.
"""

from streamsan.order._clocks import Clock, Timeline, Version
from streamsan.order._edges import Edge, Edges
from streamsan.order._order import Order

__all__ = ["Clock", "Edge", "Edges", "Order", "Timeline", "Version"]

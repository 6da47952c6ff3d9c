"""The test lists of other stream checkers, re-expressed as traces, each with its verdict.

`docs/peers.md` is the table made of them; ``python -m tools.fill_peers`` writes it.
"""

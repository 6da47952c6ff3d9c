"""The long profile: properties are divided into shares, and each tells how many programs passed."""

from __future__ import annotations

from collections import Counter

from tools import exact


def test_the_shares_of_a_property_add_up_and_try_different_programs() -> None:
    found = exact.shares(["one", "two"], 2 * exact.SHARE + 1)
    examples: Counter[str] = Counter()
    for share in found:
        assert 0 < share.examples <= exact.SHARE
        examples[share.test] += share.examples
    assert examples == {"one": 2 * exact.SHARE + 1, "two": 2 * exact.SHARE + 1}
    assert len({(share.test, share.seed) for share in found}) == len(found)


def test_a_share_counts_the_programs_that_passed() -> None:
    (test,) = exact.properties(["two_views_overlap"])
    told = exact.run(exact.Share(test, examples=150, seed=1))
    assert told.failure == ""
    assert told.passed == 150

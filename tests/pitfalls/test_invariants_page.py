"""The page of the invariants, and the mask values of ``h2h check --all``."""

from __future__ import annotations

from headtohead.plugins.registry import current
from headtohead.testing.checks.pairwise import incompatible_pairs
from headtohead.testing.checks.survey import _combinations
from headtohead.testing.invariants.parity import MASK_VALUES


def test_every_masking_is_combined_with_every_mask_value() -> None:
    found = {
        (names.get("masking"), names["mask_value"]) for _, names, by_role in _combinations(current()) if not by_role
    }
    assert found == {(name, value) for name in current().entries["masking"] for value in MASK_VALUES}


def test_incompatible_pairs_have_their_reason() -> None:
    reasons = {pair: reason for *pair, reason in incompatible_pairs(current()) for pair in [tuple(pair)]}
    assert "acts on the matrix of scores" in reasons["linear", "alibi"]
    assert ("split-heads", "fire") not in reasons

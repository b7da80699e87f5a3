"""Domain of each invariant, and the verdicts outside it."""

import dataclasses
import math

import pytest
import torch

from headtohead.plugin import Positional
from headtohead.plugins.registry import current, find_entry
from headtohead.testing import INVARIANTS, Subject, check, tiny_config
from headtohead.testing.verdict import beyond, outside, within, worst
from made import case_table

INVARIANT = {invariant.name: invariant for invariant in INVARIANTS}
HIDDEN_PADDING = {"pad-columns", "pad-content", "batch-of-one"}
CAUSAL = {"causality", "cached-decoding"}

NO_DRAWS = {"sampled-positions"}
NOT_APPLYING = {
    ("alibi", "causal"): NO_DRAWS | HIDDEN_PADDING | {"limit", "source-mirror"},
    ("none", "padding"): NO_DRAWS | CAUSAL | {"falls-with-distance", "limit"},
    ("learned", "none"): NO_DRAWS
    | CAUSAL
    | HIDDEN_PADDING
    | {"falls-with-distance", "joint-shift"},
    ("t5-relative", "prefix"): NO_DRAWS | CAUSAL | {"falls-with-distance", "limit"},
}


@case_table("names", NOT_APPLYING, ids="/".join, default=0)
def test_invariants_hold_within_their_domain(names):
    positional, masking = names
    verdicts = check(tiny_config(positional, masking=masking))
    assert set(verdicts) == {invariant.name for invariant in INVARIANTS}
    outside_domain = {
        name for name, verdict in verdicts.items() if verdict.state == "does not apply"
    }
    assert outside_domain == NOT_APPLYING[names]
    assert all(
        verdict.state == "holds" for name, verdict in verdicts.items() if name not in outside_domain
    )


def test_outside_its_domain_an_invariant_shows_the_predicted_failure():
    verdict = INVARIANT["causality"](Subject(tiny_config(masking="none")))
    assert verdict.state == "does not apply"
    assert verdict.number > 1e-3
    assert "as predicted, later tokens change earlier logits [" in str(verdict)


@pytest.mark.parametrize("chosen", [{"positional": "learned"}, {"attention": "random"}])
@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (1, "raises an exception at position {}, within its limit"),
        (-1, "computes position {}, beyond its limit"),
    ],
)
def test_a_limit_is_neither_too_large_nor_too_small(monkeypatch, chosen, offset, message):
    """The last position within the limit must work, so that an unrelated exception does not pass the check."""
    ((family, name),) = chosen.items()
    entry = find_entry(family, name).entry
    true = entry.limit(entry.Options())
    monkeypatch.setattr(entry, "limit", classmethod(lambda cls, options: true + offset))
    verdict = INVARIANT["limit"](Subject(tiny_config(**chosen)))
    assert verdict.state == "violated"
    assert message.format(true if offset > 0 else true - 1) in verdict.counterexample


class BiasTable(Positional):
    """A bias from a table of 6,000 positions."""

    @classmethod
    def limit(cls, options):
        return 6000

    def bias(self, query_positions, key_positions, role, layer):
        table = torch.zeros(self.limit(self.options))
        return (table[key_positions][:, None, :] - table[query_positions][:, :, None])[
            None, :, None
        ]


def test_a_bias_with_a_large_limit_is_called_beyond_the_limit(monkeypatch):
    entry = dataclasses.replace(
        find_entry("positional", "none"), name="bias-table", entry=BiasTable
    )
    monkeypatch.setitem(current().entries["positional"], "bias-table", entry)
    verdict = INVARIANT["limit"](Subject(tiny_config("bias-table")))
    assert verdict.state == "does not apply", str(verdict)


def test_nan_and_the_absence_of_a_predicted_failure_are_violations():
    for verdict in (
        within(math.nan, "x"),
        beyond(math.nan, "x"),
        outside("x", math.nan, "y"),
        outside("x", 0.0, "y"),
    ):
        assert verdict.state == "violated"


def test_the_worst_of_several_verdicts_is_the_violation():
    holds, violation, not_applying = within(0.0, "fine"), within(1.0, "off"), outside("x", 1.0, "y")
    assert worst(holds, violation, not_applying) is violation
    assert worst(not_applying, holds) is holds
    assert worst(not_applying, not_applying) is not_applying


def test_every_invariant_has_a_unique_name_and_a_statement():
    assert len({invariant.name for invariant in INVARIANTS}) == len(INVARIANTS)
    for invariant in INVARIANTS:
        assert invariant.statement.endswith(".")
        assert invariant.name == invariant.name.lower().replace(" ", "-").replace("_", "-")

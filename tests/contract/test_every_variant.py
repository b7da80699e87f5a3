"""Every invariant, over attention × positional × masking × mask value × role.

A registered entry is tested without further code. The default tier checks rows in which every value
occurs; the slow tier adds rows in which every two compatible values occur together. ``h2h check
--all`` checks all combinations. Fewer rows train stacks, see ``test_stacks.py``.
"""

import itertools

from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, tiny_config
from headtohead.testing.checks.pairwise import Compatibility, choices, factors, pairwise
from headtohead.testing.covering import covering, every_value
from headtohead.testing.invariants import PER_ENTRY, TRAINING
from made import case_table

REGISTRY = current()
FAMILIES = ("positional", "attention", "masking")
FACTORS = factors(REGISTRY)
is_compatible = Compatibility(REGISTRY)


def row_id(row):
    return "/".join(row.values())


PAIRWISE = pairwise(REGISTRY)
DEFAULT = every_value(PAIRWISE)


def first_of_each(rows):
    """Return the first row with each attention, with each masking and with each positional in each role."""
    seen, found = set(), []
    for row in rows:
        entries = {row["attention"], row["masking"], (row["positional"], row["role"])}
        if entries - seen:
            found.append(row)
        seen |= entries
    return found


ROWS = [*DEFAULT, *(row for row in PAIRWISE if row not in DEFAULT)]
FIRST = first_of_each(ROWS)
"""Rows that are asked for the invariants of a single entry, whose outcome no other entry changes."""


@case_table("row", ROWS, ids=row_id, default=len(DEFAULT))
def test_no_invariant_has_an_unexpected_violation(row):
    subject = Subject(tiny_config(**choices(row, REGISTRY)))
    omitted = TRAINING if row in FIRST else PER_ENTRY
    verdicts = {invariant.name: invariant(subject) for invariant in INVARIANTS if invariant.name not in omitted}
    violations = {name: verdict for name, verdict in verdicts.items() if verdict.state == "violated"}
    assert {name: str(verdict) for name, verdict in violations.items() if verdict.cause is None} == {}
    assert set(violations) <= REGISTRY.attention(row["attention"]).known_violations


def test_every_two_compatible_entries_occur_together():
    pairs = {(a, row[a], b, row[b]) for row in PAIRWISE for a, b in itertools.combinations(FACTORS, 2)}
    for a, b in itertools.combinations(FAMILIES, 2):
        for first, second in itertools.product(FACTORS[a], FACTORS[b]):
            if is_compatible({a: first, b: second}):
                assert (a, first, b, second) in pairs


def test_the_default_tier_checks_every_entry_every_mask_value_and_every_role():
    for name, values in FACTORS.items():
        assert {row[name] for row in DEFAULT} == set(values)
    assert len(DEFAULT) < len(PAIRWISE) / 4


def test_a_covering_contains_every_allowed_pair_and_no_other_pair():
    factors = {"a": [1, 2, 3], "b": [1, 2], "c": [1, 2, 3]}

    def allowed(row):
        return not (row.get("a") == 1 and row.get("b") == 1)

    rows = covering(factors, allowed)
    assert all(allowed(row) for row in rows)
    for a, b in itertools.combinations(factors, 2):
        for first, second in itertools.product(factors[a], factors[b]):
            covered = any(row[a] == first and row[b] == second for row in rows)
            assert covered == allowed({a: first, b: second})
    assert len(rows) < 3 * 2 * 3

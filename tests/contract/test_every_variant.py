"""Every invariant, over attention × positional × masking × mask value × role.

A registered entry is tested without further code. The default tier checks rows in which every value
occurs; the slow tier adds rows in which every two compatible values occur together. Fewer rows
train stacks, see ``test_stacks.py``.
"""

import itertools
from functools import cache

import pytest

from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, tiny_config
from headtohead.testing.invariants import PER_ENTRY, TRAINING
from made.array import choices, compatibility, covering, factors

pytestmark = pytest.mark.timeout(600)  # of the slow tier: the module starts early
REGISTRY = current()
FAMILIES = ("positional", "attention", "masking")
FACTORS = factors(REGISTRY)
is_compatible = compatibility()
PER_PAIR = {invariant.name for invariant in INVARIANTS} - PER_ENTRY


@cache
def array(size):
    """Return rows in which every value of a factor occurs, and for size 2 every two compatible values.

    Not computed during collection, which every worker repeats.
    """
    return covering(FACTORS, is_compatible, size, first=array(1) if size == 2 else ())


def first_rows():
    """Return the first rows of the array with each entry, each role, and each encoding in several roles at once."""
    seen, first = set(), []
    for row in array(2):
        entries = {row["attention"], row["masking"], row["role"]}
        if row["role"] in ("as its name means", "every role"):
            entries.add((row["positional"], row["role"]))
        if entries - seen:
            first.append(row)
        seen |= entries
    return first


def unexpected(rows, attention, names):
    """Return the undeclared violations in the rows with a style."""
    found = {}
    for row in (row for row in rows if row["attention"] == attention):
        subject = Subject(tiny_config(**choices(row)))
        for invariant in (invariant for invariant in INVARIANTS if invariant.name in names):
            verdict = invariant(subject)
            if verdict.state == "violated" and not verdict.cause:
                found["/".join(row.values()), invariant.name] = str(verdict)
    return found


@pytest.mark.parametrize("attention", FACTORS["attention"])
def test_no_combination_has_an_unexpected_violation(attention):
    assert unexpected(array(1), attention, PER_PAIR) == {}


@pytest.mark.slow
@pytest.mark.parametrize("attention", FACTORS["attention"])
def test_no_pair_of_entries_has_an_unexpected_violation(attention):
    assert unexpected(array(2)[len(array(1)) :], attention, PER_PAIR) == {}


@pytest.mark.slow
@pytest.mark.parametrize("attention", FACTORS["attention"])
def test_no_entry_has_an_unexpected_violation(attention):
    assert unexpected(first_rows(), attention, PER_ENTRY - TRAINING) == {}


@pytest.mark.slow
def test_every_two_compatible_entries_occur_together():
    pairs = {
        (a, row[a], b, row[b]) for row in array(2) for a, b in itertools.combinations(FACTORS, 2)
    }
    for a, b in itertools.combinations(FAMILIES, 2):
        for first, second in itertools.product(FACTORS[a], FACTORS[b]):
            if is_compatible({a: first, b: second}):
                assert (a, first, b, second) in pairs


def test_the_default_tier_checks_every_entry_every_mask_value_and_every_role():
    for name, values in FACTORS.items():
        assert {row[name] for row in array(1)} == set(values)
    assert len(array(1)) < 2 * max(map(len, FACTORS.values()))


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

"""Every invariant, over attention × positional × masking × fill × role.

A new entry is tested by being registered. The default tier checks rows in which every choice
occurs; the slow tier adds the rows in which every two choices with a meaning meet. ``h2h check
--all`` checks all combinations. Fewer rows train stacks, see ``test_stacks.py``.
"""

import itertools

import pytest

from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, check, tiny_config
from headtohead.testing.covering import covering, every_value
from headtohead.testing.invariants import TRAINING
from headtohead.testing.invariants.parity import FILLS
from headtohead.tools.pitfalls.configurations import compatible_config, role_variants

REGISTRY = current()
FAMILIES = ("positional", "attention", "masking")
ROLES = ("as its name means", "every role", "the encoder only", "the decoder only", "the cross only")
FACTORS = {
    **{family: sorted(REGISTRY.entries[family]) for family in FAMILIES},
    "mask_value": list(FILLS),
    "role": list(ROLES),
}


def choices(row):
    """Return a row in the words of ``tiny_config``; the role is that of the positional."""
    names = {name: value for name, value in row.items() if name != "role"}
    if row["role"] != ROLES[0] and "positional" in row:
        names["positional"] = dict(role_variants("positional", row["positional"], REGISTRY))[row["role"]]
    return names


_defined = {}


def has_meaning(row):
    """Tell whether a row is defined, or the beginning of one in some role."""
    if "role" not in row:
        return any(has_meaning(row | {"role": role}) for role in ROLES)
    names = choices(row)
    key = str(sorted(names.items()))
    if key not in _defined:
        _defined[key] = compatible_config(names, REGISTRY)[0] is not None
    return _defined[key]


def written(row):
    return "/".join(row.values())


PAIRWISE = covering(FACTORS, has_meaning)
DEFAULT = every_value(PAIRWISE)
ROWS = [row if row in DEFAULT else pytest.param(row, marks=pytest.mark.slow) for row in PAIRWISE]


@pytest.mark.parametrize("row", ROWS, ids=written)
def test_no_invariant_is_broken(row):
    subject = Subject(tiny_config(**choices(row)))
    asked = [one for one in INVARIANTS if one.name not in TRAINING]
    verdicts = {one.name: one(subject) for one in asked}
    broken = {name: one for name, one in verdicts.items() if one.state == "broken"}
    assert {name: str(one) for name, one in broken.items() if one.because is None} == {}
    assert set(broken) <= REGISTRY.attention(row["attention"]).known_violations


def test_every_two_choices_with_a_meaning_meet():
    met = {(a, row[a], b, row[b]) for row in PAIRWISE for a, b in itertools.combinations(FACTORS, 2)}
    for a, b in itertools.combinations(FAMILIES, 2):
        for one, other in itertools.product(FACTORS[a], FACTORS[b]):
            if has_meaning({a: one, b: other}):
                assert (a, one, b, other) in met


def test_the_default_tier_checks_every_entry_every_fill_and_every_role():
    for name, values in FACTORS.items():
        assert {row[name] for row in DEFAULT} == set(values)
    assert len(DEFAULT) < len(PAIRWISE) / 4


def test_every_pair_of_a_covering_is_there_and_nothing_that_is_not_allowed():
    factors = {"a": [1, 2, 3], "b": [1, 2], "c": [1, 2, 3]}

    def allowed(row):
        return not (row.get("a") == 1 and row.get("b") == 1)

    rows = covering(factors, allowed)
    assert all(allowed(row) for row in rows)
    for a, b in itertools.combinations(factors, 2):
        for one, other in itertools.product(factors[a], factors[b]):
            meets = any(row[a] == one and row[b] == other for row in rows)
            assert meets == allowed({a: one, b: other})
    assert len(rows) < 3 * 2 * 3


def test_a_plain_variant_holds_all_over():
    states = {one.state for one in check(tiny_config("rotary")).values()}
    assert states == {"holds", "does not apply"}

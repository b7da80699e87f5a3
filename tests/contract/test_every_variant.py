"""Every invariant over every registered positional × attention × masking.

A new entry is tested by being registered. The training of stacks is dearer and asked of fewer:
see ``test_stacks.py``.
"""

import itertools

import pytest

from headtohead import plugins
from headtohead.testing import INVARIANTS, Subject, tiny_config

REGISTRY = plugins.current()
FAMILIES = ("positional", "attention", "masking")


def refused(positional, attention):
    return REGISTRY.attention(attention).refusal(REGISTRY.positional(positional))


GRID = [
    names
    for names in itertools.product(*(sorted(REGISTRY.entries[family]) for family in FAMILIES))
    if not refused(*names[:2])
]


def test_only_a_style_without_projections_refuses_an_encoding():
    pairs = itertools.product(REGISTRY.entries["positional"], REGISTRY.entries["attention"])
    assert {names for names in pairs if refused(*names)} == {
        ("alibi", "embedding-softmax"), ("rotary", "embedding-softmax"),
    }  # fmt: skip


@pytest.mark.parametrize("names", GRID, ids="/".join)
def test_no_invariant_is_broken(names):
    subject = Subject(tiny_config(*names))
    asked = [one for one in INVARIANTS if one.name != "stacking"]
    verdicts = {one.name: one(subject) for one in asked}
    broken = {name: one for name, one in verdicts.items() if one.state == "broken"}
    assert {name: str(one) for name, one in broken.items() if one.because is None} == {}
    assert set(broken) <= REGISTRY.attention(names[1]).breaks

"""Every invariant over every registered positional × attention × masking.

A new entry is tested by being registered. The training of stacks is dearer and asked of fewer:
see ``test_stacks.py``.
"""

import itertools

import pytest

from headtohead import plugins
from headtohead.testing import INVARIANTS, Subject, tiny_config

REGISTRY = plugins.current()
GRID = list(
    itertools.product(
        *(sorted(REGISTRY.entries[family]) for family in ("positional", "attention", "masking"))
    )
)


@pytest.mark.parametrize("names", GRID, ids="/".join)
def test_no_invariant_is_broken(names):
    subject = Subject(tiny_config(*names))
    asked = [one for one in INVARIANTS if one.name != "stacking"]
    verdicts = {one.name: one(subject) for one in asked}
    broken = {name: str(one) for name, one in verdicts.items() if one.state == "broken"}
    assert broken == {}

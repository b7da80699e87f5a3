"""Every invariant over every registered positional × attention × masking.

A new entry is tested by being registered. The training of stacks is dearer and asked of fewer:
see ``test_stacks.py``.
"""

import itertools

import pytest

from headtohead import plugins
from headtohead.testing.contracts import VariantContract
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.tiny import tiny_config

REGISTRY = plugins.current()
GRID = list(
    itertools.product(
        *(sorted(REGISTRY.entries[family]) for family in ("positional", "attention", "masking"))
    )
)


class TestEveryVariant(VariantContract):
    @pytest.fixture(params=GRID, ids="/".join)
    def config(self, request):
        return tiny_config(*request.param)

    @pytest.mark.parametrize(
        "invariant",
        [one for one in INVARIANTS if one.name != "stacking"],
        ids=lambda one: one.name,
    )
    def test_invariant_is_not_broken(self, invariant, subject):
        super().test_invariant_is_not_broken(invariant, subject)

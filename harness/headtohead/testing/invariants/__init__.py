"""All invariants, one topic per file."""

from __future__ import annotations

from itertools import chain
from types import ModuleType

from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import (
    arithmetic,
    attention_weights,
    decoding,
    gradients,
    isolation,
    masks,
    model_state,
    positions,
    tokens,
    trained_stacks,
)

_TOPICS = (
    masks,
    tokens,
    isolation,
    positions,
    attention_weights,
    decoding,
    gradients,
    arithmetic,
    model_state,
    trained_stacks,
)


def _invariants_of(topic: ModuleType) -> list[Invariant]:
    return [value for value in vars(topic).values() if isinstance(value, Invariant)]


INVARIANTS: tuple[Invariant, ...] = tuple(chain.from_iterable(map(_invariants_of, _TOPICS)))

TRAINING = frozenset(invariant.name for invariant in INVARIANTS if invariant.scope == "training")
"""Names of invariants that train stacks; they cost as much as all others together."""

PER_ENTRY = frozenset(
    invariant.name for invariant in INVARIANTS if invariant.scope != "combination"
)
"""Names of invariants whose verdict on an entry does not depend on the entries of other families."""

"""The properties that entries declare, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.plugins.attention import Attention
from headtohead.plugins.entry import Entry
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.small import THE_ROLE

SENTENCES = {
    "order-invariant": "an encoder without mask is a bag of words",
    "relative": "shifting all positions changes nothing",
    "mirror-invariant": "reversing the source changes nothing in the encoder",
    "falls-with-distance": "on equal tokens, weights fall with distance",
    "hides-future": "no key after the query is attended to",
    "hides-padding": "no padding is attended to",
    "shows-the-rest": "every other key is attended to",
    "distribution": "weights of a row are positive and sum to 1",
    "positive": "weights are positive, and a row need not sum to 1",
    "signed": "weights may be negative",
}


def properties(entry: type[Entry]) -> list[str]:
    """Return the properties that an entry declares and the invariants test."""
    if issubclass(entry, Positional):
        return [_sentence(name) for name in sorted(entry.properties)]
    if issubclass(entry, Attention):
        return list(_of_attention(entry))
    if issubclass(entry, Masking):
        return list(_of_masking(entry))
    return []


def _of_attention(entry: type[Attention]) -> Iterator[str]:
    yield _sentence(entry.weights)
    if entry.position_dependent:
        yield "scores depend on positions without any encoding"
    if entry.map_note:
        yield f"maps: {entry.map_note}"
    if entry.known_violations:
        yield f"known violations: {', '.join(sorted(entry.known_violations))}"


def _of_masking(entry: type[Masking]) -> Iterator[str]:
    masking = entry(entry.Options())
    by_role = {role: masking.role_properties(role) for role in ROLES}
    every = {promise for found in by_role.values() for promise in found or ()}
    for promise in sorted(every):
        roles = [role for role, found in by_role.items() if promise in (found or ())]
        where = "" if len(roles) == len(ROLES) else f", in {' and '.join(THE_ROLE[role] for role in roles)}"
        yield f"{_sentence(promise)}{where}"


def _sentence(name: str) -> str:
    return f"{name}: {SENTENCES[name]}" if name in SENTENCES else name

"""What entries promise, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.plugins.attention import Attention
from headtohead.plugins.entry import Entry
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.small import THE_ROLE

SENTENCES = {
    "order-blind": "an encoder that sees everything is a bag of words",
    "relative": "moving all positions alike changes nothing",
    "mirror-blind": "an encoder cannot tell a sentence from its mirror image",
    "falls-with-distance": "on equal tokens, weights fall with distance",
    "hides-future": "no key after the query is seen",
    "hides-padding": "no key beyond the length is seen",
    "shows-the-rest": "every other key is seen",
    "distribution": "weights of a row are positive and sum to 1",
    "positive": "weights are positive, and a row need not sum to 1",
    "signed": "weights may be negative",
}


def promises(entry: type[Entry]) -> list[str]:
    """Return what an entry means to be, which the invariants hold it to."""
    if issubclass(entry, Positional):
        return [_sentence(name) for name in sorted(entry.promises)]
    if issubclass(entry, Attention):
        return list(_of_attention(entry))
    if issubclass(entry, Masking):
        return list(_of_masking(entry))
    return []


def _of_attention(entry: type[Attention]) -> Iterator[str]:
    yield _sentence(entry.weights)
    if entry.hears_places:
        yield "scores depend on places without any encoding"
    if entry.map_note:
        yield f"maps: {entry.map_note}"
    if entry.breaks:
        yield f"known to break: {', '.join(sorted(entry.breaks))}"


def _of_masking(entry: type[Masking]) -> Iterator[str]:
    masking = entry(entry.Options())
    by_role = {role: masking.promised(role) for role in ROLES}
    every = {promise for found in by_role.values() for promise in found or ()}
    for promise in sorted(every):
        roles = [role for role, found in by_role.items() if promise in (found or ())]
        where = "" if len(roles) == len(ROLES) else f", in {' and '.join(THE_ROLE[role] for role in roles)}"
        yield f"{_sentence(promise)}{where}"


def _sentence(name: str) -> str:
    return f"{name}: {SENTENCES[name]}" if name in SENTENCES else name

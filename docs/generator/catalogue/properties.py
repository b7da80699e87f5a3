"""The properties that entries declare, in words."""

from __future__ import annotations

from collections.abc import Iterator

from catalogue.small_model import IN_ROLE, small_roles
from headtohead.plugins.attention import Attention
from headtohead.plugins.entry import Entry
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional

DESCRIPTIONS = {
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


def describe_properties(entry: type[Entry]) -> Iterator[str]:
    """Yield the properties that an entry declares and the invariants test."""
    if issubclass(entry, Positional):
        yield from map(_describe, sorted(entry.properties))
    elif issubclass(entry, Attention):
        yield _describe(entry.weights)
        if entry.position_dependent:
            yield "scores depend on positions without any encoding"
        elif entry.depends_on_order(entry.Options()):
            yield "outputs depend on the order of tokens without any encoding"
        if entry.map_note:
            yield f"maps: {entry.map_note}"
        if entry.known_violations:
            yield f"known violations: {', '.join(sorted(entry.known_violations))}"
    elif issubclass(entry, Masking):
        masking = entry(entry.Options())
        by_role = {role: masking.role_properties(role) or frozenset() for role in small_roles()}
        for name in sorted(frozenset().union(*by_role.values())):
            roles = [role for role in small_roles() if name in by_role[role]]
            where = (
                ""
                if len(roles) == len(small_roles())
                else f", {' and '.join(IN_ROLE[role] for role in roles)}"
            )
            yield f"{_describe(name)}{where}"


def _describe(name: str) -> str:
    return f"{name}: {DESCRIPTIONS[name]}" if name in DESCRIPTIONS else name

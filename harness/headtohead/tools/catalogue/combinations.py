"""What goes with what: asked of the entries as a plan asks them, role by role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.small import THE_ROLE, reason_against

FAMILIES = ("positional", "attention", "masking")
PLAIN = {
    "positional": dict.fromkeys(ROLES, "none"),
    "attention": dict.fromkeys(ROLES, "split-heads"),
    "masking": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
}
ANY_SIZE = "single-head"
"""A style that fits every width and every number of heads."""
SIZES = (
    ("heads that do not divide the width (d_model 18, heads 4)", {"d_model": 18, "heads": 4}),
    ("an odd width of heads (d_model 12, heads 4)", {"d_model": 12, "heads": 4}),
    ("an odd number of heads (d_model 24, heads 3)", {"d_model": 24, "heads": 3}),
)
LONG = {"source": 10_000, "target": 10_000}
Pick = tuple[str, str]
"""Family and name."""


@dataclass(frozen=True)
class Combinations:
    """Every pair of entries of two families in every role, asked once.

    Args:
        registry: Where entries are looked up.
        entries: The ones to combine.
    """

    registry: Registry
    entries: Sequence[Registered]

    def alone(self, one: Pick, role: str) -> str | None:
        """Return why an entry has no meaning in a role, beside plain entries."""
        return self._roles[one, role]

    def where(self, one: Pick) -> list[str]:
        """Return the roles in which an entry has a meaning."""
        return [role for role in ROLES if self.alone(one, role) is None]

    def not_with(self, one: Pick) -> Iterator[str]:
        """Yield sentences: what does not go with an entry, where, and why."""
        grouped: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
        for (first, second, role), reason in self._pairs.items():
            if reason is None or one not in (first, second):
                continue
            family, name = second if first == one else first
            # Entries name their partner's class, which is all that sets equal reasons apart.
            reason = reason.replace(self.registry.find(family, name).entry.__name__, "it")
            names, roles = grouped.setdefault((family, reason), ([], []))
            names += [name] if name not in names else []
            roles += [role] if role not in roles else []
        for (family, reason), (names, roles) in grouped.items():
            where = "" if len(roles) == 3 else f" in {' and '.join(_words(roles))}"
            listed = ", ".join(f"`{name}`" for name in names)
            yield f"{family} {listed}{where}: {reason}"

    def sizes_refused(self, one: Pick) -> Iterator[str]:
        """Yield sentences: sizes at which an entry has no meaning and a plain one has."""
        family, name = one
        role = next(iter(self.where(one)), None)
        if role is None or family == "masking":
            return
        plain = {"positional": PLAIN["positional"], "attention": dict.fromkeys(ROLES, ANY_SIZE)}
        asked = {**plain, family: {**plain[family], role: name}}
        for words, model in SIZES:
            reason = reason_against(asked, self.registry, model=model)
            if reason is not None:
                yield f"{words}: {reason}"
        reason = reason_against(asked, self.registry, LONG)
        if reason is not None:
            yield f"sentences of 10,000 tokens: {reason}"

    @cached_property
    def _roles(self) -> dict[tuple[Pick, str], str | None]:
        return {
            ((one.family, one.name), role): reason_against(
                {one.family: {**PLAIN[one.family], role: one.name}}, self.registry
            )
            for one in self.entries
            if one.family in FAMILIES
            for role in ROLES
        }

    @cached_property
    def _pairs(self) -> dict[tuple[Pick, Pick, str], str | None]:
        found: dict[tuple[Pick, Pick, str], str | None] = {}
        picks = [(one.family, one.name) for one in self.entries if one.family in FAMILIES]
        for first, second in combinations(picks, 2):
            if first[0] == second[0]:
                continue
            for role in ROLES:
                if self._roles[first, role] is None and self._roles[second, role] is None:
                    families = {family: {**PLAIN[family], role: name} for family, name in (first, second)}
                    found[first, second, role] = reason_against(families, self.registry)
        return found


def _words(roles: Sequence[str]) -> list[str]:
    return [THE_ROLE[role] for role in roles]

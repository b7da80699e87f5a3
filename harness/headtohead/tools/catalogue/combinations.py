"""Which entries are compatible, role by role, by the rules of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.small import THE_ROLE, reason_against

FAMILIES = ("positional", "attention", "masking")
DEFAULT = {
    "positional": dict.fromkeys(ROLES, "none"),
    "attention": dict.fromkeys(ROLES, "split-heads"),
    "masking": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
}
ANY_SIZE = "single-head"
"""A style that accepts every width and every number of heads."""
SIZES = (
    ("heads that do not divide the width (d_model 18, heads 4)", {"d_model": 18, "heads": 4}),
    ("an odd width of heads (d_model 12, heads 4)", {"d_model": 12, "heads": 4}),
    ("an odd number of heads (d_model 24, heads 3)", {"d_model": 24, "heads": 3}),
)
LONG = {"source": 10_000, "target": 10_000}
EntryName = tuple[str, str]
"""Family and name."""


@dataclass(frozen=True)
class Combinations:
    """The compatibility of every pair of entries of two families, in every role.

    Args:
        registry: Where entries are looked up.
        entries: The entries to combine.
    """

    registry: Registry
    entries: Sequence[Registered]

    def alone(self, entry: EntryName, role: str) -> str | None:
        """Return why an entry is incompatible with a role, beside default entries, or None."""
        return self._roles[entry, role]

    def where(self, entry: EntryName) -> list[str]:
        """Return the roles that an entry is compatible with."""
        return [role for role in ROLES if self.alone(entry, role) is None]

    def not_with(self, entry: EntryName) -> Iterator[str]:
        """Yield a sentence per incompatibility of an entry: with what, in which roles, and why."""
        grouped: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
        for (first, second, role), reason in self._pairs.items():
            if reason is None or entry not in (first, second):
                continue
            family, name = second if first == entry else first
            # Reasons that differ only in the name of the partner's class are grouped.
            reason = reason.replace(self.registry.find(family, name).entry.__name__, "it")
            names, roles = grouped.setdefault((family, reason), ([], []))
            names += [name] if name not in names else []
            roles += [role] if role not in roles else []
        for (family, reason), (names, roles) in grouped.items():
            where = "" if len(roles) == 3 else f" in {' and '.join(THE_ROLE[role] for role in roles)}"
            listed = ", ".join(f"`{name}`" for name in names)
            yield f"{family} {listed}{where}: {reason}"

    def sizes_refused(self, entry: EntryName) -> Iterator[str]:
        """Yield a sentence per model size or sentence length that an entry is incompatible with."""
        family, name = entry
        role = next(iter(self.where(entry)), None)
        if role is None or family == "masking":
            return
        default = {"positional": DEFAULT["positional"], "attention": dict.fromkeys(ROLES, ANY_SIZE)}
        asked = {**default, family: {**default[family], role: name}}
        for size, model in SIZES:
            reason = reason_against(asked, self.registry, model=model)
            if reason is not None:
                yield f"{size}: {reason}"
        reason = reason_against(asked, self.registry, LONG)
        if reason is not None:
            yield f"sentences of 10,000 tokens: {reason}"

    @cached_property
    def _roles(self) -> dict[tuple[EntryName, str], str | None]:
        return {
            ((one.family, one.name), role): reason_against(
                {one.family: {**DEFAULT[one.family], role: one.name}}, self.registry
            )
            for one in self.entries
            if one.family in FAMILIES
            for role in ROLES
        }

    @cached_property
    def _pairs(self) -> dict[tuple[EntryName, EntryName, str], str | None]:
        found: dict[tuple[EntryName, EntryName, str], str | None] = {}
        names = [(one.family, one.name) for one in self.entries if one.family in FAMILIES]
        for first, second in combinations(names, 2):
            if first[0] == second[0]:
                continue
            for role in ROLES:
                if self._roles[first, role] is None and self._roles[second, role] is None:
                    families = {family: {**DEFAULT[family], role: name} for family, name in (first, second)}
                    found[first, second, role] = reason_against(families, self.registry)
        return found

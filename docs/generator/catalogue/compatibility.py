"""The compatibility of entries in every role, by the rules of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations

from catalogue.small_model import (
    DEFAULTS,
    IN_ROLE,
    ROLE_NAMES,
    in_role,
    incompatibility,
    small_roles,
)
from headtohead.plugins.registry import Registered, find_entry

FLEXIBLE_STYLE = "single-head"
"""An attention style that supports every width and every number of heads."""
UNUSUAL_SIZES = (
    ("heads that do not divide the width (d_model 18, heads 4)", {"d_model": 18, "heads": 4}),
    ("an odd width of heads (d_model 12, heads 4)", {"d_model": 12, "heads": 4}),
    ("an odd number of heads (d_model 24, heads 3)", {"d_model": 24, "heads": 3}),
)
LONG = {"source": 10_000, "target": 10_000}
EntryName = tuple[str, str]
"""Family and name."""


class CompatibilityTable:
    """The incompatibilities of every entry, by itself and with entries of other families.

    Args:
        entries: The entries; those of other families are ignored.
    """

    def __init__(self, entries: Sequence[Registered]) -> None:
        self.names: list[EntryName] = [
            (entry.family, entry.name) for entry in entries if entry.family in DEFAULTS
        ]

    def roles(self, entry: EntryName) -> list[str]:
        """Return the roles that an entry is compatible with."""
        return [role for role in small_roles() if self._by_role[entry, role] is None]

    def describe(self, entry: EntryName) -> Iterator[str]:
        """Yield a sentence for each incompatibility: roles, other entries, model sizes, sentence lengths."""
        for role in small_roles():
            reason = self._by_role[entry, role]
            if reason is not None:
                yield f"{ROLE_NAMES[role]}: {reason}"
        yield from self._other_entries(entry)
        yield from self._sizes(entry)

    def _other_entries(self, entry: EntryName) -> Iterator[str]:
        grouped: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
        for (first, second, role), reason in self._by_pair.items():
            if reason is None or entry not in (first, second):
                continue
            family, name = second if first == entry else first
            # Reasons that differ only in the class name of the other entry are grouped.
            reason = reason.replace(find_entry(family, name).entry.__name__, "it")
            names, roles = grouped.setdefault((family, reason), ([], []))
            names += [name] if name not in names else []
            roles += [role] if role not in roles else []
        for (family, reason), (names, roles) in grouped.items():
            where = (
                ""
                if len(roles) == len(small_roles())
                else f" {' and '.join(IN_ROLE[role] for role in roles)}"
            )
            yield f"{family} {', '.join(f'`{name}`' for name in names)}{where}: {reason}"

    def _sizes(self, entry: EntryName) -> Iterator[str]:
        family, name = entry
        roles = self.roles(entry)
        if not roles or family == "masking":
            return
        attention = dict.fromkeys(small_roles(), FLEXIBLE_STYLE)
        families = {"positional": DEFAULTS["positional"], "attention": attention}
        families[family] = {**families[family], roles[0]: name}
        for description, model in UNUSUAL_SIZES:
            reason = incompatibility(families, model=model)
            if reason is not None:
                yield f"{description}: {reason}"
        reason = incompatibility(families, LONG)
        if reason is not None:
            yield f"sentences of 10,000 tokens: {reason}"

    @cached_property
    def _by_role(self) -> dict[tuple[EntryName, str], str | None]:
        return {
            (entry, role): incompatibility(in_role(*entry, role))
            for entry in self.names
            for role in small_roles()
        }

    @cached_property
    def _by_pair(self) -> dict[tuple[EntryName, EntryName, str], str | None]:
        return {
            (first, second, role): incompatibility(in_role(*first, role) | in_role(*second, role))
            for first, second in combinations(self.names, 2)
            if first[0] != second[0]
            for role in small_roles()
            if self._by_role[first, role] is None and self._by_role[second, role] is None
        }

"""The configurations in which the invariants of an entry are evaluated.

An entry of one family stands beside plain choices of the others, and beside every other registered
choice, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headtohead.config.builder import FAMILIES
from headtohead.model.geometry import only_length
from headtohead.planning.compatibility import undefined_reason
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.testing import tiny_config
from headtohead.testing.subject import SOURCE_LENGTHS, TARGET_LENGTHS

PLAIN = "plain choices"


def surroundings(one: Registered, registry: Registry) -> Iterator[tuple[str, RunConfig]]:
    """Yield every configuration that an entry is compatible with, and the name of its other choices.

    It is asked in the roles that its bare name means, in all three, and in each by itself.
    """
    choices: list[tuple[str, dict[str, Any]]] = [(PLAIN, {one.family: one.name})]
    choices += [
        (f"{one.family} in {where}", {one.family: roles}) for where, roles in by_role(one.family, one.name, registry)
    ]
    choices += [
        (f"{family} {name}", {one.family: one.name, family: name})
        for family in FAMILIES
        if family != one.family
        for name in sorted(registry.entries[family])
    ]
    seen = set()
    for beside, names in choices:
        config = defined(names, registry)
        text = "" if config is None else config.model_dump_json()
        if config is not None and text not in seen:
            seen.add(text)
            yield beside, config


def defined(names: Mapping[str, Any], registry: Registry) -> RunConfig | None:
    """Return the small configuration of the given choices, or None if they are incompatible.

    Args:
        names: By family, and fields of the section ``model`` by name.
        registry: Where they are looked up.

    Raises:
        HeadToHeadError: If an entry must be told more.
    """
    config = tiny_config(**names)
    refusal = undefined_reason(config, _longest(config), registry)
    return config if refusal is None else None


def refusal_of(names: Mapping[str, Any], registry: Registry) -> str | None:
    """Return why a small configuration is incompatible, or None."""
    config = tiny_config(**names)
    return undefined_reason(config, _longest(config), registry)


def is_by_role(beside: str) -> bool:
    """Return whether all other choices are the defaults."""
    return beside == PLAIN or " in " in beside


def by_role(family: str, name: str, registry: Registry) -> list[tuple[str, dict[str, str]]]:
    """Return an entry in all roles, and in each role alone with default choices elsewhere.

    A masking is asked in the roles alone in which its bare name means itself: a causal one hides
    source words from the first places of the target.
    """
    plain = {
        "positional": dict.fromkeys(ROLES, "none"),
        "attention": dict.fromkeys(ROLES, "split-heads"),
        "masking": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
    }[family]
    role_defaults = registry.find(family, name).entry.role_defaults if family == "masking" else {}
    roles = [role for role in ROLES if role_defaults.get(role, name) == name]
    alone = [(f"the {role} alone", {**plain, role: name}) for role in roles]
    return [("every role", {**plain, **dict.fromkeys(roles, name)}), *alone]


def _longest(config: RunConfig) -> dict[str, int]:
    """Return the tokens of the sentences used; the last token is a label only."""
    read = only_length(config) or max(max(row) for row in TARGET_LENGTHS)
    return {"source": max(max(row) for row in SOURCE_LENGTHS), "target": read + 1}

"""Choices that are known to break an invariant, and are kept because somebody made them.

Beside such a choice a broken invariant is no fault of the code: its verdict names the choice.
"""

from __future__ import annotations

from headtohead.plugins.registry import current
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig


def consequences(config: RunConfig) -> dict[str, str]:
    """Return the invariants that a configuration may break, each with the choice that does it."""
    found: dict[str, str] = {}
    if config.quirks.cross_attention_memory == "decoder":
        found |= dict.fromkeys(("hears-source", "gradients"), "quirks.cross_attention_memory: decoder")
    for role in ROLES:
        found |= _of_positions(config, role) | _of_style(config, role)
        for family in ("positional", "attention", "masking"):
            found |= _of_options(config, family, role)
    return found


def _of_options(config: RunConfig, family: str, role: str) -> dict[str, str]:
    chosen = getattr(config, family).role(role)
    entry = current().find(family, chosen.name).entry
    broken = entry.violations_by_option(entry.Options.model_validate(chosen.options))
    return {name: f"{family}.{role}.{option}" for name, option in broken.items()}


def _of_positions(config: RunConfig, role: str) -> dict[str, str]:
    chosen = config.positional.role(role)
    entry = current().positional(chosen.name)
    if entry.index(entry.Options.model_validate(chosen.options)) == "time":
        return {}
    heard = ("source-order", "source-mirror") if role == "encoder" else ()
    return dict.fromkeys(("batch-of-one", *heard), f"positional.{role} counts rows of the batch")


def _of_style(config: RunConfig, role: str) -> dict[str, str]:
    name = config.attention.role(role).name
    return dict.fromkeys(current().attention(name).known_violations, f"attention.{role}: {name}")

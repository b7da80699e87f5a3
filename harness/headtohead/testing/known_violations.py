"""Settings that are known to violate an invariant.

Such settings exist because published or taught code uses them. A verdict names the setting, and the
violation is not an error.
"""

from __future__ import annotations

from headtohead.plugins.registry import current
from headtohead.schema.roles import roles_of
from headtohead.schema.run_config import RunConfig


def known_violations(config: RunConfig) -> dict[str, str]:
    """Return the invariants that a configuration may violate, each with the setting that causes it."""
    causes: dict[str, str] = {}
    if config.quirks.cross_attention_memory == "decoder":
        causes |= dict.fromkeys(("source-reaches-logits", "gradients"), "quirks.cross_attention_memory: decoder")
    for role in roles_of(config):
        causes |= _by_row_positions(config, role) | _by_style(config, role)
        for family in ("positional", "attention", "masking"):
            causes |= _by_options(config, family, role)
    return causes


def _by_options(config: RunConfig, family: str, role: str) -> dict[str, str]:
    chosen = getattr(config, family).role(role)
    entry = current().find(family, chosen.name).entry
    options = entry.violations_by_option(chosen.options)
    return {invariant: f"{family}.{role}.{option}" for invariant, option in options.items()}


def _by_row_positions(config: RunConfig, role: str) -> dict[str, str]:
    chosen = config.positional.role(role)
    if current().positional(chosen.name).index(chosen.options) == "time":
        return {}
    order = ("source-order", "source-mirror") if role == "encoder" else ()
    return dict.fromkeys(("batch-of-one", *order), f"positional.{role}, which counts rows of the batch")


def _by_style(config: RunConfig, role: str) -> dict[str, str]:
    name = config.attention.role(role).name
    return dict.fromkeys(current().attention(name).known_violations, f"attention.{role}: {name}")

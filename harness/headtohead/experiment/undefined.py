"""Which variants have no meaning: asked of every entry in every role, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from headtohead.errors import HeadToHeadError
from headtohead.experiment.draft import FAMILIES
from headtohead.experiment.schema import RunConfig
from headtohead.families.entry import ROLES, Entry, Options, Setting
from headtohead.plugins import Registered, Registry


def undefined_reason(
    config: RunConfig, longest: Mapping[str, int], registry: Registry
) -> str | None:
    """Return the first reason why a configuration cannot be trained, or None.

    Args:
        config: A resolved configuration.
        longest: Tokens of the longest sentence by side, boundary tokens included.
        registry: Where the entries are looked up.
    """
    return _misfit(config, registry) or _refusal(config, longest, registry)


def _misfit(config: RunConfig, registry: Registry) -> str | None:
    """Ask each attention for its geometry; numbers that do not fit are the user's."""
    for role in ROLES:
        chosen = config.attention.role(role)
        style = registry.attention(chosen.name)
        try:
            style.geometry(style.Options.model_validate(chosen.options), config.model)
        except HeadToHeadError as error:
            return str(error)
    return None


def _refusal(config: RunConfig, longest: Mapping[str, int], registry: Registry) -> str | None:
    for family in FAMILIES:
        for role in ROLES:
            chosen = getattr(config, family).role(role)
            found = registry.find(family, chosen.name)
            options = found.entry.Options.model_validate(chosen.options)
            reason = _ask(found, options, Setting(config, role, longest))
            reason = reason or _too_long(found.entry, options, role, longest, chosen.name)
            if reason:
                return reason
    return None


def _ask(found: Registered, options: Options, setting: Setting) -> str | None:
    try:
        return found.entry.undefined_for(options, setting)
    except HeadToHeadError as error:
        return str(error)
    except Exception as error:
        raise HeadToHeadError(
            f"plugin '{found.module}' ({found.distribution}): undefined_for of {found.family} "
            f"'{found.name}' raised {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


def _too_long(
    entry: type[Entry], options: Options, role: str, longest: Mapping[str, int], name: str
) -> str | None:
    """Compare an encoding's limit with the data, for entries that only declare the limit."""
    limit = entry.limit(options) if hasattr(entry, "limit") else None
    sides = {"encoder": ("source",), "decoder": ("target",), "cross": ("source", "target")}[role]
    for side in sides:
        if limit is not None and longest.get(side, 0) > limit:
            return f"{name} has {limit} positions and the longest {side} has {longest[side]} tokens"
    return None

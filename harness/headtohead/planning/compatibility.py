"""Which variants have no meaning: asked of every entry in every role, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headtohead.config.builder import FAMILIES
from headtohead.errors import HeadToHeadError
from headtohead.model.bounds import find_bound
from headtohead.model.fit import misfit
from headtohead.model.geometry import only_length
from headtohead.plugins.entry import Options, Setting
from headtohead.plugins.positional import Part
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import STEPWISE, RunConfig


def undefined_reason(config: RunConfig, longest: Mapping[str, int], registry: Registry) -> str | None:
    """Return the first reason why a configuration cannot be trained, or None.

    Args:
        config: A resolved configuration.
        longest: Tokens of the longest sentence by side, boundary tokens included.
        registry: Where the entries are looked up.
    """
    reached = reach(config, longest)
    return (
        _misfit(config, registry)
        or _untrainable(config, longest)
        or _undecodable(config)
        or _refusal(config, reached, registry)
    )


def uneven(config: RunConfig, tokens: Iterable[int]) -> str | None:
    """Return why targets of these lengths suit no decoder that reads one length alone, or None.

    Args:
        config: A configuration whose longest target the decoder reads.
        tokens: Of every target, boundary tokens included.
    """
    length = only_length(config)
    if length is None or config.quirks.pad_to != "batch":
        return None
    shortest, longest = min(lengths := set(tokens)), max(lengths)
    if shortest == longest:
        return None
    return (
        f"{config.attention.decoder.name} reads exactly {length} tokens, and targets have "
        f"{shortest} to {longest}; take targets of one length"
    )


def reach(config: RunConfig, longest: Mapping[str, int]) -> dict[str, int]:
    """Return the most tokens that a side can be made of, padding and empty targets included."""
    reached = dict(longest)
    if not reached:
        return reached
    train = config.train
    if train.batch_size is not None and config.quirks.pad_to != "batch":
        fixed = max(reached.values()) if config.quirks.pad_to == "corpus" else config.quirks.pad_to
        reached = {side: max(tokens, fixed) for side, tokens in reached.items()}
    if config.evaluate.decode == "non-autoregressive":
        reached["target"] = max(reached["target"], longest["source"])
    return reached


def _untrainable(config: RunConfig, longest: Mapping[str, int]) -> str | None:
    """Ask whether batches can be made, and whether they hold anything to predict."""
    train = config.train
    if config.quirks.pad_to != "batch" and train.batch_size is None:
        return f"pad_to {config.quirks.pad_to} needs batches of a number of sentences; set batch_size"
    if train.length_buckets != "coarse" and train.batch_size is not None:
        return f"length_buckets {train.length_buckets} needs batches of a number of tokens; leave batch_size out"
    if isinstance(config.quirks.pad_to, int):
        for side, tokens in longest.items():
            if tokens > config.quirks.pad_to:
                return (
                    f"pad_to {config.quirks.pad_to} is less than the {tokens} tokens of the longest "
                    f"{side}; set data.truncate_tokens: {config.quirks.pad_to}"
                )
    if config.quirks.shift_targets and longest.get("target", 2) < 2:
        return "no target has a second token, so there is nothing to predict; set quirks.shift_targets: false"
    if config.quirks.trainable == ():
        return "quirks.trainable is empty, so nothing is trained; set train.epochs: 0"
    return None


def _undecodable(config: RunConfig) -> str | None:
    decode = config.evaluate.decode
    if decode in STEPWISE and config.data.target_boundaries == "none":
        return (
            f"{decode} decoding has no start and no stop where data.target_boundaries is none; "
            "set evaluate.decode: none, non-autoregressive or teacher-forced"
        )
    return None


def _misfit(config: RunConfig, registry: Registry) -> str | None:
    """Ask each attention for its geometry; numbers that do not fit are the user's."""
    for role in ROLES:
        chosen = config.attention.role(role)
        style = registry.attention(chosen.name)
        try:
            geometry = style.geometry(style.Options.model_validate(chosen.options), config.model)
        except HeadToHeadError as error:
            return str(error)
        placed = config.positional.role(role)
        encoding = registry.positional(placed.name)
        acts = encoding.acts(encoding.Options.model_validate(placed.options))
        reason = misfit(encoding, acts, style, geometry, role)
        if reason:
            return reason
    return None


def _refusal(config: RunConfig, longest: Mapping[str, int], registry: Registry) -> str | None:
    for family in FAMILIES:
        for role in ROLES:
            chosen = getattr(config, family).role(role)
            found = registry.find(family, chosen.name)
            options = found.entry.Options.model_validate(chosen.options)
            reason = _ask(found, options, Setting(config, role, longest))
            if reason:
                return reason
            if issubclass(found.entry, Part):
                bound = find_bound(found.entry, options, family, role)
                reason = bound.reason(config, longest) if bound else None
            if reason:
                return reason
    return None


def _ask(found: Registered, options: Options, setting: Setting) -> str | None:
    try:
        return found.entry.incompatible_with(options, setting)
    except HeadToHeadError as error:
        return str(error)
    except Exception as error:
        raise HeadToHeadError(
            f"plugin '{found.module}' ({found.distribution}): incompatible_with of {found.family} "
            f"'{found.name}' raised {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error

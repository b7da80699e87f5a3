"""Find configurations that cannot run: check sizes, batches, decoding and plugin entries before any run starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headtohead.data.batches import padded_length
from headtohead.errors import HeadToHeadError
from headtohead.model.geometry import find_bound, geometry_of, incompatibility, only_length
from headtohead.plugins.component import Component
from headtohead.plugins.entry import Options, Setting
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registered, Registry
from headtohead.plugins.watched_reads import only_declared_reads
from headtohead.schema.run_config import RunConfig


def find_incompatibility(
    config: RunConfig, longest: Mapping[str, int], registry: Registry
) -> str | None:
    """Return the first reason why a configuration cannot run, or None.

    Args:
        config: A resolved configuration.
        longest: Tokens of the longest sentence by side, including boundary tokens. Empty if the data is not
            prepared yet; length checks are then skipped.
        registry: Provides the plugin entries.
    """
    reached = longest_sequences(config, longest)
    return (
        _geometry_incompatibility(config, registry)
        or _unusable(config, longest)
        or _entry_incompatibility(config, reached, registry)
    )


def find_unequal_lengths(config: RunConfig, tokens: Iterable[int]) -> str | None:
    """Return why these target lengths in tokens do not fit a decoder with a fixed input length, or None."""
    length = only_length(config)
    if length is None or config.quirks.pad_to != "batch":
        return None
    shortest, longest = min(lengths := set(tokens)), max(lengths)
    if shortest == longest:
        return None
    return (
        f"{config.attention.decoder.name} requires exactly {length} tokens, but targets have "
        f"{shortest} to {longest}; use targets of equal length"
    )


def longest_sequences(config: RunConfig, longest: Mapping[str, int]) -> dict[str, int]:
    """Return the maximum sequence length by side, including padding and everything else that a decoder reads."""
    reached = dict(longest)
    if not reached:
        return reached
    if padded := padded_length(config, longest):
        reached = {side: max(tokens, padded) for side, tokens in reached.items()}
    if config.evaluate.decode == "non-autoregressive":
        reached["target"] = max(reached["target"], longest["source"])
    if "encoder" not in config.roles:
        reached["target"] += reached["source"]  # the decoder reads both
    return reached


def _unusable(config: RunConfig, longest: Mapping[str, int]) -> str | None:
    """Return why batches cannot be built, contain no label or cannot be decoded, or None."""
    train, decode = config.train, config.evaluate.decode
    if "encoder" not in config.roles and (reason := _needs_encoder(config)):
        return (
            f"{reason}, which a decoder-only model lacks; set model.architecture: encoder-decoder"
        )
    if longest.get("source") == 0 and "encoder" in config.roles:
        return f"dataset '{config.data.dataset}' has no sources to encode; set model.architecture: decoder-only"
    if config.quirks.pad_to != "batch" and train.batch_size is None:
        return f"pad_to {config.quirks.pad_to} requires batches with a fixed number of sentences; set batch_size"
    if train.length_buckets != "coarse" and train.batch_size is not None:
        return f"length_buckets {train.length_buckets} requires batches with a number of tokens; remove batch_size"
    if isinstance(config.quirks.pad_to, int):
        for side, tokens in longest.items():
            if tokens > config.quirks.pad_to:
                return (
                    f"pad_to {config.quirks.pad_to} is less than the {tokens} tokens of the longest "
                    f"{side}; set data.truncate_tokens: {config.quirks.pad_to}"
                )
    if config.quirks.shift_targets and longest.get("target", 2) < 2:
        return "no target has a second token, so there is no label; set quirks.shift_targets: false"
    for shared in config.quirks.shared_modules:
        if (
            len(
                {
                    entry.model_dump_json()
                    for entry in config.entries(shared.replace("-", "_")).values()
                }
            )
            > 1
        ):
            return f"quirks.shared_modules: one {shared}, but encoder and decoder have different ones; set one entry"
    if config.quirks.trainable == ():
        return "quirks.trainable is empty, so no parameter is trained; set train.epochs: 0"
    if longest.get("source") == 0 and decode == "greedy":
        return f"dataset '{config.data.dataset}' has no sources to translate; leave evaluate.decode out"
    if decode == "greedy" and config.data.target_boundaries != "sos-eos":
        return (
            f"{decode} decoding requires start and end tokens, but data.target_boundaries is "
            f"{config.data.target_boundaries}; "
            "set evaluate.decode: none, non-autoregressive or teacher-forced"
        )
    return None


def _needs_encoder(config: RunConfig) -> str | None:
    """Return which setting requires an encoder or cross-attention, or None."""
    quirks = config.quirks
    needs = {
        "quirks.cross_attention_memory: decoder requires cross-attention": quirks.cross_attention_memory
        == "decoder",
        "quirks.decoder_feed_forward: after-each requires cross-attention": quirks.decoder_feed_forward
        == "after-each",
        f"quirks.pad_to: {quirks.pad_to} requires an encoder": quirks.pad_to != "batch",
        "evaluate.decode: non-autoregressive requires an encoder": config.evaluate.decode
        == "non-autoregressive",
        f"{config.attention.decoder.name} accepts a fixed number of target tokens and requires an encoder": only_length(
            config
        )
        is not None,
    }
    return next((need for need, applies in needs.items() if applies), None)


def _geometry_incompatibility(config: RunConfig, registry: Registry) -> str | None:
    """Return why an attention style's geometry or a positional encoding does not fit the model, or None."""
    for role in config.roles:
        styles, encodings = config.attention.role(role), config.positional.role(role)
        sizes, acts_in_attention = set[tuple[int, ...]](), False
        for layer in range(len(styles.pattern) * len(encodings.pattern)):
            entry = styles.at(layer)
            style = registry.attention(entry.name)
            try:
                geometry = geometry_of(style, entry.options, config.model)
            except HeadToHeadError as error:
                return str(error) or f"{entry.name} attention refuses the sizes of the model"
            entry = encodings.at(layer)
            encoding = registry.positional(entry.name)
            mechanisms = encoding.mechanisms_of(entry.options)
            acts_in_attention |= bool(mechanisms - {"embed"})
            own = (
                geometry.heads,
                geometry.output_heads,
                geometry.kv_heads,
                geometry.key_width,
                geometry.value_width,
            )
            sizes.add(own)
            if encodings.next_layers and (mechanisms & {"embed", "draw"} or encoding.by_row):
                return (
                    f"{entry.name} acts before the first layer, so it cannot vary by layer; list encodings that act in "
                    f"attention in positional.{role}, such as rotary and none, or use one encoding"
                )
            if reason := incompatibility(encoding, mechanisms, style, geometry, role):
                return reason
        if len({size if acts_in_attention else size[:2] for size in sizes}) > 1:
            return (
                f"the styles that attention.{role} lists differ in heads, or in keys and values, which the encoding "
                "depends on; list styles with the same sizes, or use an encoding that is added to embeddings, or 'none'"
            )
    return None


def _entry_incompatibility(
    config: RunConfig, longest: Mapping[str, int], registry: Registry
) -> str | None:
    for family in COMPONENTS:
        for role, chosen in (
            (role, each) for role, all in config.entries(family).items() for each in all.pattern
        ):
            registered = registry.find(family, chosen.name)
            # A plugin may keep what it reads here, so that the construction of its components would read nothing.
            with only_declared_reads(registered.entry, chosen.options):
                reason = _incompatibility_of(
                    registered, chosen.options, Setting(config, role, longest)
                )
            if reason is not None:
                return reason
    return None


def _incompatibility_of(registered: Registered, options: Options, setting: Setting) -> str | None:
    """Return why an entry cannot be used in a setting, or None if it can."""
    reason = _stated_incompatibility(registered, options, setting)
    if reason is None and issubclass(registered.entry, Component):
        bound = find_bound(registered.entry, options, registered.family, setting.role)
        reason = bound.reason(setting.config, setting.longest) if bound else None
    return reason


def _stated_incompatibility(
    registered: Registered, options: Options, setting: Setting
) -> str | None:
    """Return the result of an entry's ``incompatible_with``: a reason, which is not empty, or None.

    Raises:
        HeadToHeadError: If the method raises another error, or returns anything else.
    """
    where = (
        f"plugin '{registered.module}' ({registered.distribution}): incompatible_with of {registered.family} "
        f"'{registered.name}'"
    )
    try:
        reason = registered.entry.incompatible_with(options, setting)
    except HeadToHeadError as error:
        reason = str(error)
    except Exception as error:
        raise HeadToHeadError(
            f"{where} raised {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if reason is None or (isinstance(reason, str) and reason.strip()):
        return reason
    raise HeadToHeadError(
        f"{where} returned {reason!r}; return a reason, or None if the entry is compatible"
    )

"""Find configurations that cannot run: check sizes, batches, decoding and plugin entries before any run starts.

Each rule is a function that returns the reason why a configuration cannot run, or None; ``RULES`` lists them in the
order of the checks. A reason says what is wrong and what to set instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import numpy as np

from headtohead.data.batches import padded_length
from headtohead.errors import HeadToHeadError, PluginError
from headtohead.model.geometry import find_bound, geometry_of, incompatibility, only_length
from headtohead.model.quirks import decoder_input_lengths
from headtohead.plugins.component import Component, Geometry
from headtohead.plugins.entry import Options, Setting
from headtohead.plugins.registry import (
    Registered,
    calling,
    find_attention,
    find_entry,
    find_positional,
)
from headtohead.plugins.watched_reads import only_declared_reads
from headtohead.schema.run_config import RunConfig

Lengths = Mapping[str, int]
"""Tokens of the longest sentence by side, including boundary tokens; empty if the data is not prepared yet."""

Rule = Callable[[RunConfig, Lengths], str | None]


def find_incompatibility(config: RunConfig, longest: Lengths) -> str | None:
    """Return the first reason why a configuration cannot run, or None.

    Args:
        config: A resolved configuration.
        longest: Tokens of the longest sentence by side, including boundary tokens. Empty if the data is not
            prepared yet; length checks are then skipped.

    Raises:
        HeadToHeadError: If an entry is not registered; or if a plugin is faulty: its code raises an error, its
            ``incompatible_with`` returns no reason, it reads files or variables that it does not declare, or a quirk
            returns no batch of as many pairs.
    """
    for rule in RULES:
        reason = rule(config, longest)
        if reason is not None:
            return reason
    return None


def find_unequal_lengths(config: RunConfig, tokens: Iterable[int]) -> str | None:
    """Return why target lengths differ although the decoder's attention requires one length, or None.

    None also if targets are padded to one length, and for any decoder without a fixed length. Only whether the
    lengths are equal is checked, not whether they are the required one.

    Args:
        config: A resolved configuration.
        tokens: Lengths of the targets in tokens. With a fixed length it must not be empty (`ValueError`).

    Raises:
        HeadToHeadError: If an attention style of the decoder is not registered, or a plugin fails.
    """
    length = only_length(config)
    if length is None or config.train.pad_to != "batch":
        return None
    lengths = set(tokens)
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return None
    return (
        f"{config.attention.decoder.name} requires exactly {length} tokens, but targets have "
        f"{shortest} to {longest}; use targets of equal length"
    )


def find_part_without_labels(
    config: RunConfig, target_lengths: Mapping[str, Sequence[int]]
) -> str | None:
    """Return why a part of the data can be neither trained on nor scored, or None: no target of it has a label.

    Args:
        config: A resolved configuration.
        target_lengths: Lengths of the targets in tokens, by part; those without labels of their own.

    Raises:
        HeadToHeadError: If a quirk is not registered, or its code fails.
    """
    for part, lengths in target_lengths.items():
        if not _has_label(config, lengths):
            return f"no target of the part {part} has a second token, so it has no label; use longer targets"
    return None


def longest_sequences(config: RunConfig, longest: Lengths) -> dict[str, int]:
    """Return the maximum sequence length in tokens by side, including padding and other input of the decoder.

    A decoder-only model reads the source before the target; a non-autoregressive decoder reads as many tokens as the
    source has. An empty ``longest`` gives an empty result; otherwise it must have the sides source and target.
    """
    reached = dict(longest)
    if not reached:
        return reached
    padded = padded_length(config, longest)
    if padded:
        reached = {side: max(tokens, padded) for side, tokens in reached.items()}
    if config.evaluate.decode == "non-autoregressive":
        reached["target"] = max(reached["target"], longest["source"])
    if "encoder" not in config.roles:
        reached["target"] += reached["source"]  # the decoder reads both
    return reached


def _sizes_of_components(config: RunConfig, longest: Lengths) -> str | None:
    """Return why an attention style's geometry or a positional encoding does not fit the model, or None."""
    for role in config.roles:
        reason = _sizes_of_role(config, role)
        if reason is not None:
            return reason
    return None


def _sizes_of_role(config: RunConfig, role: str) -> str | None:
    """Return why the styles and encodings of a role's layers do not fit the model or each other, or None.

    The rules: every style accepts the sizes of the model. Style and encoding of each layer are compatible. If encodings
    vary by layer, none of them acts before the first layer. The sizes of all layers are equal (`_unequal_sizes`).

    Raises:
        HeadToHeadError: If a style or an encoding is not registered, or a plugin fails. A `HeadToHeadError` by which
            ``geometry`` of a style refuses the sizes is not raised, but returned.
    """
    styles = config.pattern("attention", role)
    encodings = config.pattern("positional", role)
    geometries = []
    all_mechanisms: set[str] = set()
    # After this many layers, the pairs of both patterns repeat.
    for layer in range(len(styles) * len(encodings)):
        style_entry = styles[layer % len(styles)]
        encoding_entry = encodings[layer % len(encodings)]
        style = find_attention(style_entry.name)
        encoding = find_positional(encoding_entry.name)
        try:
            geometry = geometry_of(style, style_entry.options, config.model)
        except PluginError:  # a HeadToHeadError too, but of a faulty plugin
            raise
        except HeadToHeadError as error:
            return str(error) or f"{style_entry.name} attention refuses the sizes of the model"
        with calling(encoding):
            mechanisms = encoding.mechanisms_of(encoding_entry.options)
        acts_before_layers = encoding.by_row or not mechanisms.isdisjoint({"embed", "draw"})
        if acts_before_layers and len(encodings) > 1:
            return (
                f"{encoding_entry.name} acts before the first layer, so it cannot vary by layer; list encodings that "
                f"act in attention in positional.{role}, such as rotary and none, or use one encoding"
            )
        reason = incompatibility(encoding, mechanisms, style, geometry, role)
        if reason is not None:
            return reason
        geometries.append(geometry)
        all_mechanisms |= mechanisms
    return _unequal_sizes(role, geometries, all_mechanisms)


def _unequal_sizes(role: str, geometries: Sequence[Geometry], mechanisms: Set[str]) -> str | None:
    """Return why layers with these sizes cannot be in one model, or None.

    One encoding serves all layers of a role. All layers have equal heads and, if an encoding acts in attention, equal
    sizes of keys and values.

    Args:
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        geometries: The sizes of each layer.
        mechanisms: The mechanisms of the encodings of all layers.
    """
    heads = {(geometry.heads, geometry.output_heads) for geometry in geometries}
    keys_and_values = {
        (geometry.kv_heads, geometry.key_width, geometry.value_width) for geometry in geometries
    }
    if len(heads) > 1:
        return f"the styles that attention.{role} lists differ in heads; list styles with equal heads and output heads"
    acts_in_attention = bool(mechanisms - {"embed"})
    if len(keys_and_values) > 1 and acts_in_attention:
        return (
            f"the styles that attention.{role} lists differ in keys and values, which the encoding depends on; list "
            "styles with the same sizes, or use an encoding that is added to embeddings, or 'none'"
        )
    return None


def _missing_encoder(config: RunConfig, longest: Lengths) -> str | None:
    """Return why a decoder-only model cannot run with a setting that requires an encoder, or None.

    These settings are a ``train.pad_to`` other than ``batch``, non-autoregressive decoding, and a style with a fixed
    number of target tokens.
    """
    if "encoder" in config.roles:
        return None
    pad_to = config.train.pad_to
    if pad_to != "batch":
        need = f"train.pad_to: {pad_to} requires an encoder"
    elif config.evaluate.decode == "non-autoregressive":
        need = "evaluate.decode: non-autoregressive requires an encoder"
    elif only_length(config) is not None:
        need = f"{config.attention.decoder.name} accepts a fixed number of target tokens and requires an encoder"
    else:
        return None
    return f"{need}, which a decoder-only model lacks; set model.architecture: encoder-decoder"


def _no_sources_to_encode(config: RunConfig, longest: Lengths) -> str | None:
    if longest.get("source") != 0 or "encoder" not in config.roles:
        return None
    return f"dataset '{config.data.dataset}' has no sources to encode; set model.architecture: decoder-only"


def _padding_without_batch_size(config: RunConfig, longest: Lengths) -> str | None:
    pad_to = config.train.pad_to
    if pad_to == "batch" or config.train.batch_size is not None:
        return None
    return f"pad_to {pad_to} requires batches with a fixed number of sentences; set batch_size"


def _buckets_with_batch_size(config: RunConfig, longest: Lengths) -> str | None:
    buckets = config.train.length_buckets
    if buckets == "coarse" or config.train.batch_size is None:
        return None
    return f"length_buckets {buckets} requires batches with a number of tokens; remove batch_size"


def _padding_shorter_than_sentences(config: RunConfig, longest: Lengths) -> str | None:
    """Return, as a reason, that the longest sentence of a side exceeds a ``train.pad_to`` that is a number, or None."""
    pad_to = config.train.pad_to
    if not isinstance(pad_to, int):
        return None
    for side, tokens in longest.items():
        if tokens > pad_to:
            return (
                f"pad_to {pad_to} is less than the {tokens} tokens of the longest {side}; set data.truncate_tokens: "
                f"{pad_to}"
            )
    return None


def _no_label(config: RunConfig, longest: Lengths) -> str | None:
    if "target" not in longest:
        return None
    if _has_label(config, [longest["target"]]):
        return None
    return "no target has a second token, so there is no label; use longer targets"


def _has_label(config: RunConfig, target_lengths: Sequence[int]) -> bool:
    """Return whether the decoder reads a token of any target, which has its next token as the label."""
    return bool((decoder_input_lengths(config, np.array(target_lengths)) > 0).any())


def _shared_modules_that_differ(config: RunConfig, longest: Lengths) -> str | None:
    for shared in config.model.shared_modules:
        entries = config.entries(shared.replace("-", "_")).values()
        if len({entry.model_dump_json() for entry in entries}) > 1:
            return f"model.shared_modules: one {shared}, but encoder and decoder have different ones; set one entry"
    return None


def _nothing_trainable(config: RunConfig, longest: Lengths) -> str | None:
    if config.train.trainable == ():
        return "train.trainable is empty, so no parameter is trained; set train.epochs: 0"
    return None


def _no_sources_to_translate(config: RunConfig, longest: Lengths) -> str | None:
    if longest.get("source") != 0 or config.evaluate.decode != "greedy":
        return None
    return f"dataset '{config.data.dataset}' has no sources to translate; leave evaluate.decode out"


def _decoding_without_boundaries(config: RunConfig, longest: Lengths) -> str | None:
    boundaries = config.data.target_boundaries
    if config.evaluate.decode != "greedy" or boundaries == "sos-eos":
        return None
    return (
        f"greedy decoding requires start and end tokens, but data.target_boundaries is {boundaries}; set "
        "evaluate.decode: none, non-autoregressive or teacher-forced"
    )


def _incompatible_entry(config: RunConfig, longest: Lengths) -> str | None:
    """Return why a component or a quirk cannot be used: it states so, or it accepts shorter sequences only; or None.

    Components of roles that the model lacks are not checked. Only components have a maximum length.

    Raises:
        HeadToHeadError: If an entry is not registered, its ``incompatible_with`` returns no reason, or a plugin fails.
        ReadsError: If an entry reads files or variables that it does not declare, or a declared file is missing.
    """
    reached = longest_sequences(config, longest)
    roles = config.roles
    for family, role, chosen in config.component_entries():
        if role not in roles:
            continue
        registered = find_entry(family, chosen.name)
        setting = Setting(config, role, reached)
        # A plugin may keep what it reads here, so that constructing its components would read nothing.
        with only_declared_reads(registered.entry, chosen.options):
            reason = _incompatibility_of(registered, chosen.options, setting)
        if reason is not None:
            return reason
    for name, options in config.quirks.items():
        registered = find_entry("quirk", name)
        with only_declared_reads(registered.entry, options):
            reason = _incompatibility_of(registered, options, Setting(config, "decoder", reached))
        if reason is not None:
            return reason
    return None


def _incompatibility_of(registered: Registered, options: Options, setting: Setting) -> str | None:
    """Return why an entry cannot be used in a setting, or None if it can."""
    reason = _stated_incompatibility(registered, options, setting)
    if reason is not None or not issubclass(registered.entry, Component):
        return reason
    bound = find_bound(registered.entry, options, registered.family, setting.role)
    return bound.reason(setting.config, setting.longest) if bound else None


def _stated_incompatibility(
    registered: Registered, options: Options, setting: Setting
) -> str | None:
    """Return the reason that an entry's ``incompatible_with`` returns, or None if the entry is compatible.

    The message of a `HeadToHeadError` that the method raises is a reason too.

    Raises:
        HeadToHeadError: If the method raises any other error, or returns neither None nor a text that is not blank.
    """
    method = (
        f"plugin '{registered.module}' ({registered.distribution}): incompatible_with of {registered.family} "
        f"'{registered.name}'"
    )
    try:
        reason = registered.entry.incompatible_with(options, setting)
    except HeadToHeadError as error:
        reason = str(error)
    except Exception as error:
        message = " ".join(str(error).split())
        raise HeadToHeadError(f"{method} raised {type(error).__name__}: {message}") from error
    if reason is None or (isinstance(reason, str) and reason.strip()):
        return reason
    raise HeadToHeadError(
        f"{method} returned {reason!r}; return a reason, or None if the entry is compatible"
    )


RULES: tuple[Rule, ...] = (
    _sizes_of_components,
    _missing_encoder,
    _no_sources_to_encode,
    _padding_without_batch_size,
    _buckets_with_batch_size,
    _padding_shorter_than_sentences,
    _no_label,
    _shared_modules_that_differ,
    _nothing_trainable,
    _no_sources_to_translate,
    _decoding_without_boundaries,
    _incompatible_entry,
)

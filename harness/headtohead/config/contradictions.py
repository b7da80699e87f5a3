"""Fields of a configuration that contradict each other: one rule per contradiction, in the order of the checks."""

from __future__ import annotations

from collections.abc import Callable

from headtohead.config.source_location import FieldPath
from headtohead.errors import nearest
from headtohead.plugins.registry import find_dataset
from headtohead.schema.run_config import NOTHING_HELD_OUT, RunConfig, SpecialTokens

Contradiction = tuple[FieldPath, str]
"""A field, and the reason that continues a sentence about it."""


def find_contradiction(config: RunConfig) -> Contradiction | None:
    """Return the field and the reason if valid fields contradict each other, else None."""
    for rule in RULES:
        contradiction = rule(config)
        if contradiction is not None:
            return contradiction
    return None


def _no_length_of_training(config: RunConfig) -> Contradiction | None:
    train = config.train
    if train.epochs is None and train.steps is None and train.tokens is None:
        return ("train",), "give epochs, steps or tokens; none is set"
    return None


def _decoder_only_with_two_vocabularies(config: RunConfig) -> Contradiction | None:
    if config.model.architecture != "decoder-only" or config.data.vocabulary.shared:
        return None
    reason = "a decoder-only model has one vocabulary; leave data.vocabulary.shared out"
    return ("data", "vocabulary", "shared"), reason


def _encoder_without_layers(config: RunConfig) -> Contradiction | None:
    if config.model.architecture == "decoder-only" or config.model.encoder_layers:
        return None
    reason = "an encoder-decoder has at least one encoder layer; for none, set model.architecture: decoder-only"
    return ("model", "encoder_layers"), reason


def _all_embeddings_tied_with_two_vocabularies(config: RunConfig) -> Contradiction | None:
    if config.model.tie_embeddings != "all" or config.data.vocabulary.shared:
        return None
    reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
    return ("model", "tie_embeddings"), reason


def _field_that_the_dataset_ignores(config: RunConfig) -> Contradiction | None:
    data = config.data
    dataset = find_dataset(data.dataset)
    defaults = {"normalise": dataset.normalise, **dataset.defaults.get("data", {})}
    for dotted, advice in dataset.unused.items():
        _, _, name = dotted.rpartition(".")
        section = data.vocabulary if "." in dotted else data
        default = defaults.get(dotted, type(section).model_fields[name].default)
        if getattr(section, name) != default:
            reason = f"dataset '{data.dataset}' does not use it; {advice}"
            return ("data", *dotted.split(".")), reason
    return None


def _special_tokens_without_a_file(config: RunConfig) -> Contradiction | None:
    vocabulary = config.data.vocabulary
    if vocabulary.file is not None or vocabulary.special_tokens == SpecialTokens():
        return None
    reason = "requires data.vocabulary.file; set it, or leave this out"
    return ("data", "vocabulary", "special_tokens"), reason


def _option_of_another_split(config: RunConfig) -> Contradiction | None:
    data = config.data
    split_of = find_dataset(data.dataset).of_split
    for name, field in type(data.options).model_fields.items():
        split = split_of.get(name, data.split)
        if split != data.split and getattr(data.options, name) != field.default:
            reason = f"{name} has no effect with split: {data.split}; set data.split: {split}"
            return ("data", "options", name), reason
    return None


def _unknown_split(config: RunConfig) -> Contradiction | None:
    data = config.data
    splits = (*find_dataset(data.dataset).splits, NOTHING_HELD_OUT)
    if data.split in splits:
        return None
    hint = nearest(data.split, splits)
    return ("data", "split"), f"dataset '{data.dataset}' has no split '{data.split}'{hint}"


RULES: tuple[Callable[[RunConfig], Contradiction | None], ...] = (
    _no_length_of_training,
    _decoder_only_with_two_vocabularies,
    _encoder_without_layers,
    _all_embeddings_tied_with_two_vocabularies,
    _field_that_the_dataset_ignores,
    _special_tokens_without_a_file,
    _option_of_another_split,
    _unknown_split,
)

"""Reading of a notebook's checkpoint: configuration, vocabularies and weights of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headtohead.config.builder import ConfigBuilder
from headtohead.config.loading import Override
from headtohead.config.source_location import Source, SourceLocation
from headtohead.data import cache_root, file_sha256, prepare
from headtohead.data.reading import read_lines
from headtohead.data.tokeniser import SIDES, Side, tokenisers_of, units_of
from headtohead.data.vocabularies import vocabularies_of
from headtohead.data.vocabulary import Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.model.geometry import VocabSizes, vocab_sizes
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Positional
from headtohead.plugins.recipe import Recipe
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import DataConfig, RunConfig
from headtohead_notebooks.checkpoints.mapping import (
    CheckpointMapping,
    MismatchError,
    convert,
    map_names,
)
from headtohead_notebooks.checkpoints.state_dicts import read_state_dict
from headtohead_notebooks.recipes.notebook_recipe import NotebookRecipe

TABLE_TOLERANCE = 1e-3
"""Largest difference between a stored positional table and the computed one that rounding explains."""


@dataclass(frozen=True)
class ImportedVocabulary:
    """Vocabulary sizes of a checkpoint, and the vocabularies if they can be rebuilt.

    ``record`` is the ``data`` block of run records; ``notes`` give the reason for what is missing.
    ``longest_target`` is the number of tokens of the longest training target, if it is known.
    """

    sizes: Mapping[Side, int]
    vocabularies: Mapping[Side, Vocabulary] | None
    record: dict[str, Any]
    longest_target: int | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Imported:
    """A checkpoint as a run of headtohead, not yet written to disk.

    ``form`` is the name of the recipe's form of checkpoint. ``positions`` is the number of
    positions of the positional table, if the checkpoint has one.
    """

    recipe: str
    form: str
    source: Path
    sha256: str
    config: RunConfig
    vocabulary: ImportedVocabulary
    weights: Mapping[str, Tensor]
    positions: int | None

    def summary(self) -> str:
        """Return recipe, form and sizes in one line."""
        model, sizes = self.config.model, self.vocabulary.sizes
        return (
            f"{self.recipe}, {self.form}: d_model {model.d_model}, {model.heads} heads, "
            f"{model.encoder_layers}+{model.decoder_layers} layers, d_ff {model.d_ff}, "
            f"vocabularies of {sizes['source']} and {sizes['target']} words"
        )


def read_checkpoint(
    path: Path,
    recipe: str,
    registry: Registry,
    data: Path | None = None,
    overrides: Sequence[Override] = (),
) -> Imported:
    """Read a state dict that was saved with the model classes of a recipe's notebook.

    Args:
        path: File of the state dict.
        recipe: Name of the recipe.
        registry: Registry of recipes and other entries.
        data: File of sentence pairs from which the notebook built its vocabularies, if it read one.
        overrides: Fields that override the recipe and the sizes of the checkpoint.

    Raises:
        HeadToHeadError: If the file is not a state dict, if it does not fit the recipe or the
            overrides, or if the vocabularies of the data have other sizes.
    """
    mapping = _matching_form(path, read_state_dict(path), recipe, registry)
    try:
        sizes, fields = mapping.vocabulary_sizes, mapping.fields
        if "min_vocab_size" in registry.recipe(recipe).config.get("quirks", {}):
            fields["quirks.min_vocab_size"] = min(sizes.values())
        config = _configure(recipe, fields, overrides, registry)
        weights = convert(mapping, _model(config, sizes))
    except MismatchError as error:
        advice = (
            "change or leave out --set"
            if overrides
            else "import a file that the notebook's own classes saved"
        )
        raise HeadToHeadError(
            f"'{path}' does not fit recipe '{recipe}': {error}; {advice}"
        ) from error
    for name, values in mapping.form.positions_computed.items():
        configs = [
            _configure(recipe, {**fields, name: value}, overrides, registry) for value in values
        ]
        config = _nearest_table(configs, mapping, recipe)
    vocabulary = _vocabulary(registry.recipe(recipe), recipe, config, sizes, data)
    sha256 = file_sha256(path)
    vocabulary.record["data_hash"] = vocabulary.record["data_hash"] or sha256
    return Imported(
        recipe, mapping.form.name, path, sha256, config, vocabulary, weights, mapping.positions
    )


def _matching_form(
    path: Path, state: Mapping[str, Tensor], name: str, registry: Registry
) -> CheckpointMapping:
    """Return the mapping of the form of the recipe's checkpoints that has the names of the state dict."""
    recipe = registry.recipe(name)
    if not (issubclass(recipe, NotebookRecipe) and recipe.checkpoints):
        reason = getattr(recipe, "no_checkpoint", NotebookRecipe.no_checkpoint)
        raise HeadToHeadError(f"no checkpoint of '{name}' can be imported: {reason}")
    mappings = (map_names(state, form) for form in recipe.checkpoints)
    best = min(mappings, key=lambda mapping: len(mapping.missing) + len(mapping.unknown))
    if not best.problems:
        return best
    raise HeadToHeadError(
        f"'{path}' does not fit recipe '{name}' ({best.form.name}): {best.problems}; name the recipe of its notebook"
    )


def _configure(
    recipe: str, fields: Mapping[str, Any], overrides: Sequence[Override], registry: Registry
) -> RunConfig:
    """Return the recipe's configuration; fields of the checkpoint override it, then overrides."""
    builder = ConfigBuilder(SourceLocation(Source(f"recipe '{recipe}'")))
    builder.merge({"recipe": recipe}, builder.root)
    for path, value in fields.items():
        builder.assign(tuple(path.split(".")), value, SourceLocation(Source(f"checkpoint: {path}")))
    for override in overrides:
        builder.assign(override.path, override.value, override.location)
    return builder.build_consistent()


def _model(config: RunConfig, sizes: Mapping[Side, int]) -> Transformer:
    """Build the model on the meta device: shapes without numbers."""
    try:
        return Transformer(config, None, sizes["source"], sizes["target"])
    except HeadToHeadError as error:
        if "heads" not in str(error):
            raise
        raise HeadToHeadError(
            f"{error}; a checkpoint does not store the number of heads, type --set model.heads=N"
        ) from error


def _nearest_table(
    configs: Sequence[RunConfig], mapping: CheckpointMapping, recipe: str
) -> RunConfig:
    """Return the configuration that computes the positional table of the checkpoint.

    Raises:
        HeadToHeadError: If every computed table differs by more than rounding explains.
    """
    name = mapping.form.positions
    assert name is not None
    stored = mapping.state[name].flatten(0, -2).double()
    differences = []
    for config in configs:
        positional = _model(config, {"source": 1, "target": 1}).positionals["encoder"]
        assert isinstance(positional, Positional)
        table = positional.embed(torch.arange(len(stored)).unsqueeze(0), "encoder")
        if table is None:  # --set removes the added positions
            return config
        computed = table.flatten(0, -2).double()
        differences.append(
            float((computed - stored).abs().max()) if computed.shape == stored.shape else math.inf
        )
    if not min(differences) <= TABLE_TOLERANCE:
        raise HeadToHeadError(
            f"'{name}' of the checkpoint is not the table that recipe '{recipe}' computes: "
            f"they differ by {min(differences):.3g}"
        )
    return configs[differences.index(min(differences))]


def _vocabulary(
    recipe: type[Recipe], name: str, config: RunConfig, sizes: Mapping[Side, int], data: Path | None
) -> ImportedVocabulary:
    """Return the vocabularies of the recipe's dataset or of the file of sentence pairs."""
    assert issubclass(recipe, NotebookRecipe)
    if not recipe.needs_file:
        if data is not None:
            raise HeadToHeadError(f"recipe '{name}' has its own sentences; leave out --data")
        return _dataset_vocabulary(config, sizes)
    if data is None:
        return _sizes_only(config, sizes, "it was imported without --data")
    return _file_vocabulary(recipe, config, sizes, data)


def _sizes_only(config: RunConfig, sizes: Mapping[Side, int], reason: str) -> ImportedVocabulary:
    note = f"{reason}: it has no vocabularies, works on ids alone and cannot translate"
    return ImportedVocabulary(sizes, None, _record(config.data, sizes), notes=[note])


def _dataset_vocabulary(config: RunConfig, sizes: Mapping[Side, int]) -> ImportedVocabulary:
    prepared = prepare(config.data, cache_root())
    vocabularies = {side: prepared.vocabulary(side) for side in SIDES}
    if _has_sizes(vocabularies, sizes, config):
        return ImportedVocabulary(sizes, vocabularies, prepared.record, prepared.longest_target)
    reason = (
        f"the recipe's sentences have {_describe(vocabularies)}, the checkpoint {sizes['source']} and "
        f"{sizes['target']}, so it was trained on other sentences"
    )
    return _sizes_only(config, sizes, reason)


def _file_vocabulary(
    recipe: type[NotebookRecipe], config: RunConfig, sizes: Mapping[Side, int], data: Path
) -> ImportedVocabulary:
    """Rebuild the vocabularies from a file of sentence pairs, as the notebook does."""
    lines = read_lines(data)
    try:
        pairs = recipe.read(lines)
    except HeadToHeadError as error:
        raise HeadToHeadError(f"file '{data}': {error}") from error
    units = units_of(config.data)
    sentences = {
        side: [units[side].tokens(pair[index]) for pair in pairs]
        for index, side in enumerate(SIDES)
    }
    vocabularies = vocabularies_of(sentences, units, config.data, None, dict.fromkeys(SIDES, ()))
    tokenisers = tokenisers_of(config.data, units, vocabularies)
    if not _has_sizes(vocabularies, sizes, config):
        raise HeadToHeadError(
            f"file '{data}' has {_describe(vocabularies)}, the checkpoint {sizes['source']} and "
            f"{sizes['target']}: it was trained on another file"
        )
    longest = {
        side: max(len(tokenisers[side].ids(words)) for words in sentences[side]) for side in SIDES
    }
    record = _record(config.data, sizes)
    record |= {"data_hash": file_sha256(data), "counts": {"train": len(pairs)}, "longest": longest}
    return ImportedVocabulary(sizes, vocabularies, record, longest["target"])


def _has_sizes(
    vocabularies: Mapping[Side, Vocabulary], sizes: Mapping[Side, int], config: RunConfig
) -> bool:
    """Return whether vocabularies of these lengths give embeddings of the checkpoint's sizes."""
    lengths = [len(vocabularies[side]) for side in SIDES]
    if config.quirks.min_vocab_size is not None:  # embeddings can have rows without a word
        return all(length <= sizes[side] for length, side in zip(lengths, SIDES, strict=True))
    return vocab_sizes(config, *lengths) == VocabSizes(sizes["source"], sizes["target"])


def _describe(vocabularies: Mapping[Side, Vocabulary]) -> str:
    return f"{len(vocabularies['source'])} source and {len(vocabularies['target'])} target words"


def _record(config: DataConfig, sizes: Mapping[Side, int]) -> dict[str, Any]:
    """Return the ``data`` block of a run without sentences."""
    return {
        "dataset": config.dataset,
        "data_hash": "",
        "licence": None,
        "citation": None,
        "languages": list(SIDES),
        "split": config.split,
        "normalise": config.normalise,
        "tokens": config.tokens,
        "counts": {},
        "vocabulary": dict(sizes),
        "notes": [],
    }

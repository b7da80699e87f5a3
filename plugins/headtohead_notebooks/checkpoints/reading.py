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
from headtohead.plugins.registry import find_recipe
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
        model = self.config.model
        sizes = self.vocabulary.sizes
        return (
            f"{self.recipe}, {self.form}: d_model {model.d_model}, {model.heads} heads, "
            f"{model.encoder_layers}+{model.decoder_layers} layers, d_ff {model.d_ff}, "
            f"vocabularies of {sizes['source']} and {sizes['target']} words"
        )


def read_checkpoint(
    path: Path,
    recipe: str,
    data: Path | None = None,
    overrides: Sequence[Override] = (),
) -> Imported:
    """Read a state dict that was saved with the model classes of a recipe's notebook.

    Args:
        path: File of the state dict.
        recipe: Name of the recipe.
        data: File of sentence pairs from which the notebook built its vocabularies, if it read one.
        overrides: Fields that override the recipe and the sizes of the checkpoint.

    Raises:
        HeadToHeadError: If the file is not a state dict, if it does not fit the recipe or the
            overrides, or if the vocabularies of the data have other sizes.
    """
    state = read_state_dict(path)
    mapping = _matching_form(path, state, recipe)
    try:
        sizes = mapping.vocabulary_sizes
        fields = mapping.fields
        if "min_vocab_size" in find_recipe(recipe).config["model"]:
            fields["model.min_vocab_size"] = min(sizes.values())
        config = _configure(recipe, fields, overrides)
        model = _model(config, sizes)
        weights = convert(mapping, model)
    except MismatchError as error:
        advice = "import a file that the notebook's own classes saved"
        if overrides:
            advice = "change or leave out --set"
        raise HeadToHeadError(
            f"'{path}' does not fit recipe '{recipe}': {error}; {advice}"
        ) from error
    for name, values in mapping.form.positions_computed.items():
        candidates = []
        for value in values:
            candidate_fields = {**fields, name: value}
            candidates.append(_configure(recipe, candidate_fields, overrides))
        config = _nearest_table(candidates, mapping, recipe)
    vocabulary = _vocabulary(find_recipe(recipe), recipe, config, sizes, data)
    sha256 = file_sha256(path)
    if not vocabulary.record["data_hash"]:
        vocabulary.record["data_hash"] = sha256
    return Imported(
        recipe, mapping.form.name, path, sha256, config, vocabulary, weights, mapping.positions
    )


def _matching_form(path: Path, state: Mapping[str, Tensor], name: str) -> CheckpointMapping:
    """Return the mapping of the form of the recipe's checkpoints that has the names of the state dict."""
    recipe = find_recipe(name)
    if not (issubclass(recipe, NotebookRecipe) and recipe.checkpoints):
        reason = getattr(recipe, "no_checkpoint", NotebookRecipe.no_checkpoint)
        raise HeadToHeadError(f"no checkpoint of '{name}' can be imported: {reason}")
    mappings = [map_names(state, form) for form in recipe.checkpoints]
    best = min(mappings, key=lambda mapping: len(mapping.missing) + len(mapping.unknown))
    if not best.problems:
        return best
    raise HeadToHeadError(
        f"'{path}' does not fit recipe '{name}' ({best.form.name}): {best.problems}; name the recipe of its notebook"
    )


def _configure(recipe: str, fields: Mapping[str, Any], overrides: Sequence[Override]) -> RunConfig:
    """Return the recipe's configuration; fields of the checkpoint override it, then overrides."""
    recipe_location = SourceLocation(Source(f"recipe '{recipe}'"))
    builder = ConfigBuilder(recipe_location)
    builder.merge({"recipe": recipe}, builder.root)
    for path, value in fields.items():
        location = SourceLocation(Source(f"checkpoint: {path}"))
        builder.assign(tuple(path.split(".")), value, location)
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
    positions = torch.arange(len(stored)).unsqueeze(0)
    differences = []
    for config in configs:
        model = _model(config, {"source": 1, "target": 1})
        positional = model.positionals["encoder"]
        assert isinstance(positional, Positional)
        table = positional.embed(positions, "encoder")
        if table is None:  # --set removes the added positions
            return config
        computed = table.flatten(0, -2).double()
        difference = math.inf
        if computed.shape == stored.shape:
            difference = float((computed - stored).abs().max())
        differences.append(difference)
    smallest = min(differences)
    if not smallest <= TABLE_TOLERANCE:
        raise HeadToHeadError(
            f"'{name}' of the checkpoint is not the table that recipe '{recipe}' computes: "
            f"they differ by {smallest:.3g}"
        )
    return configs[differences.index(smallest)]


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
    sentences = {}
    for index, side in enumerate(SIDES):
        unit = units[side]
        sentences[side] = [unit.tokens(pair[index]) for pair in pairs]
    vocabularies = vocabularies_of(sentences, units, config.data, None, dict.fromkeys(SIDES, ()))
    tokenisers = tokenisers_of(config.data, units, vocabularies)
    if not _has_sizes(vocabularies, sizes, config):
        raise HeadToHeadError(
            f"file '{data}' has {_describe(vocabularies)}, the checkpoint {sizes['source']} and "
            f"{sizes['target']}: it was trained on another file"
        )
    longest = {}
    for side in SIDES:
        tokeniser = tokenisers[side]
        longest[side] = max(len(tokeniser.ids(words)) for words in sentences[side])
    record = _record(config.data, sizes)
    record["data_hash"] = file_sha256(data)
    record["counts"] = {"train": len(pairs)}
    record["longest"] = longest
    return ImportedVocabulary(sizes, vocabularies, record, longest["target"])


def _has_sizes(
    vocabularies: Mapping[Side, Vocabulary], sizes: Mapping[Side, int], config: RunConfig
) -> bool:
    """Return whether vocabularies of these lengths give embeddings of the checkpoint's sizes."""
    source_words = len(vocabularies["source"])
    target_words = len(vocabularies["target"])
    if config.model.min_vocab_size is not None:  # embeddings can have rows without a word
        return source_words <= sizes["source"] and target_words <= sizes["target"]
    stored = VocabSizes(sizes["source"], sizes["target"])
    return vocab_sizes(config, source_words, target_words) == stored


def _describe(vocabularies: Mapping[Side, Vocabulary]) -> str:
    source_words = len(vocabularies["source"])
    target_words = len(vocabularies["target"])
    return f"{source_words} source and {target_words} target words"


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

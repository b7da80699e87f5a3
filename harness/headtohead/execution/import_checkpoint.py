"""A notebook's checkpoint, read as one of its recipe's forms: configuration, words and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headtohead.config.builder import ConfigBuilder
from headtohead.config.loading import Override
from headtohead.config.resolve import build_consistent_config, merge_base
from headtohead.config.source_location import Source, SourceLocation
from headtohead.data import cache_root, file_sha256, prepare
from headtohead.data.normalise import normaliser
from headtohead.data.prepared import SIDES, Side, Tokeniser
from headtohead.data.reading import read_lines
from headtohead.data.vocabulary import Vocabulary
from headtohead.data.wordlists import vocabularies_of
from headtohead.errors import HeadToHeadError
from headtohead.execution.checkpoint_mapping import Fit, fit
from headtohead.execution.conversion import convert
from headtohead.execution.state_dicts import read_state_dict
from headtohead.model.sizes import Rows, find_rows
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Positional
from headtohead.plugins.recipe import Recipe
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import DataConfig, RunConfig

MODEL_SIZES = ("d_model", "d_ff", "heads", "encoder_layers", "decoder_layers")
"""Sizes of a state dict that are fields of the model section."""

FARTHEST = 1e-3
"""Difference from a fixed table up to which it is taken for a rounded copy."""


@dataclass(frozen=True)
class Words:
    """What is known of the words: sizes always, vocabularies where they could be rebuilt.

    ``record`` is the ``data`` block of run records; ``notes`` say what is lacking, and why.
    ``longest_target`` counts the tokens of the longest training target, where it is known.
    """

    sizes: Mapping[Side, int]
    vocabularies: Mapping[Side, Vocabulary] | None
    record: dict[str, Any]
    longest_target: int | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Imported:
    """A checkpoint as a run of ours, not yet written anywhere.

    ``positions`` are the rows of the positional table, where the checkpoint holds one.
    """

    recipe: str
    form: str
    source: Path
    sha256: str
    config: RunConfig
    words: Words
    weights: Mapping[str, Tensor]
    positions: int | None

    def summary(self) -> str:
        """Return one line: what the checkpoint was found to be."""
        model, sizes = self.config.model, self.words.sizes
        return (
            f"{self.recipe}, {self.form}: d_model {model.d_model}, {model.heads} heads, "
            f"{model.encoder_layers}+{model.decoder_layers} layers, d_ff {model.d_ff}, "
            f"{sizes['source']} and {sizes['target']} words"
        )


def read_checkpoint(
    path: Path, recipe: str, registry: Registry, data: Path | None = None, overrides: Sequence[Override] = ()
) -> Imported:
    """Read a state dict that the classes of a recipe's notebook saved.

    Args:
        path: The file.
        recipe: Its recipe's name.
        registry: Where recipes and entries are looked up.
        data: The file that the notebook built its vocabularies from, where it read one.
        overrides: Laid over the recipe and what the checkpoint shows.

    Raises:
        HeadToHeadError: If the file is not a state dict, does not fit, or the data is another's.
    """
    state = read_state_dict(path)
    found = _fitting(path, state, recipe, registry)
    config = _Choices(recipe, found, overrides, registry).configure(state)
    sizes: dict[Side, int] = {side: found.sizes.get(f"{side}_words", found.sizes.get("words", 0)) for side in SIDES}
    words = _words(registry.recipe(recipe), recipe, config, sizes, data)
    model = _model(config, sizes)
    fixed = {one.ours for one in found.checkpoint.tensors if one.kind == "fixed"}
    parts = {part: tensor for part, tensor in found.parts.items() if part not in fixed}
    try:
        weights = convert(parts, model)
    except HeadToHeadError as error:
        raise HeadToHeadError(f"'{path}' does not fit what --set asks for: {error}") from error
    digest = file_sha256(path)
    words.record["data_hash"] = words.record["data_hash"] or digest
    return Imported(recipe, found.checkpoint.name, path, digest, config, words, weights, found.sizes.get("positions"))


def _fitting(path: Path, state: Mapping[str, Tensor], name: str, registry: Registry) -> Fit:
    """Return the form of the recipe's checkpoints that the state dict has."""
    recipe = registry.recipe(name)
    if not recipe.checkpoints:
        raise HeadToHeadError(f"no checkpoint of '{name}' can be imported: {recipe.no_checkpoint}")
    best = _nearest(state, recipe)
    if not best.faults:
        return best
    others = [
        one.name
        for one in registry.all()
        if one.family == "recipe" and one.name != name and _fits(state, registry.recipe(one.name))
    ]
    form = f" ({best.checkpoint.name})" if len(recipe.checkpoints) > 1 else ""
    hint = f"type --recipe {others[0]}, which fits" if others else "no other recipe fits it either"
    raise HeadToHeadError(f"'{path}' does not fit recipe '{name}'{form}: {best.faults}; {hint}")


def _nearest(state: Mapping[str, Tensor], recipe: type[Recipe]) -> Fit:
    return min((fit(state, form) for form in recipe.checkpoints), key=lambda one: len(one.faults))


def _fits(state: Mapping[str, Tensor], recipe: type[Recipe]) -> bool:
    return bool(recipe.checkpoints) and not _nearest(state, recipe).faults


@dataclass(frozen=True)
class _Choices:
    """Where the fields of an imported run come from: recipe, checkpoint, overrides, in this order.

    What lies later wins.
    """

    recipe: str
    found: Fit
    overrides: Sequence[Override]
    registry: Registry

    def configure(self, state: Mapping[str, Tensor]) -> RunConfig:
        """Return the configuration of the run."""
        form, sizes = self.found.checkpoint, self.found.sizes
        fields: dict[str, Any] = {f"model.{name}": sizes[name] for name in MODEL_SIZES if name in sizes}
        fields |= dict(form.sets) | {path: sizes[word] for path, word in form.sizes.items()}
        if all(one.dtype == torch.float64 for one in state.values()):
            fields["train.precision"] = "float64"
        for path, values in form.tables.items():
            fields[path] = self._closest(fields, path, values)
        return self._with_rows(self._resolved(fields))

    def _resolved(self, fields: Mapping[str, Any]) -> RunConfig:
        builder = ConfigBuilder(self.registry, SourceLocation(Source(f"recipe '{self.recipe}'")))
        merge_base(builder, {"recipe": self.recipe}, builder.root)
        for path, value in fields.items():
            builder.assign(tuple(path.split(".")), value, SourceLocation(Source(f"checkpoint: {path}")))
        for one in self.overrides:
            builder.assign(one.path, one.value, one.location)
        return build_consistent_config(builder)

    def _closest(self, fields: Mapping[str, Any], path: str, values: Sequence[Any]) -> Any:
        """Return the value of a field under which the positional table is the checkpoint's."""
        table = next(one for one in self.found.checkpoint.tensors if one.kind == "fixed")
        theirs = self.found.parts[table.ours].flatten(0, -2).double()
        far = {}
        for value in values:
            ours = _positions(self._resolved({**fields, path: value}), len(theirs))
            # Where --set asks for other positions or another width, the weights will say so.
            far[value] = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else 0.0
        closest = min(far, key=lambda value: far[value])
        if not far[closest] <= FARTHEST:
            raise HeadToHeadError(
                f"'{table.theirs}' of the checkpoint is not the table that recipe '{self.recipe}' "
                f"computes: they differ by {far[closest]:.3g}"
            )
        return closest

    def _with_rows(self, config: RunConfig) -> RunConfig:
        """Where a recipe has more rows than words, take the checkpoint's."""
        if config.quirks.min_vocab_size is None:
            return config
        sizes = self.found.sizes
        rows = min(size for name, size in sizes.items() if name.endswith("words"))
        model = config.model.model_copy(update={"min_vocab_size": rows})
        return config.model_copy(update={"model": model})


def _positions(config: RunConfig, count: int) -> Tensor:
    """Return the table ``[count, d_model]`` that a configuration adds to source embeddings.

    It has no rows where nothing is added.
    """
    positional = _model(config, {"source": 1, "target": 1}).positionals["encoder"]
    assert isinstance(positional, Positional)
    table = positional.embed(torch.arange(count).unsqueeze(0), "encoder")
    return torch.empty(0, 0) if table is None else table.flatten(0, -2).double()


def _model(config: RunConfig, sizes: Mapping[Side, int]) -> Transformer:
    """Build the model of shapes without numbers."""
    try:
        return Transformer(config, None, sizes["source"], sizes["target"])
    except HeadToHeadError as error:
        if "heads" not in str(error):
            raise
        raise HeadToHeadError(f"{error}; a checkpoint does not show its heads, type --set model.heads=N") from error


def _words(recipe: type[Recipe], name: str, config: RunConfig, sizes: Mapping[Side, int], data: Path | None) -> Words:
    if recipe.needs_file and data is not None:
        return _read_words(recipe, config, sizes, data)
    if data is not None:
        raise HeadToHeadError(f"recipe '{name}' brings its sentences with it; leave out --data")
    if not recipe.needs_file:
        return _own_words(config, sizes)
    return _no_words(config, sizes, "it was imported without --data")


def _no_words(config: RunConfig, sizes: Mapping[Side, int], why: str) -> Words:
    note = f"{why}: it works on ids alone and cannot translate"
    return Words(sizes, None, _record(config.data, sizes), notes=[note])


def _own_words(config: RunConfig, sizes: Mapping[Side, int]) -> Words:
    """Take the vocabularies of the recipe's own dataset, where they have the checkpoint's sizes."""
    ready = prepare(config.data, cache_root())
    vocabularies = {side: ready.vocabulary(side) for side in SIDES}
    if _suit(vocabularies, sizes, config):
        return Words(sizes, vocabularies, ready.record, ready.longest_target)
    why = (
        f"its own sentences have {_sizes(vocabularies)}, the checkpoint {sizes['source']} and "
        f"{sizes['target']}, so it was trained on others"
    )
    return _no_words(config, sizes, why)


def _read_words(recipe: type[Recipe], config: RunConfig, sizes: Mapping[Side, int], data: Path) -> Words:
    """Rebuild the vocabularies from a file of sentence pairs, as the notebook does."""
    lines = read_lines(data)
    try:
        pairs = recipe.read(lines)
    except HeadToHeadError as error:
        raise HeadToHeadError(f"file '{data}': {error}") from error
    tokenisers = tokenisers_of(config.data)
    normalise = normaliser(config.data.normalise or "none")
    sentences: dict[Side, list[list[str]]] = {
        side: [tokenisers[side].split(normalise(pair[location])) for pair in pairs]
        for location, side in enumerate(SIDES)
    }
    vocabularies = vocabularies_of(sentences, tokenisers, config.data, None)
    if not _suit(vocabularies, sizes, config):
        raise HeadToHeadError(
            f"file '{data}' has {_sizes(vocabularies)}, the checkpoint {sizes['source']} and "
            f"{sizes['target']}: it was trained on another file"
        )
    record = _record(config.data, sizes)
    record |= {"data_hash": file_sha256(data), "counts": {"train": len(pairs)}}
    record["longest"] = {
        side: max(len(tokenisers[side].ids(words, vocabularies[side])) for words in sentences[side]) for side in SIDES
    }
    return Words(sizes, vocabularies, record, record["longest"]["target"])


def tokenisers_of(config: DataConfig) -> dict[Side, Tokeniser]:
    """Return how raw text becomes the words of a configuration, which splits no words."""
    name = config.normalise or "none"
    return {
        "source": Tokeniser(name, None, config.source_boundaries, config.truncate_tokens),
        "target": Tokeniser(name, None, config.target_boundaries, config.truncate_tokens),
    }


def _suit(vocabularies: Mapping[Side, Vocabulary], sizes: Mapping[Side, int], config: RunConfig) -> bool:
    """Tell whether vocabularies of these lengths give tables of the checkpoint's sizes.

    Where a recipe has more rows than words, every word must have one.
    """
    lengths = {side: len(vocabularies[side]) for side in SIDES}
    if config.quirks.min_vocab_size is not None:
        return all(lengths[side] <= sizes[side] for side in SIDES)
    rows = find_rows(config, lengths["source"], lengths["target"])
    return rows == Rows(sizes["source"], sizes["target"])


def _sizes(vocabularies: Mapping[Side, Vocabulary]) -> str:
    return f"{len(vocabularies['source'])} source and {len(vocabularies['target'])} target words"


def _record(config: DataConfig, sizes: Mapping[Side, int]) -> dict[str, Any]:
    """Return the ``data`` block of a run whose sentences are not at hand."""
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

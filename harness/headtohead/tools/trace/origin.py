"""Whose forward pass is told: a recipe as its weights are drawn, or a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from headtohead.data import PreparedData, prepare
from headtohead.errors import HeadToHeadError, nearest
from headtohead.execution.loaded import LoadedRun, load
from headtohead.model.transformer import Transformer
from headtohead.planning.compatibility import undefined_reason
from headtohead.planning.lengths import decoding_limit
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import Registry, current
from headtohead.schema.config import RunConfig
from headtohead.tools.pitfalls.entries import recipe_config
from headtohead.tools.trace.collect import collect
from headtohead.tools.trace.sentences import read_ids, read_sentences
from headtohead.tools.trace.steps import Trace

ALONE = "here the sentence stands alone, in row 0"


@dataclass(frozen=True)
class Origin:
    """A model and the words it knows; no words where it works on ids alone."""

    title: str
    config: RunConfig
    model: Transformer
    words: PreparedData | None
    decoding_limit: int

    def trace(self, source: str, target: str | None = None) -> Trace:
        """Return the forward pass of one sentence pair.

        Args:
            source: Raw text, or ids where the model has no words.
            target: Likewise; None takes the corpus' translation, else the model's own.

        Raises:
            HeadToHeadError: If a sentence cannot be read.
        """
        if self.words is None:
            sentences = read_ids(self.model, source, target)
        else:
            sentences = read_sentences(self.model, self.words, source, target, self.decoding_limit)
        read = f"{' '.join(sentences.target_tokens)} ({sentences.target_from})"
        steps = collect(self.model, sentences)
        notes = (*sentences.notes, *self._notes())
        return Trace(self.title, source, read, steps, notes, self.model.attends_to_source)

    def _notes(self) -> list[str]:
        pitfalls = find_pitfalls(self.config, current())
        notes = [f"pitfall: {pitfall.name} ({pitfall.field}): {pitfall.consequence}" for pitfall in pitfalls]
        return [*notes, ALONE] if self.model.position_is_row else notes


def find_origin(name: str, registry: Registry, runs: Path, cache: Path, seed: int, overrides: Sequence[str]) -> Origin:
    """Return what a name means: a recipe, ``recipe/`` before it or not, or a run.

    Args:
        name: As typed.
        registry: Where recipes are looked up.
        runs: Folder of run directories.
        cache: Folder of prepared data.
        seed: Of the weights of a recipe.
        overrides: Fields of a recipe, ``"model.d_model=8"``.

    Raises:
        HeadToHeadError: If there is neither, or the recipe is not defined.
    """
    recipes = registry.entries["recipe"]
    plain = name.removeprefix("recipe/")
    if plain in recipes:
        return of_recipe(plain, registry, cache, seed, overrides)
    if plain != name:
        raise HeadToHeadError(f"unknown recipe '{plain}'{nearest(plain, recipes)}")
    if overrides:
        raise HeadToHeadError(f"--set changes recipes, and '{name}' is none")
    known = [found.parent.name for found in runs.glob("*/*/run.json")]
    if not (Path(name) / "run.json").is_file() and not any(one.startswith(name) for one in known):
        close = get_close_matches(name, [*recipes, *known], n=1, cutoff=0.6)
        raise HeadToHeadError(f"no recipe and no run '{name}'{nearest(name, close or recipes)}")
    return of_run(load(name, runs))


def of_recipe(name: str, registry: Registry, cache: Path, seed: int = 1, overrides: Sequence[str] = ()) -> Origin:
    """Return a recipe with its data, its weights as they are drawn.

    Raises:
        HeadToHeadError: If a field is wrong, the data is not there, or the recipe is not defined.
    """
    config = recipe_config(name, registry, overrides)
    data = prepare(config.data, cache)
    reason = undefined_reason(config, data.record["longest"], registry)
    if reason:
        raise HeadToHeadError(f"recipe '{name}' is not defined so: {reason}")
    sizes = len(data.source_vocabulary), len(data.target_vocabulary)
    model = Transformer(config, [seed], *sizes).eval()
    if config.train.precision == "float64":
        model.double()
    title = f"{name}, seed {seed}: at initialisation, not trained"
    return Origin(title, config, model, data, decoding_limit(config, data.longest_target))


def of_run(run: LoadedRun) -> Origin:
    """Return a finished run, or an imported checkpoint."""
    return Origin(f"run {run.path.name}", run.config, run.model, run.words, run.decoding_limit)

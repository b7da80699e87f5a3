"""The model of a trace: a recipe at initialisation, or a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headtohead.data import PreparedData, cache_root, prepare
from headtohead.errors import HeadToHeadError, nearest, suggestion
from headtohead.execution.loaded import load
from headtohead.model.transformer import Transformer
from headtohead.planning.compatibility import find_incompatibility
from headtohead.planning.lengths import decoding_limit
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.trace.collect import collect
from headtohead_notebooks.trace.inputs import inputs_from_text
from headtohead_notebooks.trace.steps import Trace

BATCH_OF_ONE = "positions depend on the batch row; here the batch is one sentence, in row 0"


@dataclass(frozen=True)
class TracedModel:
    """A model with its vocabularies."""

    title: str
    config: RunConfig
    model: Transformer
    data: PreparedData
    decoding_limit: int

    def trace(self, source: str, target: str | None = None) -> Trace:
        """Return the forward pass of one sentence pair.

        Args:
            source: Raw text.
            target: The same for the target; None selects the translation in the corpus, or else the
                model's own translation.

        Raises:
            HeadToHeadError: If a sentence cannot be encoded.
        """
        inputs = inputs_from_text(self.model, self.data, source, target, self.decoding_limit)
        decoder_input = f"{' '.join(inputs.target_tokens)} ({inputs.target_origin})"
        pitfalls = find_pitfalls(self.config, self.data.record.get("leak"))
        notes = list(inputs.notes)
        for pitfall in pitfalls:
            notes.append(f"pitfall: {pitfall.name} ({pitfall.field}): {pitfall.consequence}")
        if self.model.position_is_row:
            notes.append(BATCH_OF_ONE)
        steps = collect(self.model, inputs)
        return Trace(
            self.title, source, decoder_input, steps, tuple(notes), self.model.attends_to_source
        )


def find_model(
    name: str, *, runs: Path = Path("runs"), seed: int = 1, overrides: Sequence[str] = ()
) -> TracedModel:
    """Return the model of a recipe at initialisation, with or without the prefix ``recipe/``, or of a run.

    Args:
        name: Name of a recipe, name of a run, or path of a run directory.
        runs: Folder of run directories.
        seed: Seed of a recipe's weights.
        overrides: Fields of a recipe to override, such as ``"model.d_model=8"``.

    Raises:
        HeadToHeadError: If there is no such recipe or run, the recipe is incompatible or its data is missing, or the
            run has no vocabularies.
    """
    recipes = current().entries["recipe"]
    recipe = name.removeprefix("recipe/")
    if recipe in recipes:
        config = recipe_config(recipe, overrides)
        data = prepare(config.data, cache_root())
        reason = find_incompatibility(config, data.record["longest"])
        if reason:
            raise HeadToHeadError(
                f"recipe '{recipe}' is incompatible with these settings: {reason}"
            )
        source_size = len(data.source_vocabulary)
        target_size = len(data.target_vocabulary)
        model = Transformer(config, [seed], source_size, target_size)
        model.eval()
        if config.train.precision == "float64":
            model.double()
        title = f"{recipe}, seed {seed}: at initialisation, not trained"
        limit = decoding_limit(config, data.longest_target)
        return TracedModel(title, config, model, data, limit)
    if recipe != name:
        raise HeadToHeadError(f"unknown recipe '{recipe}'{nearest(recipe, recipes)}")
    if overrides:
        raise HeadToHeadError(f"--set requires a recipe, and '{name}' is no recipe")
    run_names = []
    for record in runs.glob("*/*/run.json"):
        directory = record.parent
        run_names.append(directory.name)
        run_names.append(f"{directory.parent.name}/{directory.name}")
    is_path = (Path(name) / "run.json").is_file()
    is_start_of_a_name = any(run_name.startswith(name) for run_name in run_names)
    if not is_path and not is_start_of_a_name:
        hint = suggestion(name, [*recipes, *run_names]) or nearest(name, recipes)
        raise HeadToHeadError(f"no recipe and no run '{name}'{hint}")
    run = load(name, runs=runs)
    if run.words is None:
        raise HeadToHeadError(
            f"run '{run.path.name}' has no vocabularies; import its checkpoint with --data"
        )
    return TracedModel(f"run {run.path.name}", run.config, run.model, run.words, run.decoding_limit)

"""Measurements of the pitfalls of a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headtohead.model.operations import one_thread
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import Pitfall
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.page.descriptions import Notebook
from headtohead_notebooks.pitfalls.case import Case
from headtohead_notebooks.pitfalls.facts import Fact
from headtohead_notebooks.pitfalls.measurements import measure_pitfall


@dataclass(frozen=True)
class MeasuredPitfall:
    """One pitfall of a notebook with its measurements.

    Attributes:
        pitfall: The field and its consequence.
        facts: The measured facts, in sentences with numbers.
    """

    pitfall: Pitfall
    facts: tuple[Fact, ...]

    @property
    def numbers(self) -> dict[str, float]:
        """All measured numbers by name."""
        return {name: value for fact in self.facts for name, value in fact.numbers.items()}


def measure_notebook(
    notebook: Notebook, registry: Registry, cache: Path, data_file: Path | None
) -> tuple[RunConfig, tuple[MeasuredPitfall, ...]]:
    """Return the configuration of a notebook and its measured pitfalls.

    Args:
        notebook: The notebook.
        registry: The registry of this process.
        cache: Folder of downloads and prepared data; nothing is downloaded.
        data_file: Sentence pairs for a recipe without built-in data.

    Raises:
        HeadToHeadError: If the file cannot be read.
    """
    config = recipe_config(notebook.recipe, registry)
    if data_file is not None and "file" in type(config.data.options).model_fields:
        config = recipe_config(notebook.recipe, registry, [f"data.file={json.dumps(str(data_file))}"])
    case = Case(config, registry, cache)
    with one_thread():
        return config, tuple(
            MeasuredPitfall(pitfall, tuple(measure_pitfall(pitfall.name, case)))
            for pitfall in find_pitfalls(config, registry)
        )

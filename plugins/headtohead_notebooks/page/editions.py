"""The experiments of the page as they are run: the original files, or a quick form with less training.

Each edition is an experiment file, written beside the page, that ``h2h run`` can repeat.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headtohead.config.loading import load_text
from headtohead.config.source_location import located
from headtohead.config.yaml_text import dump, parse
from headtohead_notebooks.page.descriptions import EXPERIMENTS, load_descriptions

FILE = "data.file"
"""The field of a recipe that names a file of sentence pairs."""

NEEDS_FILE = "requires a Tatoeba file; add --data-file"

Fields = dict[str, Any]


@dataclass(frozen=True)
class Edition:
    """One experiment of the page as it is run.

    Attributes:
        experiment: The experiment.
        name: Name of its runs and its report.
        text: Text of the experiment file that is run.
        changes: Descriptions of the changes to the original file.
        omitted: Recipes that are not run, with the reason.
    """

    experiment: SimpleNamespace
    name: str
    text: str
    changes: tuple[str, ...] = ()
    omitted: Mapping[str, str] = field(default_factory=dict)


def editions(
    *, quick: bool, data_file: Path | None = None, folder: Path = Path()
) -> tuple[Edition, ...]:
    """Return every experiment of the page as it is to be run.

    Args:
        quick: Use the quick form; its runs have names of their own.
        data_file: Sentence pairs that replace the file named by an experiment.
        folder: Folder of the written files; paths in them are relative to it.
    """
    result = []
    for experiment in EXPERIMENTS:
        original = experiment_text(experiment.name)
        content, _ = parse(original, experiment.name)
        name = experiment.name
        form = "A form"
        reductions: Mapping[str, Any] = {}
        if quick:
            name = f"{experiment.name}-quick"
            form = "The quick form"
            reductions = load_descriptions("quick").get(experiment.name, {})
        changes = tuple(_reduce(content, reductions))
        omitted = _locate_files(content, data_file, folder)
        unchanged_content, _ = parse(original, experiment.name)
        if not changes and content == unchanged_content:
            text = original
        else:
            text = f"# {form} of experiments/{experiment.name}.yaml.\n"
            for change in changes:
                text += f"#   {change}\n"
            for recipe, reason in omitted.items():
                text += f"#   without {recipe}: {reason}\n"
            text += dump(content)
        load_text(text, folder / f"{name}.yaml")
        result.append(Edition(experiment, name, text, changes, omitted))
    return tuple(result)


def experiment_text(name: str) -> str:
    """Return the text of an experiment file: the installed copy, or the working tree's."""
    return (_originals() / f"{name}.yaml").read_text("utf-8")


def _originals() -> Path:
    """Return the folder of the experiment files: the installed copy, or the working tree's."""
    package = Path(str(resources.files("headtohead_notebooks.page")))
    installed = package / "experiments"
    if installed.is_dir():
        return installed
    return Path(__file__).parents[3] / "experiments"


def _reduce(content: Fields, reductions: Mapping[str, Any]) -> Iterator[str]:
    """Apply changes to an experiment: ``seeds``, ``base`` and ``recipes``; yield their descriptions."""
    original_seeds = content.get("seeds")
    seeds = reductions.get("seeds", original_seeds)
    if seeds != original_seeds:
        yield f"{seeds} seeds instead of {content.get('seeds', 6)}"
        content["seeds"] = seeds
    for path, value in reductions.get("base", {}).items():
        *sections, last = path.split(".")
        section = content.setdefault("base", {})
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
        yield f"{path}: {json.dumps(value)}"
    changed_recipes = reductions.get("recipes", {})
    for recipes in _recipe_lists(content):
        for index, recipe in enumerate(recipes):
            fields = recipe if isinstance(recipe, dict) else {"name": recipe}
            recipe_name = fields["name"]
            changed_fields = changed_recipes.get(recipe_name)
            if changed_fields:
                recipes[index] = fields | changed_fields
                yield f"{recipe_name}: {json.dumps(changed_fields)}"


def _locate_files(content: Fields, data_file: Path | None, folder: Path) -> dict[str, str]:
    """Write paths of data files relative to ``folder``; remove recipes without their file and return the reasons."""
    omitted = {}
    for recipes in _recipe_lists(content):
        for recipe in list(recipes):
            if not isinstance(recipe, dict) or not recipe.get(FILE):
                continue
            path = data_file or Path(located(recipe[FILE], _originals()))
            recipe[FILE] = os.path.relpath(path, folder)
            if not path.is_file():
                omitted[str(recipe["name"])] = NEEDS_FILE
                recipes.remove(recipe)
    return omitted


def _recipe_lists(content: Fields) -> Iterator[list[Any]]:
    """Yield the lists of recipes in the blocks of the design."""
    for block in content.get("design", []):
        for axes in block.values():
            recipes = axes.get("recipe")
            if isinstance(recipes, list):
                yield recipes

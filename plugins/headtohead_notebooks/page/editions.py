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
        reductions = load_descriptions("quick").get(experiment.name, {}) if quick else {}
        changes = tuple(_reduce(content, reductions))
        omitted = _locate_files(content, data_file, folder)
        lines = [
            f"{'The quick form' if quick else 'A form'} of experiments/{experiment.name}.yaml."
        ]
        lines += [f"  {change}" for change in changes]
        lines += [f"  without {recipe}: {reason}" for recipe, reason in omitted.items()]
        text = "".join(f"# {line}\n" for line in lines) + dump(content)
        if not changes and content == parse(original, experiment.name)[0]:
            text = original
        name = f"{experiment.name}-quick" if quick else experiment.name
        load_text(text, folder / f"{name}.yaml")
        result.append(Edition(experiment, name, text, changes, omitted))
    return tuple(result)


def experiment_text(name: str) -> str:
    """Return the text of an experiment file: the installed copy, or the working tree's."""
    return (_originals() / f"{name}.yaml").read_text("utf-8")


def _originals() -> Path:
    """Return the folder of the experiment files: the installed copy, or the working tree's."""
    installed = Path(str(resources.files("headtohead_notebooks.page"))) / "experiments"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "experiments"


def _reduce(content: Fields, reductions: Mapping[str, Any]) -> Iterator[str]:
    """Apply changes to an experiment: ``seeds``, ``base`` and ``recipes``; yield their descriptions."""
    if (seeds := reductions.get("seeds", content.get("seeds"))) != content.get("seeds"):
        yield f"{seeds} seeds instead of {content.get('seeds', 6)}"
        content["seeds"] = seeds
    for path, value in reductions.get("base", {}).items():
        *sections, last = path.split(".")
        section = content.setdefault("base", {})
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
        yield f"{path}: {json.dumps(value)}"
    for recipes in _recipe_lists(content):
        for index, recipe in enumerate(recipes):
            fields = recipe if isinstance(recipe, dict) else {"name": recipe}
            if changed := reductions.get("recipes", {}).get(fields["name"]):
                recipes[index] = fields | changed
                yield f"{fields['name']}: {json.dumps(changed)}"


def _locate_files(content: Fields, data_file: Path | None, folder: Path) -> dict[str, str]:
    """Write paths of data files relative to ``folder``; remove recipes without their file and return the reasons."""
    omitted = {}
    for recipes in _recipe_lists(content):
        for recipe in [
            recipe for recipe in recipes if isinstance(recipe, dict) and recipe.get(FILE)
        ]:
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
            if isinstance(axes.get("recipe"), list):
                yield axes["recipe"]

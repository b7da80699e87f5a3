"""The experiments of the page as they are run: the original files, or a quick form with less training.

Each edition is an experiment file, written beside the page, that ``h2h run`` can repeat.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from headtohead.config.loading import labelled, load_text
from headtohead.config.source_location import located
from headtohead.config.yaml_text import dump, parse
from headtohead_notebooks.page.descriptions import EXPERIMENTS, Experiment, load_descriptions

FILE = "file"
"""The dataset option that names a file of sentence pairs."""

NEEDS_FILE = "requires a Tatoeba file; add --data-file"

Fields = dict[str, Any]
_ABSENT = object()


@dataclass(frozen=True)
class Edition:
    """One experiment of the page as it is run.

    Attributes:
        experiment: The experiment.
        name: Name of its runs and its report.
        text: Text of the experiment file that is run.
        changes: Descriptions of the changes to the original file.
        overrides: Overrides of the base that are passed beside the text.
        omitted: Recipes that are not run, with the reason.
        seeds: Number of seeds that replaces the file's, or None.
    """

    experiment: Experiment
    name: str
    text: str
    changes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    omitted: Mapping[str, str] = field(default_factory=dict)
    seeds: int | None = None

    def write(self, folder: Path) -> Path:
        """Write the experiment file into a folder, unless the same text is there, and return its path."""
        path = folder / f"{self.name}.yaml"
        if not path.is_file() or path.read_text(encoding="utf-8") != self.text:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text, encoding="utf-8", newline="\n")
        return path


def editions(
    *,
    quick: bool,
    data_file: Path | None = None,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    label: str | None = None,
    folder: Path = Path(),
) -> tuple[Edition, ...]:
    """Return every experiment of the page as it is to be run.

    Args:
        quick: Use the quick form; its runs have names of their own.
        data_file: Sentence pairs that replace the file named by an experiment.
        overrides: Overrides of each base, such as ``"train.epochs=1"``.
        seeds: Number of seeds, instead of the file's.
        label: A suffix of each name, after a hyphen.
        folder: Folder of the written files; paths in them are relative to it.

    Raises:
        HeadToHeadError: For an invalid override.
    """
    return tuple(_edition(experiment, quick, data_file, overrides, seeds, label, folder) for experiment in EXPERIMENTS)


def experiment_text(name: str) -> str:
    """Return the text of an experiment file: the installed copy, or the working tree's."""
    return (_originals() / f"{name}.yaml").read_text("utf-8")


def _originals() -> Path:
    """Return the folder of the experiment files: the installed copy, or the working tree's."""
    installed = Path(str(resources.files("headtohead_notebooks.page"))) / "experiments"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "experiments"


def _edition(
    experiment: Experiment,
    quick: bool,
    data_file: Path | None,
    overrides: Sequence[str],
    seeds: int | None,
    label: str | None,
    folder: Path,
) -> Edition:
    original = text = experiment_text(experiment.name)
    content, _ = parse(original, experiment.name)
    reductions = load_descriptions("quick").get(experiment.name, {}) if quick else {}
    changes = [*_reduce(content, reductions), *(f"--set {override}" for override in overrides)]
    number = seeds if seeds is not None else reductions.get("seeds")
    if number is not None and number != content.get("seeds"):
        changes.insert(0, f"{number} seeds instead of {content.get('seeds', 6)}")
        content["seeds"] = number
    omitted, replaced = _replace_files(content, data_file, folder)
    name = labelled(f"{experiment.name}-quick" if quick else experiment.name, label)
    if changes or omitted or replaced:
        lines = [f"{'The quick form' if quick else 'A form'} of experiments/{experiment.name}.yaml."]
        lines += [f"  {change}" for change in changes]
        lines += [f"  without {recipe}: {reason}" for recipe, reason in omitted.items()]
        text = "".join(f"# {line}\n" for line in lines) + dump(content)
    load_text(text, folder / f"{name}.yaml", overrides)
    return Edition(experiment, name, text, tuple(changes), tuple(overrides), omitted, seeds)


def _reduce(content: Fields, reductions: Mapping[str, Any]) -> Iterator[str]:
    """Apply the changes of the quick form and yield their descriptions."""
    for path, value in reductions.get("base", {}).items():
        yield from _assign(content, path.split("."), value)
    for recipe, fields in reductions.get("recipes", {}).items():
        for recipes in _recipe_lists(content):
            recipes[:] = [
                {**_recipe_fields(item), **fields} if _recipe_fields(item)["name"] == recipe else item
                for item in recipes
            ]
        yield f"{recipe} with {', '.join(f'{name} {_yaml(value)}' for name, value in fields.items())}"
    for block in content.get("design", []):
        if "path" in block and "groups" in reductions:
            block["path"]["groups"] = reductions["groups"]
            yield f"{', '.join(reductions['groups'])}: each of these groups changes as one choice"


def _assign(content: Fields, path: Sequence[str], value: Any) -> Iterator[str]:
    """Set a field of the base and yield a description if the value changed."""
    *sections, last = path
    section = content.setdefault("base", {})
    for name in sections:
        section = section.setdefault(name, {})
    before = section.get(last, _ABSENT)
    section[last] = value
    if before != value:
        instead = "" if before is _ABSENT else f" instead of {_yaml(before)}"
        yield f"{'.'.join(path)} {_yaml(value)}{instead}"


def _replace_files(content: Fields, data_file: Path | None, folder: Path) -> tuple[dict[str, str], bool]:
    """Insert the path of the data file, and omit recipes with a missing file.

    Paths in the original file are relative to it; paths in the edition are relative to ``folder``.

    Returns:
        Omitted recipes with reasons, and whether a path was changed.
    """
    omitted: dict[str, str] = {}
    replaced = False
    for recipes in _recipe_lists(content):
        for recipe in [recipe for recipe in recipes if isinstance(recipe, dict)]:
            replaced |= _replace_file(recipe, f"data.{FILE}", data_file, folder)
            if _is_missing(recipe.get(f"data.{FILE}"), folder):
                omitted[str(recipe["name"])] = NEEDS_FILE
                recipes.remove(recipe)
    return omitted, replaced


def _replace_file(fields: Fields, name: str, data_file: Path | None, folder: Path) -> bool:
    if fields.get(name) is None:
        return False
    path = data_file or Path(located(fields[name], _originals()))
    before, fields[name] = fields[name], os.path.relpath(path, folder)
    return bool(fields[name] != before)


def _is_missing(file: str | None, folder: Path) -> bool:
    return file is not None and not Path(located(file, folder)).is_file()


def _recipe_lists(content: Fields) -> Iterator[list[Any]]:
    """Yield the lists of recipes in the blocks of the design."""
    for block in content.get("design", []):
        for axes in block.values():
            if isinstance(axes.get("recipe"), list):
                yield axes["recipe"]


def _recipe_fields(recipe: Any) -> Fields:
    """Return the name of a recipe in a design and its changed fields."""
    return dict(recipe) if isinstance(recipe, Mapping) else {"name": recipe}


def _yaml(value: Any) -> str:
    return dump({"": value}).partition(":")[2].strip()

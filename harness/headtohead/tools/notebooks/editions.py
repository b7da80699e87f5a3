"""The experiments of the page, as they are run: their files as they are, or a quick form of them.

An edition is an experiment file of its own, written beside the page, so that ``h2h run`` repeats
it.
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
from headtohead.tools.notebooks.known import EXPERIMENTS, Experiment, known

FILE = "file"
"""The option of a dataset that names a file of sentence pairs."""

NEEDS_FILE = "needs a Tatoeba file; give --data-file"

Fields = dict[str, Any]
_ABSENT = object()


@dataclass(frozen=True)
class Edition:
    """One experiment of the page, as it is run.

    Attributes:
        experiment: What it was made from.
        name: Of its runs and its report.
        text: Of the experiment file that is run.
        changes: What was changed in it, for readers.
        overrides: What is laid over the base when it is run, beside the text.
        left_out: Recipes that are not run, and why.
        reason: Why the experiment is not run at all.
        seeds: Number of replicates that was asked for instead of the file's.
    """

    experiment: Experiment
    name: str
    text: str
    changes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None
    seeds: int | None = None

    def write(self, folder: Path) -> Path:
        """Write the experiment file into a folder, unless it stands there as it is."""
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
        quick: Take the quick form, whose runs are kept apart from those of the files as they are.
        data_file: Sentence pairs that stand for the file that an experiment names.
        overrides: ``"train.epochs=1"``, laid over the base of each.
        seeds: Number of replicates, instead of the file's.
        label: Added to the name of each, after a hyphen.
        folder: Where the files will be written; paths in them are relative to it.

    Raises:
        HeadToHeadError: For an override that says nothing.
    """
    return tuple(
        _edition(one, quick, data_file, overrides, seeds, label, folder)
        for one in EXPERIMENTS
        if not (quick and one.only_full)
    )


def experiment_text(name: str) -> str:
    """Return an experiment file's text: the installed copy, or that of the working tree."""
    return (_originals() / f"{name}.yaml").read_text("utf-8")


def _originals() -> Path:
    """Return the folder of the experiment files: the installed copy, or the working tree's."""
    installed = Path(str(resources.files("headtohead.tools.notebooks"))) / "experiments"
    return installed if installed.is_dir() else Path(__file__).parents[4] / "experiments"


def _edition(
    one: Experiment,
    quick: bool,
    data_file: Path | None,
    overrides: Sequence[str],
    seeds: int | None,
    label: str | None,
    folder: Path,
) -> Edition:
    text = experiment_text(one.name)
    content, _ = parse(text, one.name)
    cut = known("quick").get(one.name, {}) if quick else {}
    changes = [*_cut(content, cut), *(f"--set {text}" for text in overrides)]
    number = seeds if seeds is not None else cut.get("seeds")
    if number is not None and number != content.get("seeds"):
        changes.insert(0, f"{number} seeds instead of {content.get('seeds', 6)}")
        content["seeds"] = number
    left_out, replaced, reason = _files(content, data_file, folder)
    name = labelled(f"{one.name}-quick" if quick else one.name, label)
    if changes or left_out or replaced:
        text = f"{_heading(one.name, quick, changes, left_out)}{dump(content)}"
    load_text(text, folder / f"{name}.yaml", overrides)
    return Edition(one, name, text, tuple(changes), tuple(overrides), left_out, reason, seeds)


def _heading(name: str, quick: bool, changes: list[str], left_out: Mapping[str, str]) -> str:
    lines = [f"{'The quick form' if quick else 'A form'} of experiments/{name}.yaml."]
    lines += [f"  {change}" for change in changes]
    lines += [f"  without {recipe}: {reason}" for recipe, reason in left_out.items()]
    return "".join(f"# {line}\n" for line in lines)


def _cut(content: Fields, cut: Mapping[str, Any]) -> Iterator[str]:
    for path, value in cut.get("base", {}).items():
        yield from _assign(content, path.split("."), value)
    for recipe, fields in cut.get("recipes", {}).items():
        for values in _recipe_lists(content):
            values[:] = [{**_fields(one), **fields} if _fields(one)["name"] == recipe else one for one in values]
        yield f"{recipe} with {_listed(fields)}"
    for block in content.get("design", []):
        if "path" in block and "together" in cut:
            block["path"]["together"] = cut["together"]
            yield f"{', '.join(cut['together'])}: each of these changes as one choice"


def _assign(content: Fields, path: Sequence[str], value: Any) -> Iterator[str]:
    """Set a field of the base and say what was changed, if anything was."""
    *sections, last = path
    place = content.setdefault("base", {})
    for section in sections:
        place = place.setdefault(section, {})
    before = place.get(last, _ABSENT)
    place[last] = value
    if before != value:
        instead = "" if before is _ABSENT else f" instead of {_shown(before)}"
        yield f"{'.'.join(path)} {_shown(value)}{instead}"


def _files(content: Fields, given: Path | None, folder: Path) -> tuple[dict[str, str], bool, str | None]:
    """Name the file that was given; without one, leave out what names a file that is not here.

    Paths in the original file are relative to it; those of the edition, to ``folder``.

    Returns:
        Recipes that were left out, whether a name was exchanged, and why nothing is left to run.
    """
    left_out: dict[str, str] = {}
    base = content.get("base", {}).get("data", {})
    replaced = _replace(base, FILE, given, folder)
    if _lacks(base.get(FILE), folder):
        return left_out, replaced, NEEDS_FILE
    for values in _recipe_lists(content):
        for one in [one for one in values if isinstance(one, dict)]:
            replaced |= _replace(one, f"data.{FILE}", given, folder)
            if _lacks(one.get(f"data.{FILE}"), folder):
                left_out[str(one["name"])] = NEEDS_FILE
                values.remove(one)
    return left_out, replaced, None


def _replace(fields: Fields, name: str, given: Path | None, folder: Path) -> bool:
    if fields.get(name) is None:
        return False
    path = given or Path(located(fields[name], _originals()))
    before, fields[name] = fields[name], os.path.relpath(path, folder)
    return bool(fields[name] != before)


def _lacks(file: str | None, folder: Path) -> bool:
    return file is not None and not Path(located(file, folder)).is_file()


def _recipe_lists(content: Fields) -> Iterator[list[Any]]:
    """Yield the lists of recipes that blocks of the design vary."""
    for block in content.get("design", []):
        for axes in block.values():
            if isinstance(axes.get("recipe"), list):
                yield axes["recipe"]


def _fields(recipe: Any) -> Fields:
    """Return a recipe of a design with the fields given with it, its name among them."""
    return dict(recipe) if isinstance(recipe, Mapping) else {"name": recipe}


def _listed(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in fields.items())


def _shown(value: Any) -> str:
    return dump({"": value}).partition(":")[2].strip()

"""Editions are the experiment files, and the quick form lists its changes."""

import importlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from headtohead.config.loading import load_text
from headtohead.config.yaml_text import parse
from headtohead.planning.design import expand
from headtohead_notebooks.page import Edition, editions
from headtohead_notebooks.page.editions import NEEDS_FILE, experiment_text
from made import case_table

module = importlib.import_module(
    "headtohead_notebooks.page.editions"
)  # not the function of that name
TREE = Path(__file__).parents[2] / "experiments"
PRINTED = "notebooks-as-printed"


def content(text: str) -> dict[str, Any]:
    value, _ = parse(text, "test")
    return dict(value)


def edition(name: str, **given: Any) -> Edition:
    return next(
        edition
        for edition in editions(**{"quick": False, **given})
        if edition.experiment.name == name
    )


def recipes(text: str) -> list[Any]:
    return list(content(text)["design"][0]["one_at_a_time"]["recipe"])


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "some: pairs.tsv"
    file.write_text("hello\thola\n", encoding="utf-8")
    return file


@pytest.fixture
def originals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the experiment files, beside which no file of pairs exists."""
    folder = shutil.copytree(TREE, tmp_path / "original" / "experiments")
    monkeypatch.setattr(module, "_originals", lambda: folder)
    return folder


@case_table("quick", [True, False], default=1)
def test_every_edition_describes_variants_under_a_name_of_its_form(
    quick: bool, pairs: Path
) -> None:
    made = editions(quick=quick, data_file=pairs)
    assert len({edition.name for edition in made}) == 6
    for edition in made:
        assert edition.name.endswith("-quick") == quick
        loaded = load_text(edition.text, Path(f"{edition.name}.yaml"))
        assert len(expand(loaded).variants) > 1


def test_the_quick_form_makes_exactly_the_listed_changes() -> None:
    before = content(experiment_text("heads-split-or-independent"))
    quick = edition("heads-split-or-independent", quick=True)
    assert "3 seeds instead of 6" in quick.changes
    assert "train.epochs: 4" in quick.changes
    assert all(f"#   {change}\n" in quick.text for change in quick.changes)
    before["seeds"] = 3
    before["base"]["train"] |= {"epochs": 4, "evaluate_every": 200}
    before["base"]["evaluate"] = {"test_limit": 150, "unpadded": False}
    assert content(quick.text) == before


def test_a_given_file_replaces_the_named_file(pairs: Path) -> None:
    given = edition(PRINTED, data_file=pairs, folder=pairs.parent / "pages")
    (file,) = (recipe["data.file"] for recipe in recipes(given.text) if isinstance(recipe, dict))
    assert file == "../some: pairs.tsv"
    assert given.omitted == {}


def test_a_path_of_the_original_is_written_relative_to_the_edition(
    tmp_path: Path, originals: Path
) -> None:
    (named,) = (
        recipe["data.file"]
        for recipe in recipes(experiment_text(PRINTED))
        if isinstance(recipe, dict)
    )
    file = originals / named
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("hello\thola\n", encoding="utf-8")
    folder = tmp_path / "reports" / "notebooks" / "experiments"
    made = edition(PRINTED, folder=folder)
    assert made.omitted == {}
    variants = expand(load_text(made.text, folder / "x.yaml")).variants
    files = [getattr(variant.config.data.options, "file", None) for variant in variants]
    assert [file for file in files if file] == [os.path.normpath(file)]


def test_without_the_file_only_recipes_that_require_it_are_omitted(originals: Path) -> None:
    without_file = edition(PRINTED)
    assert without_file.omitted == {"tatoeba-en-es": NEEDS_FILE}
    assert recipes(without_file.text) == ["architecture-en-de", "slides-en-fr", "by-hand-en-fr"]

"""Editions are the experiment files, and the quick form lists its changes."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from headtohead.config.loading import load_text
from headtohead.config.yaml_text import parse
from headtohead.planning.design import expand
from headtohead.plugins.registry import current
from headtohead_notebooks.page import EXPERIMENTS, Edition, editions
from headtohead_notebooks.page.editions import NEEDS_FILE, experiment_text
from made import case_table

module = importlib.import_module("headtohead_notebooks.page.editions")  # not the function of that name
TREE = Path(__file__).parents[2] / "experiments"
NAMES = [experiment.name for experiment in EXPERIMENTS]


def content(text: str) -> dict[str, Any]:
    value, _ = parse(text, "test")
    return dict(value)


def edition(name: str, **given: Any) -> Edition:
    made = editions(**{"quick": False, **given})
    return next(edition for edition in made if edition.experiment.name == name)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "some: pairs.tsv"
    file.write_text("hello\thola\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("name", NAMES)
def test_every_packaged_experiment_equals_the_file_of_the_repository(name: str) -> None:
    assert experiment_text(name) == (TREE / f"{name}.yaml").read_text(encoding="utf-8")


@case_table("quick", [True, False], default=1)
def test_every_edition_describes_variants(quick: bool, pairs: Path) -> None:
    for edition in editions(quick=quick, data_file=pairs):
        loaded = load_text(edition.text, Path(f"{edition.name}.yaml"))
        assert len(expand(loaded, current()).variants) > 1


def test_the_quick_form_has_six_experiments_with_separate_names() -> None:
    quick = {edition.name for edition in editions(quick=True)}
    assert len(quick) == 6
    assert all(name.endswith("-quick") for name in quick)
    assert quick & {edition.name for edition in editions(quick=False)} == set()


def test_the_quick_form_makes_exactly_the_listed_changes() -> None:
    before = content(experiment_text("heads-split-or-independent"))
    quick = edition("heads-split-or-independent", quick=True)
    after = content(quick.text)
    assert "3 seeds instead of 6" in quick.changes
    assert f"train.epochs 4 instead of {before['base']['train']['epochs']}" in quick.changes
    for change in quick.changes:
        assert f"#   {change}\n" in quick.text
    before["seeds"] = 3
    before["base"]["train"] |= {"epochs": 4, "evaluate_every": 200}
    before["base"]["evaluate"] = {"test_limit": 150, "unpadded": False}
    assert after == before


def test_a_given_file_replaces_the_named_file(pairs: Path) -> None:
    given = edition("notebooks-as-printed", data_file=pairs, folder=pairs.parent / "pages")
    recipes = content(given.text)["design"][0]["one_at_a_time"]["recipe"]
    (tatoeba,) = (recipe for recipe in recipes if isinstance(recipe, dict) and "data.file" in recipe)
    assert tatoeba["data.file"] == "../some: pairs.tsv"
    assert given.omitted == {}


def test_a_path_of_the_original_is_written_relative_to_the_edition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = tmp_path / "experiments"
    shutil.copytree(TREE, original)
    monkeypatch.setattr(module, "_originals", lambda: original)
    recipes = content(experiment_text("notebooks-as-printed"))["design"][0]["one_at_a_time"]
    (named,) = (recipe_["data.file"] for recipe_ in recipes["recipe"] if "data.file" in recipe_)
    file = original / named
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("hello\thola\n", encoding="utf-8")
    folder = tmp_path / "reports" / "notebooks" / "experiments"
    made = edition("notebooks-as-printed", folder=folder)
    assert made.omitted == {}
    loaded = load_text(made.text, folder / "x.yaml")
    files = [
        variant.config.data.options.file
        for variant in expand(loaded, current()).variants
        if hasattr(variant.config.data.options, "file")
    ]
    assert files == [os.path.normpath(file)]


def test_without_the_file_only_recipes_that_require_it_are_omitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(TREE, tmp_path / "a" / "b" / "experiments")
    monkeypatch.setattr(module, "_originals", lambda: tmp_path / "a" / "b" / "experiments")
    without_file = edition("notebooks-as-printed")
    recipes = content(without_file.text)["design"][0]["one_at_a_time"]["recipe"]
    names = [recipe if isinstance(recipe, str) else recipe["name"] for recipe in recipes]
    assert without_file.omitted == {"tatoeba-en-es": NEEDS_FILE}
    assert names == ["architecture-en-de", "slides-en-fr", "by-hand-en-fr"]

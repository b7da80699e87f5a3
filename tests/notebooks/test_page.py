"""The page: five rows, every pitfall with its effect, and no network access."""

import functools
import importlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.page import content, editions, write_page
from headtohead_notebooks.page import page as page_module
from headtohead_notebooks.page.descriptions import NOTEBOOKS
from made.fake_study import Study, write_study
from made.page import Page

HOSTILE = '<img src="x" onerror="alert(1)"> & | `code` **bold**'
OWN = "notebooks-as-printed-quick"
SAME = "notebooks-same-data-quick"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SMALL = ["model.d_model=16", "model.heads=2", "model.layers=1", "model.d_ff=32"]
RECIPES = [notebook.recipe for notebook in NOTEBOOKS]


Write = Callable[..., str]


def attributes(page: Page, *names: str) -> list[str]:
    """Return the values of attributes; an address inside the page starts with ``#``."""
    return [
        value
        for _, named in page.elements
        for name, value in named.items()
        if name in names and value
    ]


@pytest.fixture(scope="module")
def measured(cache: Path) -> Callable[..., Any]:
    """Return a function that measures a notebook once, at a small size and without the file of notebook 3."""

    def small_config(recipe: str) -> Any:
        is_large = recipe in ("architecture-en-de", "tatoeba-en-es")
        return recipe_config(recipe, SMALL if is_large else [])

    @functools.cache
    def measure(recipe: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(content, "recipe_config", small_config)
            return content.measure_notebook(recipe, cache, None)

    return lambda recipe, *_: measure(recipe)


@pytest.fixture
def write(tmp_path: Path, measured: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes the page of the runs, without a Tatoeba file, and returns its text."""
    monkeypatch.chdir(tmp_path)
    # A copy, since the named Tatoeba file may exist beside the original experiments.
    copy = shutil.copytree(EXPERIMENTS, tmp_path / "experiments")
    module = importlib.import_module("headtohead_notebooks.page.editions")
    monkeypatch.setattr(module, "_originals", lambda: copy)
    monkeypatch.setattr(page_module, "measure_notebook", measured)

    def page() -> str:
        path = write_page(
            editions(quick=True),
            runs=tmp_path / "runs",
            out=tmp_path / "out",
            cache=cache,
            data_file=None,
            command="h2h notebooks",
            quick=True,
        )
        return path.read_text(encoding="utf-8")

    return page


def studies(folder: Path, **changes: Any) -> None:
    """Write runs of the notebooks on their own data and on the same data."""
    own = Study(
        name=OWN,
        axes={"recipe": RECIPES},
        seeds=(1, 2),
        maps=False,
        primary="valid/loss",
        one_at_a_time=True,
    )
    same = Study(
        name=SAME,
        seeds=(1, 2),
        maps=False,
        primary="test/exact_match",
        one_at_a_time=True,
        axes={"recipe": ["tatoeba-en-es(positional=sinusoidal)", *RECIPES[:4]]},
    )
    for study in (own, same):
        for name, value in changes.items():
            setattr(study, name, value)
        write_study(folder, study)


def text_of(page: str) -> str:
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_the_page_without_runs_is_complete_and_fetches_nothing(write: Write) -> None:
    text = write()
    page = Page(text)
    for notebook in NOTEBOOKS:
        assert f'id="notebook-{notebook.number}"' in text
        assert notebook.title in text
    assert "No answer: not run yet" in text_of(text)
    assert "Not measured: no file" in text_of(text)
    ids, links = attributes(page, "id"), attributes(page, "href", "src", "srcset", "data")
    assert len(ids) == len(set(ids))
    assert sum(name.startswith("pitfall-") for name in ids) == 15
    assert len(links) > 40
    assert set(links) <= {f"#{name}" for name in ids} | {"data:,"}
    assert {tag for tag, _ in page.elements} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
    } == set()
    assert not re.search(r"@import|url\((?!#)", text)


def test_a_row_has_the_scores_on_own_and_on_common_data(tmp_path: Path, write: Write) -> None:
    studies(tmp_path / "runs")
    page = write()
    row = text_of(page.split('id="notebook-1"')[1].split('id="notebook-2"')[0])
    assert "guessing among 117 words gives 4.76" in row
    assert re.search(r"\d+ of \d+ translations correct", row)
    assert re.search(r"exact match 0\.\d+ \([^)]*\), test token accuracy 0\.", row)
    third = text_of(page.split('id="notebook-3"')[1].split('id="notebook-4"')[0])
    assert "as written: exact match" in third
    assert "with positions by time: exact match" in third
    assert "10 of 10 runs done, 2 seeds" in text_of(page)
    assert row.count("exact match 0.") == 1


def test_no_text_of_a_run_becomes_markup(tmp_path: Path, write: Write) -> None:
    refused = {"axes": {"recipe": "by-hand-en-fr"}, "reason": HOSTILE, "source": "incompatible"}
    studies(tmp_path / "runs", excluded=[refused], sentences=[(HOSTILE, HOSTILE)] * 3)
    page = write()
    assert "<img" not in page
    assert "&lt;img src=" in page
    assert all(
        link.startswith("#") or link == "data:," for link in attributes(Page(page), "href", "src")
    )

"""The sample of docs/how-to/mlflow.md runs, and its names and pictures exist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.tracking.replay import STATUS
from headtohead.tracking.rundirs import TrackedStudy
from headtohead.tracking.view import views

MakeExperiment = Callable[..., Path]
DOCS = Path(__file__).parents[2] / "docs"
LARGEST_PICTURE = 250_000


@pytest.fixture
def page() -> str:
    return (DOCS / "how-to" / "mlflow.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_python_sample_runs(
    page: str,
    make_experiment: MakeExperiment,
    tmp_path: Path,
    store_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_experiment(seeds=1, axes={"positional": ["rotary"]})
    monkeypatch.chdir(tmp_path)
    (sample,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(sample, "docs/how-to/mlflow.md", "exec"), {})
    assert capsys.readouterr().out == "quickstart: 1 shipped, 0 unchanged\n"
    assert (tmp_path / "fetched/quickstart/experiment.json").is_file()


def test_every_view_is_in_the_table(page: str, make_experiment: MakeExperiment) -> None:
    study = TrackedStudy.read(make_experiment(seeds=1, axes={"positional": ["rotary"]}))
    names = [json.loads(value)["name"].partition(":")[0] for value in views(study).values()]
    for name in names:
        assert f"| {name.replace('positional', '*axis*')} |" in page


def test_every_state_with_a_separate_status_is_explained(page: str) -> None:
    for state in STATUS.keys() - {"PLANNED", "LEASED"}:
        assert f"| {state} |" in page


def test_pictures_exist_and_are_small(page: str) -> None:
    pictures = re.findall(r"\]\(\.\./(images/[^)]+)\)", page)
    assert pictures
    for picture in pictures:
        assert (DOCS / picture).stat().st_size <= LARGEST_PICTURE

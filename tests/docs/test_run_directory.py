"""docs/reference/run-directory.md against the folder that a small study really leaves behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import headtohead

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run-directory.md"

STUDY = """
question: What does a study leave behind?
base:
  data: {dataset: toy-grammar, limit: 300}
  model: {d_model: 16, heads: 2, layers: 1, d_ff: 16, dropout: 0.0}
  train: {steps: 10, batch_tokens: 256, evaluate_every: 5}
  evaluate: {test_limit: 10, max_length: 8}
baseline: {masking: padding-causal}
seeds: 2
"""


@pytest.fixture(scope="module")
def experiment(
    tmp_path_factory: pytest.TempPathFactory, no_figures: Callable[[], AbstractContextManager[None]]
) -> Path:
    folder = tmp_path_factory.mktemp("study")
    file = folder / "small.yaml"
    file.write_text(STUDY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, no_figures():
        patch.setenv("H2H_CACHE", str(folder / "cache"))
        done = headtohead.run(file, runs=folder / "runs", reports=folder / "reports", device="cpu", tracking=False)
    assert done.states == {"DONE": 2}
    return done.experiment


@pytest.fixture(scope="module")
def run(experiment: Path) -> Path:
    return next(experiment.glob("*-s1-*"))


def named() -> set[str]:
    """Return every name that the page sets in code."""
    return {name for text in re.findall(r"`([^`\n]+)`", PAGE.read_text("utf-8")) for name in re.split(r"[\s,]+", text)}


def tree() -> list[str]:
    """Return the names of the page's folder listing."""
    listing = PAGE.read_text("utf-8").split("```text\n")[1].split("```")[0]
    return [line.split()[0] for line in listing.splitlines()]


def test_every_file_of_a_run_is_in_the_listing(run: Path) -> None:
    found = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert len(found) >= 8
    found -= {name for name in found if name.startswith("attempts/")}
    assert found <= set(tree())


def test_every_file_of_a_study_is_in_the_listing(experiment: Path) -> None:
    runs = {path.name for path in experiment.glob("*-s*-????????")}
    beside = {path.name for path in experiment.iterdir()} - runs
    assert beside <= {name.split("/")[0] for name in tree()}


def test_every_file_of_the_listing_exists_after_a_run(run: Path) -> None:
    always = {
        "run.json",
        "status.json",
        "metrics.jsonl",
        "results.json",
        "translations.tsv",
        "attention/maps.safetensors",
        "attention/probes.json",
        "checkpoint.safetensors",
        "vocabulary.json",
    }
    assert always <= set(tree())
    assert [name for name in always if not (run / name).is_file()] == []


@pytest.mark.parametrize("name", ["run.json", "status.json", "results.json"])
def test_every_field_of_a_runs_files_is_explained(run: Path, name: str) -> None:
    fields = set(json.loads((run / name).read_text("utf-8")))
    assert fields <= named()


def test_every_field_of_the_experiment_is_explained(experiment: Path) -> None:
    record = json.loads((experiment / "experiment.json").read_text("utf-8"))
    assert set(record) | set(record["variants"][0]) | set(record["runs"][0]) <= named()


def test_every_field_of_a_probe_is_explained(run: Path) -> None:
    probes = json.loads((run / "attention" / "probes.json").read_text("utf-8"))
    assert set(probes[0]) <= named()


def test_the_columns_of_the_translations_are_those_of_the_page(run: Path) -> None:
    header = (run / "translations.tsv").read_text("utf-8").splitlines()[0]
    columns = header.split("\t")
    assert f"Columns {', '.join(f'`{name}`' for name in columns[:1])}" in PAGE.read_text("utf-8")
    assert set(columns) <= named()


def test_a_line_of_metrics_has_the_fields_of_the_page(run: Path) -> None:
    line = json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[0])
    (sample,) = re.findall(r"`(\{\"step\".*?\})`", PAGE.read_text("utf-8"))
    assert list(line) == list(json.loads(sample.replace(", …", "")))


def test_the_page_names_every_state() -> None:
    from headtohead.storage import states

    known = {value for name, value in vars(states).items() if name.isupper() if isinstance(value, str)}
    text = PAGE.read_text(encoding="utf-8")
    assert [state for state in known if state not in text] == []

"""docs/reference/run-directory.md lists every file and field of a small study."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from headtohead.storage import states
from made.study import Completed, Study

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "run-directory.md").read_text(
    encoding="utf-8"
)
pytestmark = pytest.mark.slow  # trains a study


@pytest.fixture(scope="module")
def experiment(
    tmp_path_factory: pytest.TempPathFactory, h2h_here: Callable[..., Completed], no_figures: Any
) -> Path:
    folder = tmp_path_factory.mktemp("study")
    study = Study(folder, folder / "cache", h2h_here)
    study.write(
        base={
            "train": {"steps": 10, "evaluate_every": 5},
            "evaluate": {"test_limit": 10, "max_length": 8},
        }
    )
    with no_figures():
        study.run()
    return study.experiment


def test_the_listing_has_every_file(experiment: Path) -> None:
    listing = PAGE.split("```text\n")[1].split("```")[0]
    listed = {line.split()[0] for line in listing.splitlines()}
    run = next(experiment.glob("*-s1-*"))
    found = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {name for name in found if not name.startswith("attempts/")} <= listed
    beside = {path.name for path in experiment.iterdir()} - {
        path.name for path in experiment.glob("*-s*-????????")
    }
    assert beside <= {name.split("/")[0] for name in listed}


def test_every_field_and_state_is_explained(experiment: Path) -> None:
    named = {
        name for text in re.findall(r"`([^`\n]+)`", PAGE) for name in re.split(r"[\s,]+", text)
    }
    run = next(experiment.glob("*-s1-*"))
    record, probes, *files = (
        json.loads(path.read_text("utf-8"))
        for path in (
            experiment / "experiment.json",
            run / "attention" / "probes.json",
            *(run / name for name in ("run.json", "status.json", "results.json")),
        )
    )
    columns = (run / "translations.tsv").read_text("utf-8").splitlines()[0].split("\t")
    fields = {*record, *record["variants"][0], *record["runs"][0], *probes[0], *columns}.union(
        *files
    )
    with safe_open(run / "examples.safetensors", framework="numpy") as examples:
        fields |= {*examples.metadata()}
        for name in examples.keys():  # noqa: SIM118  (not a mapping)
            array = name.split("/")[1]
            fields.add("counts/<metric>" if array == "counts" else array)
    assert fields - named == set()
    known = {
        value for name, value in vars(states).items() if name.isupper() if isinstance(value, str)
    }
    assert [state for state in known if state not in PAGE] == []
    line = json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[0])
    (sample,) = re.findall(r"`(\{\"step\".*?\})`", PAGE)
    assert list(line) == list(json.loads(sample.replace(", …", "")))

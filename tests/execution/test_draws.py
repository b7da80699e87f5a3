"""A study with ``data.seed: per-run``, run by the real command: data, stacks, records and report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from headtohead import files
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import translations_of

if TYPE_CHECKING:
    from .conftest import Study

PAIR = [{"product": {"positional": ["sinusoidal", "rotary"]}}]


def check_draws(study: Study) -> None:
    """Compare the runs of two variants and two seeds with their data and stacks, and repeat the study."""
    frames = load_frames(study.experiment)
    assert frames.has_draws
    assert set(frames.runs["state"]) == {"DONE"}
    hashes = frames.runs.groupby("seed")["data_hash"].unique()
    assert [len(of_seed) for of_seed in hashes] == [1, 1]
    assert hashes[1][0] != hashes[2][0]
    for path in study.directories():
        record = files.read_json(path / "run.json")
        assert record["config"]["data"]["seed"] == record["seed"]
    sources = {
        (slug, seed): [row.source for row in translations_of(frames, slug, seed)]
        for slug in frames.by_slug
        for seed in (1, 2)
    }
    assert sources["sinusoidal", 1] == sources["rotary", 1] != sources["sinusoidal", 2] == sources["rotary", 2]
    stacks = {tuple(sorted(frames.details[name].execution.stack)) for name in frames.runs.index}
    assert len(stacks) == 2
    assert "training" not in study.run().stderr


@pytest.mark.parametrize("tracking", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_seed_trains_on_its_own_draw(study: Study, tracking: bool) -> None:
    study.write(design=PAIR, base={"data": {"seed": "per-run"}}, margin=0.03)
    study.run(tracking=tracking)
    check_draws(study)
    report = (study.folder / "reports/tiny/report.md").read_text()
    assert "Each seed has a new draw of the data, with its own split and vocabulary" in report
    assert "a new draw of the data for each seed; sizes, hash and other numbers are those of seed 1" in report
    assert "| training seed, draw of the data and its test sentences |" in report
    assert "| draw of the data |" not in report
    assert "| valid/loss |" in report
    points = files.read_json(study.experiment / "reference_points.json")["data"]
    assert {entry["data_hash"] for entry in points} == set(load_frames(study.experiment).runs["data_hash"])
    assert len(points) == 2
    assert "Reference points: nearest-neighbour translation has" in report


@pytest.mark.slow
def test_a_run_scores_like_the_run_with_its_seed_as_a_number(study: Study) -> None:
    def scores() -> dict[str, float]:
        (run,) = (scores for name, scores in study.scores().items() if "-s2-" in name)
        # Attention is measured on the probe sentences of the study.
        return {metric: value for metric, value in run.items() if not metric.startswith("attention/")}

    study.write(base={"data": {"seed": "per-run"}})
    study.run()
    drawn = scores()
    study.write(base={"data": {"seed": 2}}, seeds=[2])
    study.run("--fresh")
    assert drawn == scores()


@pytest.mark.slow
def test_tatoeba_is_drawn_anew(study: Study, real: Callable[[str], Path]) -> None:
    file = real("eng-spa.manythings-2019-07-21.2col.tsv.xz")
    data = {"dataset": "tatoeba", "options": {"pair": "eng-spa", "file": str(file)}, "limit": 2000, "max_words": 8}
    study.write(design=PAIR, metrics={"primary": "test/chrf"})
    content = yaml.safe_load(study.file.read_text())
    content["base"]["data"] = {**data, "seed": "per-run"}
    study.file.write_text(yaml.safe_dump(content))
    study.run()
    check_draws(study)

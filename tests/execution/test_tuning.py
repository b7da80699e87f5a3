"""An experiment with a sweep, run by the real command: first the sweep, then the study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headtohead import files

if TYPE_CHECKING:
    from .conftest import Study


def test_the_sweep_is_trained_first_and_each_variant_uses_its_best_setting(study: Study) -> None:
    study.write(design=[{"product": {"positional": ["sinusoidal", "alibi"]}}], tune={"train.lr": [1e-9, 0.02]}, seeds=1)
    done = study.run()
    assert "tuning first: 8 runs of tiny-tuning" in done.stdout
    assert "training 8 runs in 1 stack" in done.stderr
    assert "training 2 runs in 1 stack" in done.stderr
    for path in study.directories():
        assert files.read_json(path / "run.json")["config"]["train"]["lr"] == 0.02
    plan = files.read_json(study.experiment / "experiment.json")
    assert all(variant["chosen"] == {"train.lr": 0.02} for variant in plan["tuning"]["variants"].values())
    markdown = (study.folder / "reports/tiny/report.md").read_text()
    assert "## Tuning" in markdown
    assert "| valid/loss | lr 1e-09 | lr 0.02 |" in markdown
    page = (study.folder / "reports/tiny/index.html").read_text()
    assert 'href="#tuning"' in page
    again = study.run()
    assert "tuning first" not in again.stdout
    assert "training" not in again.stderr


@pytest.mark.slow
def test_a_failed_sweep_is_reported_and_nothing_is_compared(study: Study) -> None:
    study.write(base={"train": {"steps": 1_000_000}}, tune={"train.lr": [0.001]}, seeds=1)
    done = study.run("--timeout", "1.5", code=1)
    assert "not complete: 2 TIMEOUT; h2h status tiny-tuning shows each" in done.stdout
    assert not (study.runs / "tiny").exists()


def test_fresh_trains_the_sweep_and_every_look_anew(study: Study) -> None:
    """Another experiment with the same runs must not stand in for them either."""
    study.write(
        base={"train": {"steps": 20}, "evaluate": {"unpadded": False, "test_limit": 4}},
        design=[{"one_at_a_time": {"model.dropout": [0.101]}}],
        tune={"train.lr": [1e-9, 0.02]},
        seeds={"until": "decided", "at_most": 6, "looks": 2},
        metrics={"primary": "valid/loss", "report": []},
    )
    study.run("--no-tracking")
    study.run("--no-tracking", "--name", "copy")
    before = {path.name for path in study.directories()}
    sweep = study.runs / "tiny-tuning"
    tried = {path.parent.name for path in sweep.glob("*/results.json")}
    study.run("--no-tracking", "--fresh")
    assert {path.name for path in study.directories()} == before
    assert {path.parent.name for path in study.experiment.glob(".archived/*/*/results.json")} == before
    assert {path.parent.name for path in sweep.glob(".archived/*/*/results.json")} == tried
    for path in study.directories():
        assert files.read_json(path / "run.json")["config"]["train"]["lr"] == 0.02
    planned = files.read_json(study.experiment / "experiment.json")
    assert [run["reused_from"] for run in planned["runs"]] == [None] * 12

"""Judging the runs of an MLflow store, logged by headtohead or by other code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headtohead.cli import main
from headtohead.tracking.judge import experiment_table
from headtohead.tracking.store import open_store

SCORES = {"base": [0.80, 0.82, 0.81, 0.79], "new": [0.85, 0.86, 0.855, 0.84]}


@pytest.fixture(scope="module")
def foreign_store(tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> str:
    """The URI of a store with an experiment that other code has logged, with curves of the metric."""
    uri = f"sqlite:///{shutil.copy(store_template, tmp_path_factory.mktemp('other') / 'other.db')}"
    client = open_store(uri, create=False).client
    experiment = client.create_experiment("sweep")
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            run = client.create_run(experiment, run_name=f"{variant}-{seed}").info.run_id
            client.log_param(run, "arch", variant)
            client.log_param(run, "seed", seed)
            for step in (1, 2):
                client.log_metric(run, "val/accuracy", score * step / 2, step=step)
            client.set_terminated(run)
    crashed = client.create_run(experiment, run_name="crashed").info.run_id
    client.log_param(crashed, "arch", "new")
    client.log_param(crashed, "seed", 9)
    client.set_terminated(crashed, status="FAILED")
    return uri


def _judge(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["judge", *arguments])


def test_runs_of_other_code_are_judged_by_the_last_step(foreign_store: str) -> None:
    arguments = ("--experiment", "sweep", "--baseline", "base", "--variant", "arch", "--metric", "val/accuracy")
    result = _judge(foreign_store, *arguments)
    assert result.exit_code == 0, result.output
    assert "baseline base: 0.8050" in result.output
    assert "left out, as their status is not finished: row 1 (FAILED)" in result.output


def test_an_unknown_experiment_and_a_missing_store_are_one_line(foreign_store: str, tmp_path: Path) -> None:
    result = _judge(foreign_store, "--experiment", "swep", "--baseline", "base")
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert "no experiment 'swep'" in result.output
    assert "did you mean 'sweep'?" in result.output
    result = _judge(foreign_store, "--baseline", "base")
    assert result.output.endswith("is an MLflow store; name its experiment: --experiment NAME\n")
    result = _judge(f"sqlite:///{tmp_path / 'none.db'}", "--experiment", "sweep", "--baseline", "base")
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)


@pytest.mark.slow
def test_runs_of_headtohead_are_judged_like_their_report(
    make_experiment: Callable[..., Path], tmp_path: Path, store_uri: str
) -> None:
    make_experiment(seeds=4, axes={"positional": ["sinusoidal", "none"]})
    assert CliRunner().invoke(main, ["sync", "--runs", str(tmp_path / "runs")]).exit_code == 0
    table = experiment_table(store_uri, "quickstart", None)
    assert sorted(table["variant"].unique()) == ["none", "sinusoidal"]
    result = _judge(store_uri, "--experiment", "quickstart", "--baseline", "sinusoidal", "--metric", "test/exact_match")
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[-1].endswith("worse")

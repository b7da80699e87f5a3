"""Old results after an edit of the experiment file: the answer, answer.json, status and MLflow are STALE."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mlflow import MlflowClient

from headtohead.config.versions import versions

if TYPE_CHECKING:
    from .conftest import Study

CHANGE = "base.train.lr was 0.005, is now 0.02"


def summary(study: Study) -> dict[str, str]:
    """Log the study to MLflow and return the tags of its summary run."""
    assert call(study, "sync", "tiny").returncode == 0
    client = MlflowClient(f"sqlite:///{study.folder / 'mlflow.db'}")
    index = client.get_experiment_by_name("headtohead studies")
    assert index is not None
    (run,) = client.search_runs([index.experiment_id])
    tags: dict[str, str] = run.data.tags
    return tags


def call(study: Study, *words: str) -> Any:
    return study.here(study.folder, *words, H2H_CACHE=str(study.cache))


@pytest.mark.slow
def test_an_edited_file_makes_the_old_answer_stale(study: Study, store_template: Path) -> None:
    shutil.copyfile(store_template, study.folder / "mlflow.db")
    base = {"train": {"steps": 4}, "evaluate": {"unpadded": False, "test_limit": 4}}
    study.write(base=base)
    study.run()
    assert "STALE" not in call(study, "report", "tiny").stdout
    assert "h2h.stale" not in summary(study)
    study.write(base=base | {"train": {"steps": 4, "lr": 0.02}})

    report = call(study, "report", "tiny").stdout
    assert report.startswith(f"STALE ({CHANGE}): ")
    answer = json.loads((study.folder / "reports/tiny/answer.json").read_text("utf-8"))
    assert (answer["stale"], answer["answer"]) == ([CHANGE], report.splitlines()[0])
    assert call(study, "status", "tiny").stdout.splitlines()[2] == f"STALE: {CHANGE}"
    assert json.loads(call(study, "status", "tiny", "--format", "json").stdout)["stale"] == [CHANGE]
    tags = summary(study)
    assert tags["h2h.stale"] == CHANGE
    assert tags["mlflow.note.content"].startswith("**STALE**: base")

    assert "STALE" not in study.run().stdout
    assert "STALE" not in call(study, "status", "tiny").stdout
    assert "h2h.stale" not in summary(study)


def test_the_recorded_commit_is_that_of_the_experiment_file(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("question: Why?\n")
    assert versions(file)["git_commit"] is None
    git("init", "-q", folder=tmp_path)
    (tmp_path / "notes.txt").touch()
    git("add", "notes.txt", folder=tmp_path)
    git("commit", "-q", "-m", "Notes", folder=tmp_path)
    versions.cache_clear()
    assert versions(file)["git_commit"] is None
    git("add", "study.yaml", folder=tmp_path)
    git("commit", "-q", "-m", "Study", folder=tmp_path)
    versions.cache_clear()
    assert versions(file)["git_commit"] == git("rev-parse", "HEAD", folder=tmp_path)
    assert versions()["git_commit"] is None


def git(*words: str, folder: Path) -> str:
    author = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()

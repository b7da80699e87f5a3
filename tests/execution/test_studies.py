"""Whole studies by the real command: tuning, margins, edited files, and what MLflow and loggers get."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from headtohead import files
from headtohead.config.versions import versions
from headtohead.report import writing
from headtohead.storage import leases
from headtohead.storage.run_directory import RunWriter
from headtohead.tracking import shipper
from made import plugin_file
from made.study import Study

SHORT: dict[str, Any] = {"train": {"steps": 4}, "evaluate": {"unpadded": False, "test_limit": 4}}


def test_a_second_run_of_a_finished_study_trains_nothing_and_writes_the_same_answer(
    finished: Study,
) -> None:
    first = finished.run()
    answer = finished.folder / "reports" / "tiny" / "answer.json"
    written = answer.read_bytes()
    trained = result_times(finished)
    answer.unlink()
    again = finished.run()
    assert "training" not in again.stderr
    assert result_times(finished) == trained
    assert again.stdout == first.stdout
    assert answer.read_bytes() == written


def result_times(study: Study) -> dict[str, int]:
    """Return the time of writing of each run's results; a run that is trained again writes them again."""
    paths = study.experiment.glob("*/results.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in paths}


@pytest.mark.slow
def test_the_sweep_is_trained_first_and_each_variant_uses_its_best_setting(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        shipper, "start_shipper", lambda experiment, *_: logged.append(experiment.name)
    )
    study.write(
        base=SHORT,
        design=[{"product": {"positional": ["sinusoidal", "alibi"]}}],
        tune={"train.lr": [1e-9, 0.02]},
        seeds=1,
    )
    done = study.run(tracking=True)
    for stage in ("first", "with further values", "with further seeds of the two best settings"):
        assert done.stdout.count(f"tuning {stage}: ") == 1
    assert logged == ["tiny-tuning", "tiny"]
    assert "tuning first: 8 runs of tiny-tuning" in done.stdout
    assert "training 8 runs in 1 stack" in done.stderr
    assert "training 2 runs in 1 stack" in done.stderr
    for path in study.directories():
        assert files.read_json(path / "run.json")["config"]["train"]["lr"] == 0.02
    assert "### Tuning" in study.page()
    again = study.run()
    assert "tuning first" not in again.stdout
    assert "training" not in again.stderr


@pytest.mark.slow
def test_a_failed_sweep_is_reported_and_nothing_is_compared(study: Study) -> None:
    study.write(base={"train": {"steps": 1_000_000}}, tune={"train.lr": [0.001]}, seeds=1)
    done = study.run("--timeout", "1.5", code=1)
    assert "not complete: 2 TIMEOUT; h2h status tiny-tuning shows each" in done.stdout
    assert not (study.runs / "tiny").exists()


@pytest.mark.slow
def test_fresh_trains_the_sweep_and_every_look_anew(study: Study) -> None:
    """Another experiment with the same runs must not replace them either."""
    study.write(
        base=SHORT | {"train": {"steps": 20}},
        design=[{"one_at_a_time": {"model.dropout": [0.101]}}],
        tune={"train.lr": [1e-9, 0.02]},
        seeds={"until": "decided", "at_most": 6, "looks": 2},
        metrics={"primary": "valid/loss", "report": []},
    )
    study.run()
    study.run("--name", "copy")
    before = {path.name for path in study.directories()}
    sweep = study.runs / "tiny-tuning"
    tried = {path.parent.name for path in sweep.glob("*/results.json")}
    study.run("--fresh")
    assert {path.name for path in study.directories()} == before
    assert {
        path.parent.name for path in study.experiment.glob(".archived/*/*/results.json")
    } == before
    assert {path.parent.name for path in sweep.glob(".archived/*/*/results.json")} == tried
    planned = files.read_json(study.experiment / "experiment.json")
    assert [run["reused_from"] for run in planned["runs"]] == [None] * 12


@pytest.mark.slow
def test_a_debug_run_does_not_change_a_finished_study(study: Study) -> None:
    def snapshot() -> dict[str, bytes]:
        folders = (study.experiment, study.folder / "reports" / "tiny")
        found = [
            path
            for folder in folders
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".lock"
        ]
        return {str(path): path.read_bytes() for path in found}

    study.write(base=SHORT)
    study.run()
    before = snapshot()
    debug = ("--set", "train.steps=2", "--seeds", "1")
    refused = study.run(*debug, code=2).stderr
    assert study.run(*debug, "--fresh", code=2).stderr == refused
    assert (
        refused.removeprefix("h2h: ").strip() in study.h2h("plan", str(study.file), *debug).stdout
    )
    assert "--name LABEL" in refused
    study.run(*debug, "--name", "debug")
    assert len(list(study.runs.glob("tiny-debug/*/results.json"))) == 1
    assert snapshot() == before


def summary(study: Study, reports: Path) -> Any:
    """Return the summary run of the study in MLflow, whose report has the files of the folder of reports."""
    client = MlflowClient(f"sqlite:///{study.folder / 'mlflow.db'}")
    index = client.get_experiment_by_name("headtohead studies")
    assert index is not None
    (run,) = client.search_runs([index.experiment_id])
    artifacts = Path(client.download_artifacts(run.info.run_id, "report", str(study.folder)))
    for name in ("report.md", "answer.json"):
        assert (artifacts / name).read_bytes() == (reports / "tiny" / name).read_bytes()
    return run


@pytest.mark.slow
def test_the_summary_run_has_the_answer_of_a_report_that_takes_long(
    study: Study, store_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(store_template, study.folder / "mlflow.db")
    write = writing.write_files
    reports = study.folder / "elsewhere"

    def written(*arguments: Any, **options: Any) -> Any:
        time.sleep(4.0)  # longer than the shipper needs to end
        return write(*arguments, **options)

    monkeypatch.setattr(writing, "write_files", written)
    study.write(base=SHORT, design=[{"one_at_a_time": {"positional": ["none"]}}])
    study.run("--reports", str(reports), tracking=True)
    answer = json.loads((reports / "tiny" / "answer.json").read_text())["answer"]
    assert summary(study, reports).data.tags["h2h.answer"] == answer


@pytest.mark.slow
def test_an_edited_file_makes_the_old_answer_stale(study: Study, store_template: Path) -> None:
    def check(stale: list[str]) -> None:
        report = study.h2h("report", "tiny").stdout
        answer = study.answer()
        assert (answer["stale"], answer["answer"]) == (stale, report.splitlines()[0])
        assert report.startswith("STALE") == bool(stale)
        assert json.loads(study.h2h("status", "tiny", "--format", "json").stdout)["stale"] == stale
        study.h2h("sync", "tiny")
        tags = summary(study, study.folder / "reports").data.tags
        assert [tags[name] for name in ["h2h.stale"] if name in tags] == stale
        assert ("STALE" in tags["mlflow.note.content"].partition("\n")[0]) == bool(stale)

    shutil.copyfile(store_template, study.folder / "mlflow.db")
    study.write(base=SHORT)
    study.run()
    check([])
    study.write(base=SHORT | {"train": {"steps": 4, "lr": 0.02}})
    check(["base.train.lr was 0.005, is now 0.02"])
    study.run()
    check([])


@pytest.mark.slow
def test_a_trained_study_is_logged_and_a_broken_logger_does_not_disturb_it(
    study: Study, undisturbed: Study
) -> None:
    pytest.importorskip("tensorboard")
    broken = plugin_file(
        "def begin(self):\n    raise OSError('the network is down')", "logger", "broken"
    )
    (study.folder / "broken.py").write_text(broken)
    done = study.run("--logger", "tensorboard", "--logger", "broken", "--plugin", "broken.py")
    assert "tensorboard: all runs are logged" in done.stdout
    assert "OSError: the network is down" in done.stdout
    assert f"nothing is lost, run h2h sync {study.file} --logger broken" in done.stdout
    assert study.results() == undisturbed.results()


def test_the_recorded_commit_is_that_of_the_experiment_file(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        author = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(
            ["git", *author, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    file = tmp_path / "study.yaml"
    file.write_text("question: Why?\n")
    git("init", "-q")
    assert versions(file)["git_commit"] is None
    git("add", "study.yaml")
    git("commit", "-q", "-m", "Study")
    versions.cache_clear()
    assert versions(file)["git_commit"] == git("rev-parse", "HEAD")
    assert versions()["git_commit"] is None


def test_a_lease_released_while_the_study_is_laid_out_is_taken_again(
    study: Study, monkeypatch: Any
) -> None:
    calls, original = list[Path](), RunWriter.plan

    def plan(self: RunWriter, record: Any) -> None:
        calls.append(self.path)
        if len(calls) == 2:  # as another host does if this process is suspended
            leases._lease_file(self.path).unlink()
        original(self, record)

    monkeypatch.setattr(RunWriter, "plan", plan)
    study.run("--no-report")
    assert len(calls) > len(set(calls))

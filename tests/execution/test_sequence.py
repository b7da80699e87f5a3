"""The sequence of actions of ``run``: what it prints and trains, in order, and the states of run directories."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import headtohead
from execution.conftest import Command
from headtohead import files
from headtohead.config.versions import versions
from headtohead.errors import HeadToHeadError, Interrupted
from headtohead.execution import progress, scheduler
from headtohead.execution.progress import Watcher
from headtohead.report import writing
from headtohead.report.content import Report
from made.fake_study import edit
from made.study import Study

SHORT: dict[str, Any] = {
    "base": {"train": {"steps": 4}, "evaluate": {"unpadded": False, "test_limit": 4}},
    "design": [{"one_at_a_time": {"positional": ["none"]}}],
    "metrics": {"primary": "valid/loss", "report": []},
    "seeds": 1,
}

TUNED: dict[str, Any] = {"tune": {"train.lr": [1e-9, 0.02]}, "tune_seeds": 1}
LOOKS: dict[str, Any] = {
    "base": {"train": {"steps": 4}, "evaluate": {"unpadded": False, "test_limit": 4}},
    "design": [{"one_at_a_time": {"model.dropout": [0.101]}}],
    "seeds": {"until": "decided", "at_most": 6, "looks": 2},
}
REPORT = "report: reports/tiny/index.html"
NO_REPORT = "no report was written; h2h report tiny.yaml writes it"
ALL = {"none-s1": "DONE", "sinusoidal-s1": "DONE"}
FAILED = {"state": "FAILED", "reason": "ValueError: no", "files": {}}

Run = Callable[..., list[str]]
"""Runs the study with options of `headtohead.run`, and returns the lines of the command and of the training."""


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Command) -> Path:
    """The folder of runs of the study ``SHORT`` after its training."""
    study = Study(tmp_path_factory.mktemp("short"), cache, h2h_here)
    study.write(**SHORT)
    study.run("--no-report", "--launcher", "inline")
    return study.runs


@pytest.fixture
def trained(trained_runs: Path, study: Study) -> None:
    """Copy the trained runs of ``SHORT`` into the study of the test."""
    shutil.copytree(trained_runs, study.runs)


@pytest.fixture
def run(study: Study, monkeypatch: pytest.MonkeyPatch) -> Run:
    lines: list[str] = []
    monkeypatch.chdir(study.folder)
    monkeypatch.setattr(Watcher, "print", lambda watcher, line: lines.append(line))
    monkeypatch.setattr(progress, "LINE_WIDTH", 200)
    study.write(**SHORT)

    def call(error: type[Exception] | None = None, **options: Any) -> list[str]:
        lines.clear()
        defaults = {"workers": 1, "threads": 1, "tracking": False, "launcher": "inline"}
        if error is not None:
            with pytest.raises(error) as raised:
                headtohead.run(study.file, **defaults | options, log=lines.append)
            return plain([*lines, f"{error.__name__}: {raised.value}"])
        result = headtohead.run(study.file, **defaults | options, log=lines.append)
        answer = result.report.lines if result.report else ()
        return plain([line for line in lines if line not in answer])

    return call


def plain(lines: list[str]) -> list[str]:
    """Return lines without hashes, times, losses and the folder of the study."""
    text = "\n".join(lines)
    for pattern, replacement in (
        (r"-s(\d+)-[0-9a-f]{8}", r"-s\1"),
        (r"stacks/[0-9a-f]+/", "stacks/STACK/"),
        (r", loss [\d.e+ to-]+(?= \()", ""),
        (r" \(\d+ s\)", ""),
        (r"; time: .*", ""),
        (r"/\S*/(reports|tiny)", r"\1"),
    ):
        text = re.sub(pattern, replacement, text)
    return text.splitlines()


def states(study: Study, name: str = "tiny") -> dict[str, str]:
    """Return the states of an experiment's runs by variant and seed; archived runs are named ``archived/…``."""
    found = {}
    for path in sorted((study.runs / name).rglob("status.json")):
        label = path.parent.name.rpartition("-")[0].replace("-s1000001", "")
        prefix = "archived/" if ".archived" in path.parts else ""
        found[prefix + label] = files.read_json(path)["state"]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, without locks."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path): path.read_bytes() for path in paths}


def directory(study: Study, label: str, name: str = "tiny") -> Path:
    (path,) = (study.runs / name).glob(f"{label}-s1*-????????")
    return path


def damage(path: Path) -> None:
    (path / "checkpoint.safetensors").write_bytes(b"damaged")


def make_stale(path: Path) -> None:
    recorded = files.read_json(path / "run.json")["versions"]
    edit(path / "run.json", versions=recorded | {"headtohead": "0.0.1"})


def test_a_study_is_trained_once_and_repaired(run: Run, study: Study) -> None:
    trained = [
        "training 2 runs in 1 stack",
        "[1/1] without positions and 1 more: 2 of 2 runs done",
    ]
    assert run() == [*trained, REPORT]
    assert run() == [REPORT]
    assert run(report=False) == [NO_REPORT]
    assert run(repair=True) == ["none of 2 finished runs is damaged", REPORT]
    damage(directory(study, "none"))
    assert run(repair=True) == [
        "1 of 2 finished runs damaged: none-s1 (checkpoint.safetensors is damaged: its sha256 is not that in "
        "status.json); retraining",
        "training 1 run in 1 stack",
        "[1/1] without positions and 1 more: 2 of 2 runs done",
        REPORT,
    ]
    assert states(study) == {"archived/none-s1": "DONE"} | ALL
    assert run(fresh=True, report=False) == [*trained, NO_REPORT]
    archived = {"archived/none-s1": "DONE", "archived/sinusoidal-s1": "DONE"}
    assert states(study) == archived | ALL


def test_figures_are_drawn_again_only_if_the_report_changes(
    run: Run, study: Study, trained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    drawn: list[Report] = []

    def draw(report: Report) -> dict[str, Figure]:
        drawn.append(report)
        return {}

    monkeypatch.setattr(writing, "draw", draw)
    assert run() == [REPORT]
    assert drawn == []
    page = study.folder / "reports" / "tiny" / "report.md"
    page.unlink()
    assert run() == [REPORT]
    assert (len(drawn), page.is_file()) == (1, True)
    study.write(**SHORT, question="Another question?")
    assert run() == [REPORT]
    assert len(drawn) == 2
    assert "Another question?" in page.read_text(encoding="utf-8")


def test_failed_runs_are_retrained_on_request(run: Run, study: Study, trained: None) -> None:
    edit(directory(study, "none") / "status.json", **FAILED)
    failed = [
        "1 FAILED: ValueError: no; log with the traceback: runs/tiny/.stacks/STACK/worker.log",
        "not complete: 1 DONE, 1 FAILED; h2h status tiny.yaml shows each; the same command with --retry retrains "
        "the failed runs",
    ]
    assert run() == failed
    assert run(allow_partial=True) == [REPORT, *failed]
    assert run(report=False) == [
        NO_REPORT,
        *failed,
    ]
    assert states(study) == {"none-s1": "FAILED", "sinusoidal-s1": "DONE"}
    assert run(retry=True) == [
        "training 1 run in 1 stack",
        "[1/1] without positions and 1 more: 2 of 2 runs done",
        REPORT,
    ]
    assert states(study) == ALL


def test_stale_runs_are_retrained_on_request(run: Run, study: Study, trained: None) -> None:
    make_stale(directory(study, "none"))
    changed = f"headtohead 0.0.1, now {versions()['headtohead']}"
    note = f"note: 1 finished run is STALE: {changed}; retrain with --stale"
    assert run() == [note, REPORT]
    assert run(stale=True) == [
        "1 STALE run; retraining",
        "training 1 run in 1 stack",
        "[1/1] without positions and 1 more: 2 of 2 runs done",
        REPORT,
    ]
    assert states(study) == {"archived/none-s1": "DONE"} | ALL
    assert run(stale=True) == ["no run is STALE", REPORT]


def test_only_some_variants_are_trained(run: Run, study: Study) -> None:
    assert run(only=["none"]) == [
        "training 1 run in 1 stack",
        "[1/1] without positions: 1 of 1 runs done",
        "1 variant is left out by --only; the same command without --only trains them, --allow-partial writes a "
        "report without them",
    ]
    assert states(study) == {"none-s1": "DONE"}
    assert run() == [
        "training 1 run in 1 stack",
        "[1/1] sinusoidal: 1 of 1 runs done",
        REPORT,
    ]
    assert run(only=["none"]) == [REPORT]


def test_an_interrupted_study_is_resumed(
    run: Run, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    line = "interrupted; finished runs are kept, and {} resumes"
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "run_stacks", interrupt)
        assert run(Interrupted) == [line.format("the same command"), "Interrupted: "]
        planned = {"none-s1": "PLANNED", "sinusoidal-s1": "PLANNED"}
        assert states(study) == planned
        command = "the same command without --fresh"
        assert run(Interrupted, fresh=True) == [line.format(command), "Interrupted: "]
        archived = {"archived/none-s1": "PLANNED", "archived/sinusoidal-s1": "PLANNED"}
        assert states(study) == archived | planned
    assert run()[-1] == REPORT
    assert states(study) == archived | ALL


SWEEP = {
    f"{variant}-lr-{value}": "DIVERGED" if (variant, value) == ("none", "400000") else "DONE"
    for variant in ("none", "sinusoidal")
    for value in ("0.02", "1e-09", "400000")
}


@pytest.mark.slow
def test_a_sweep_is_trained_and_widened_before_the_comparison(run: Run, study: Study) -> None:
    study.write(**SHORT | TUNED)
    everything = [
        "tuning first: 4 runs of tiny-tuning",
        "training 4 runs in 1 stack",
        "[1/1] without positions, learning rate 0.02 and 3 more: 4 of 4 runs done",
        "tuning with further values: 2 runs of tiny-tuning",
        "training 2 runs in 1 stack",
        "[1/1] without positions, learning rate 400000 and 1 more: 1 of 2 runs done; DIVERGED (the loss is not finite "
        "at step 4)",
        "training 2 runs in 1 stack",
        "[1/1] without positions and 1 more: 2 of 2 runs done",
        REPORT,
    ]
    assert run() == everything
    assert states(study, "tiny-tuning") == SWEEP
    assert run() == [REPORT]
    again = [
        "tuning first: 1 runs of tiny-tuning",
        "training 1 run in 1 stack",
        "[1/1] without positions, learning rate 0.02 and 3 more: 4 of 4 runs done",
        NO_REPORT,
    ]
    damage(directory(study, "none-lr-0.02", "tiny-tuning"))
    assert run(repair=True, report=False) == [
        "none of 2 finished runs is damaged",
        "1 of 6 finished runs damaged: none-lr-0.02-s1000001 (checkpoint.safetensors is damaged: its sha256 is not "
        "that in status.json); retraining",
        *again,
    ]
    archived = {"archived/none-lr-0.02": "DONE"}
    assert states(study, "tiny-tuning") == archived | SWEEP
    make_stale(directory(study, "none-lr-0.02", "tiny-tuning"))
    make_stale(directory(study, "sinusoidal"))
    lines = run(stale=True, report=False)
    assert lines[:2] == ["1 STALE run; retraining"] * 2
    assert [line for line in lines if line.startswith(("tuning first", "training"))] == [
        "tuning first: 1 runs of tiny-tuning",
        "training 1 run in 1 stack",
        "training 1 run in 1 stack",
    ]
    assert states(study) == {"archived/sinusoidal-s1": "DONE"} | ALL
    assert run(fresh=True, report=False) == [*everything[:-1], NO_REPORT]
    assert states(study, "tiny-tuning") == SWEEP | {
        f"archived/{name}": SWEEP[name] for name in SWEEP
    }


@pytest.mark.slow
def test_the_two_best_settings_get_further_seeds_before_the_comparison(
    run: Run, study: Study
) -> None:
    study.write(**SHORT | {"tune": {"model.mask_value": ["-inf", "-1e9"]}})
    lines = run()
    assert [line for line in lines if "tuning" in line] == [
        "tuning first: 8 runs of tiny-tuning",
        "tuning with further seeds of the two best settings: 16 runs of tiny-tuning",
    ]
    assert lines[-1] == REPORT
    assert run() == [REPORT]


def test_nothing_is_compared_after_a_sweep_without_all_results(run: Run, study: Study) -> None:
    study.write(**SHORT | TUNED)
    run(report=False)
    compared = contents(study.experiment)
    edit(directory(study, "none-lr-0.02", "tiny-tuning") / "status.json", **FAILED)
    assert run() == [
        "tuning first: 0 runs of tiny-tuning",
        "1 FAILED: ValueError: no; log with the traceback: runs/tiny-tuning/.stacks/STACK/worker.log",
        "not complete: 1 DIVERGED, 4 DONE, 1 FAILED; h2h status tiny-tuning shows each; the same command with --retry "
        "retrains the failed runs",
    ]
    assert contents(study.experiment) == compared
    assert run(retry=True, report=False)[:2] == [
        "tuning first: 1 runs of tiny-tuning",
        "training 1 run in 1 stack",
    ]
    assert states(study, "tiny-tuning") == SWEEP


@pytest.mark.slow
def test_seeds_are_added_look_by_look(run: Run, study: Study) -> None:
    study.write(**SHORT | LOOKS)
    trained = [
        "training 6 runs in 1 stack",
        "[1/1] dropout 0.1 and 1 more: 6 of 6 runs done",
    ]
    last = "look 2 of 2, 6 seeds: stopped at the maximum of 6 seeds, 1 contrast undecided"
    first = "look 1 of 2, 3 seeds: 1 contrast undecided, next look at 6 seeds"
    assert run() == [*trained, first, *trained, last, REPORT]
    assert run(report=False) == [last, NO_REPORT]
    edit(directory(study, "dropout-0.1") / "status.json", **FAILED)
    assert run()[0].startswith("1 FAILED: ValueError: no")
    assert run(fresh=True, report=False) == [*trained, first, *trained, last, NO_REPORT]
    assert len(states(study)) == 24


@pytest.mark.parametrize(
    "change",
    [
        {"design": [{"one_at_a_time": {"positional": ["alibbi"]}}]},
        {"tune": {"train.lrr": [0.1]}},
        {"metrics": {"primary": "test/nothing"}},
    ],
)
def test_an_error_in_the_file_changes_nothing(
    run: Run, study: Study, trained: None, change: dict[str, Any]
) -> None:
    damage(directory(study, "none"))
    make_stale(directory(study, "sinusoidal"))
    before = contents(study.folder / "runs")
    study.write(**SHORT | change)
    for options in ({"repair": True}, {"stale": True}, {"fresh": True}, {"retry": True}):
        (line,) = run(HeadToHeadError, **options)
        assert line.startswith("HeadToHeadError: tiny.yaml")
        assert contents(study.folder / "runs") == before


@pytest.mark.parametrize(
    "options",
    [
        {"loggers": ["mlfloww"]},
        {"launcher": "locall"},
        {"device": "tpu"},
        {"fresh": True},
        {"only": ["nonne"]},
    ],
)
def test_an_error_in_the_options_changes_nothing(
    run: Run, study: Study, trained: None, options: dict[str, Any]
) -> None:
    damage(directory(study, "none"))
    before = contents(study.folder)
    (line,) = run(HeadToHeadError, repair=True, **options)
    assert line.startswith("HeadToHeadError: ")
    assert contents(study.folder) == before

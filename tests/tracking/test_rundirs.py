"""Reading of run directories, including those of killed runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.leases import Lease
from headtohead.storage.run import StatusRecord
from headtohead.storage.run_directory import checksums
from headtohead.tracking.rundirs import TrackedRun, TrackedStudy

MakeExperiment = Callable[..., Path]


@pytest.fixture
def run(make_experiment: MakeExperiment) -> TrackedRun:
    return TrackedStudy.read(make_experiment(seeds=1, axes={"positional": ["rotary"]})).runs()[0]


def test_the_changed_history_of_a_finished_run_is_an_error(run: TrackedRun) -> None:
    path = run.path / "metrics.jsonl"
    path.write_text(path.read_text().replace('"train/loss": ', '"train/loss": 1', 1))
    with pytest.raises(HeadToHeadError) as error:
        run.histories()
    assert str(error.value).startswith(f"'{path}' is damaged: its sha256 is not that in status.json; ")


def test_a_repeated_step_keeps_its_first_time_and_its_last_value(run: TrackedRun) -> None:
    _append(run, _line(10, 5.0, 1.0) + _line(10, 9.0, 2.0))
    assert run.histories()["x"] == [(10, 5000, 2.0)]


def test_a_truncated_line_is_skipped_and_hides_no_other_line(run: TrackedRun) -> None:
    before = run.histories()
    _append(run, '{"step": 400, "time": 1, "val')
    assert run.histories() == before


def test_steps_are_in_order_even_if_lines_are_not(run: TrackedRun) -> None:
    _append(run, _line(20, 2.0, 2.0) + _line(10, 1.0, 1.0))
    assert [point.step for point in run.histories()["x"]] == [10, 20]


@pytest.mark.parametrize("name", ["status.json", "run.json", "metrics.jsonl"])
def test_the_content_hash_depends_on_all_content(run: TrackedRun, name: str) -> None:
    before = run.content_hash()
    path = run.path / name
    path.write_text(path.read_text() + "\n")
    assert run.content_hash() != before


def test_the_content_hash_depends_on_the_recorded_checksums(
    run: TrackedRun, record_checksums: Callable[[Path], None]
) -> None:
    hashes = []
    for content in ("{}", "[]"):
        (run.path / "heads.json").write_text(content)
        record_checksums(run.path)
        hashes.append(run.content_hash())
    assert len(set(hashes)) == 2


def test_the_content_hash_does_not_depend_on_modification_times(run: TrackedRun) -> None:
    before = run.content_hash()
    for path in run.path.rglob("*.json*"):
        path.write_bytes(path.read_bytes())
    assert run.content_hash() == before


def test_a_run_of_a_dead_process_is_not_running(run: TrackedRun) -> None:
    status = StatusRecord(state="RUNNING", host="node3", pid=17)
    (run.path / "status.json").write_text(json.dumps(status.to_json()))
    assert run.observed(sweep=True) == (status, "KILLED", "process 17 on node3 is gone")
    assert run.observed(sweep=False) == (status, "RUNNING", None)
    with Lease(run.path):
        assert run.observed(sweep=True) == (status, "RUNNING", None)


def test_the_error_for_a_folder_without_a_plan_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(HeadToHeadError, match=r"has no experiment\.json; start with h2h run"):
        TrackedStudy.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"state"', "not valid JSON"),
        ("[]", "Input should be a valid dictionary"),
        ('{"state": "SLEEPING"}', "state: String should match pattern"),
        ('{"state": "DONE", "steps": "many"}', "steps: Input should be a valid integer"),
        ('{"state": "DONE", "mood": 1}', "mood: Extra inputs are not permitted"),
    ],
)
def test_a_damaged_record_is_named_in_one_line(run: TrackedRun, content: str, reason: str) -> None:
    (run.path / "status.json").write_text(content)
    with pytest.raises(HeadToHeadError) as caught:
        run.observed(sweep=True)
    assert str(caught.value).startswith(f"cannot read '{run.path / 'status.json'}': {reason}")
    assert "\n" not in str(caught.value)


def _append(run: TrackedRun, text: str) -> None:
    """Append text to the history of a run, before the run was finished."""
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(text)
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps(status | {"files": checksums(run.path)}))


def _line(step: int, time: float, value: float) -> str:
    return json.dumps({"step": step, "time": time, "values": {"x": value}}) + "\n"

"""What is read from a run directory, also from one that a kill has left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.leases import Lease
from headtohead.tracking.rundirs import RunDirectory, read_json, read_study

MakeExperiment = Callable[..., Path]


@pytest.fixture
def run(make_experiment: MakeExperiment) -> RunDirectory:
    return read_study(make_experiment(seeds=1, axes={"positional": ["rotary"]})).runs()[0]


def test_a_repeated_step_keeps_its_first_time_and_its_last_value(run: RunDirectory) -> None:
    _append(run, {"step": 10, "time": 5.0, "values": {"x": 1.0}})
    _append(run, {"step": 10, "time": 9.0, "values": {"x": 2.0}})
    assert run.histories()["x"] == [(10, 5000, 2.0)]


def test_a_torn_line_hides_nothing_but_itself(run: RunDirectory) -> None:
    before = run.histories()
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 400, "time": 1, "val')
    assert run.histories() == before


def test_steps_are_in_order_even_if_lines_are_not(run: RunDirectory) -> None:
    _append(run, {"step": 20, "time": 2, "values": {"x": 2.0}})
    _append(run, {"step": 10, "time": 1, "values": {"x": 1.0}})
    assert [point.step for point in run.histories()["x"]] == [10, 20]


@pytest.mark.parametrize("name", ["status.json", "results.json", "metrics.jsonl"])
def test_the_digest_sees_every_change_of_content(run: RunDirectory, name: str) -> None:
    before = run.digest()
    path = run.folder / name
    path.write_text(path.read_text() + "\n")
    assert run.digest() != before


def test_the_digest_does_not_care_when_files_were_written(run: RunDirectory) -> None:
    before = run.digest()
    for path in run.folder.rglob("*.json*"):
        path.write_bytes(path.read_bytes())
    assert run.digest() == before


def test_a_dead_process_leaves_no_run_running(run: RunDirectory) -> None:
    status = {"state": "RUNNING", "host": "node3", "pid": 17}
    (run.folder / "status.json").write_text(json.dumps(status))
    assert run.observed(sweep=True) == (status, "KILLED", "process 17 on node3 is gone")
    assert run.observed(sweep=False) == (status, "RUNNING", None)
    with Lease(run.folder):
        assert run.observed(sweep=True) == (status, "RUNNING", None)


def test_a_folder_without_a_plan_is_refused_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(HeadToHeadError, match=r"holds no experiment\.json; type h2h run"):
        read_study(tmp_path)


def test_broken_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state"')
    with pytest.raises(HeadToHeadError, match=r"status\.json is not readable JSON"):
        read_json(tmp_path / "status.json")


def _append(run: RunDirectory, line: dict[str, object]) -> None:
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")

"""Reading of run directories, including those of killed runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.leases import Lease
from headtohead.storage.run import StatusRecord
from headtohead.storage.run_directory import checksums
from headtohead.tracking.study import Step, TrackedRun, TrackedStudy


@pytest.fixture
def run(make_experiment: Callable[..., Path]) -> TrackedRun:
    return TrackedStudy.read(make_experiment(axes={"positional": ["rotary"]})).runs()[0]


def test_the_changed_history_of_a_finished_run_is_an_error(run: TrackedRun) -> None:
    path = run.path / "metrics.jsonl"
    path.write_text(path.read_text().replace('"train/loss": ', '"train/loss": 1', 1))
    with pytest.raises(HeadToHeadError, match=r"metrics\.jsonl' is damaged"):
        run.steps()


def test_repeated_steps_keep_their_first_time_and_truncated_lines_hide_nothing(run: TrackedRun) -> None:
    before = run.steps()
    lines = [
        {"step": step, "time": time, "values": {"x": value}}
        for step, time, value in [(920, 5.0, 1.0), (910, 4.0, 0.5), (920, 9.0, 2.0)]
    ]
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 930, "time": 1, "val')
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps(status | {"files": checksums(run.path)}))
    assert run.steps() == [*before, Step(910, 4.0, {"x": 0.5}), Step(920, 5.0, {"x": 2.0})]


def test_the_content_hash_depends_on_content_alone(run: TrackedRun, record_checksums: Callable[[Path], None]) -> None:
    hashes = [run.content_hash()]
    for path in run.path.rglob("*.json*"):
        path.write_bytes(path.read_bytes())
    assert run.content_hash() == hashes[0]
    for name in ("status.json", "run.json", "metrics.jsonl"):
        (run.path / name).write_text((run.path / name).read_text() + "\n")
        hashes.append(run.content_hash())
    (run.path / "heads.json").write_text("{}")
    record_checksums(run.path)
    assert len({*hashes, run.content_hash()}) == 5


def test_a_run_of_a_dead_process_is_not_running(run: TrackedRun) -> None:
    status = StatusRecord(state="RUNNING", host="node3", pid=17)
    (run.path / "status.json").write_text(json.dumps(status.to_json()))
    killed = {"state": "KILLED", "reason": "process 17 on node3 is gone"}
    assert run.observed(sweep=True) == status.model_copy(update=killed)
    assert run.observed(sweep=False) == status
    with Lease(run.path):
        assert run.observed(sweep=True) == status

"""Reading of run directories, including those of killed runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.tracking.study import Step, TrackedRun, TrackedStudy
from made.fake_study import record_checksums


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
    for part in (lines[:2], lines[2:]):
        files.append_lines(run.path / "metrics.jsonl", part)
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 930, "time": 1, "val')
    record_checksums(run.path)
    assert run.steps() == [*before, Step(910, 4.0, {"x": 0.5}), Step(920, 5.0, {"x": 2.0})]


def test_the_content_hash_depends_on_content_alone(run: TrackedRun) -> None:
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

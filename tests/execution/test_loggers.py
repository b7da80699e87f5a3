"""``h2h run --logger`` logs a study that really trains; a broken logger changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

BROKEN = """
from headtohead.plugin import Logger, hookimpl

class BrokenLogger(Logger):
    def begin(self):
        raise OSError("the network is down")

@hookimpl
def register_loggers():
    return {"broken": BrokenLogger}
"""


@pytest.mark.slow
def test_a_trained_study_is_logged_and_a_broken_logger_does_not_disturb_it(
    study: Any, undisturbed: Any, same_results: Callable[..., None]
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (study.folder / "broken.py").write_text(BROKEN)
    done = study.run("--logger", "tensorboard", "--logger", "broken", "--plugin", "broken.py")
    assert "tensorboard: all runs are logged" in done.stdout
    assert "broken: not everything was shipped to broken (" in done.stdout
    assert "OSError: the network is down" in done.stdout
    assert f"nothing is lost, run h2h sync {study.file} --logger broken" in done.stdout
    same_results(study, undisturbed)
    for run in study.directories():
        accumulator = EventAccumulator(str(study.folder / "tensorboard" / "tiny" / run.name))
        accumulator.Reload()
        steps = [event.step for event in accumulator.Scalars("valid/loss")]
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        assert steps == [line["step"] for line in lines if "valid/loss" in line["values"]]
        assert accumulator.Scalars("test/exact_match")[0].step == 60

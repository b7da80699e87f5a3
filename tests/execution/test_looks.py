"""Seeds that are added until every main contrast is decided, by the real command and from Python."""

import signal
from pathlib import Path
from typing import Any

import pytest

from made.study import Study

SHORT: dict[str, Any] = {
    "base": {"train": {"steps": 20}, "evaluate": {"unpadded": False, "test_limit": 4}},
    "metrics": {"primary": "valid/loss", "report": []},
    "seeds": {"until": "decided", "at_most": 6, "looks": 2},
}
HUGE = {"design": [{"one_at_a_time": {"train.lr": [1e-9]}}]}
NULL = {"design": [{"one_at_a_time": {"model.dropout": [0.101]}}]}


@pytest.fixture(scope="module")
def null_study(tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Any) -> Study:
    """A study without a difference that nothing interrupts."""
    made = Study(tmp_path_factory.mktemp("null"), cache, h2h_here)
    made.write(**SHORT, **NULL)
    made.run()
    return made


def test_a_study_with_a_huge_contrast_stops_at_the_first_look(study: Study) -> None:
    study.write(**SHORT, **HUGE)
    assert "look 1 of 2, 3 seeds: stopped because every main contrast has a direction" in study.run().stdout
    assert len(study.directories()) == 2 * 3
    found = study.answer()
    looks = found["looks"]
    assert (looks["planned"], looks["taken"], looks["stopped"], looks["undecided"]) == ([3, 6], [3], "decided", [])
    assert 0.025 < looks["level"] < 0.03
    (contrast,) = found["contrasts"]
    assert contrast["interval"]["level"] == pytest.approx(1 - looks["level"])
    study.h2h("report", str(study.file))
    assert study.answer() == found


@pytest.mark.slow
def test_a_study_without_a_difference_continues_to_the_last_look(null_study: Study) -> None:
    looks = null_study.answer()["looks"]
    assert (looks["taken"], looks["stopped"]) == ([3, 6], "at_most")
    assert len(null_study.directories()) == 2 * 6


@pytest.mark.slow
def test_a_kill_after_the_first_look_gives_the_same_answer(study: Study, null_study: Study) -> None:
    study.write(**SHORT, **NULL)
    parent = study.start("--no-tracking")
    assert parent.stdout is not None
    for line in parent.stdout:
        if line.startswith("look 1"):
            break
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    study.run()
    assert study.results() == null_study.results()
    assert study.answer() == null_study.answer()

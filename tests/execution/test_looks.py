"""Seeds that are added until every main contrast is decided, by the real command and from Python."""

import math
import signal
from typing import Any

import pytest
from scipy import stats

from made.study import Study

SHORT: dict[str, Any] = {
    "base": {"train": {"steps": 20}, "evaluate": {"unpadded": False, "test_limit": 4}},
    "metrics": {"primary": "valid/loss", "report": []},
    "seeds": {"until": "decided", "at_most": 6, "looks": 2},
}
HUGE = {"design": [{"one_at_a_time": {"train.lr": [1e-9]}}]}
NULL = {"design": [{"one_at_a_time": {"model.dropout": [0.101]}}]}


def test_a_study_with_a_huge_contrast_stops_at_the_first_look(study: Study) -> None:
    study.write(**SHORT, **HUGE)
    assert (
        "look 1 of 2, 3 seeds: stopped because every main contrast is decided" in study.run().stdout
    )
    assert len(study.directories()) == 2 * 3
    found = study.answer()
    looks = found["looks"]
    assert (looks["planned"], looks["taken"], looks["stopped"], looks["undecided"]) == (
        [3, 6],
        [3],
        "decided",
        [],
    )
    assert 0.025 < looks["level"] < 0.03
    (contrast,) = found["contrasts"]
    squared_half_width = 0.0
    for source in contrast["sources"]:
        quantile = stats.t.ppf(1 - looks["level"] / 2, source["degrees"])
        squared_half_width += quantile**2 * source["variance"]
    half_width = contrast["difference"] - contrast["interval"]["low"]
    assert half_width == pytest.approx(math.sqrt(squared_half_width))
    study.h2h("report", str(study.file))
    assert study.answer() == found


@pytest.mark.slow
def test_without_a_difference_a_killed_study_has_the_same_answer_after_the_last_look(
    study: Study, tmp_path_factory: pytest.TempPathFactory
) -> None:
    undisturbed = Study(tmp_path_factory.mktemp("null"), study.cache, study.here)
    undisturbed.write(**SHORT, **NULL)
    undisturbed.run()
    looks = undisturbed.answer()["looks"]
    assert (looks["taken"], looks["stopped"]) == ([3, 6], "at_most")
    assert len(undisturbed.directories()) == 2 * 6
    study.write(**SHORT, **NULL)
    parent = study.start("--no-tracking")
    assert parent.stdout is not None
    for line in parent.stdout:
        if line.startswith("look 1"):
            break
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    study.run()
    assert study.results() == undisturbed.results()
    assert study.answer() == undisturbed.answer()


def test_fresh_runs_of_later_looks_are_no_runs_that_leave_the_report(study: Study) -> None:
    looks = {"until": "decided", "at_most": 4, "looks": 2}
    study.write(**SHORT | NULL | {"seeds": looks, "base": SHORT["base"] | {"train": {"steps": 2}}})
    study.run("--no-report")
    assert len(study.directories()) == 2 * 4
    again = study.run("--no-report", "--fresh")
    assert "no longer in the plan" not in again.stdout
    assert len(study.directories()) == 2 * 4

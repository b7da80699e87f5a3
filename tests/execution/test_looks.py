"""Seeds that are added until every main contrast is decided, by the real command and from Python."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import headtohead
from headtohead import files

if TYPE_CHECKING:
    from .conftest import Study

SHORT: dict[str, Any] = {
    "base": {"train": {"steps": 20}, "evaluate": {"unpadded": False, "test_limit": 4}},
    "metrics": {"primary": "valid/loss", "report": []},
}
HUGE = {"design": [{"one_at_a_time": {"train.lr": [1e-9]}}]}
NULL = {"design": [{"one_at_a_time": {"model.dropout": [0.101]}}]}
LOOKS = {"until": "decided", "at_most": 6, "looks": 2}


def answer(study: Study) -> dict[str, Any]:
    content: dict[str, Any] = files.read_json(study.folder / "reports/tiny/answer.json")
    return content


@pytest.fixture(scope="module")
def null_study(tmp_path_factory: pytest.TempPathFactory, cache: Any, h2h_here: Any) -> Study:
    """A study without a difference that nothing interrupts."""
    from .conftest import Study

    made = Study(tmp_path_factory.mktemp("null"), cache, h2h_here)
    made.write(**SHORT, **NULL, seeds=LOOKS)
    done = made.run("--no-tracking")
    assert "look 1 of 2, 3 seeds: 1 contrast undecided, next look at 6 seeds" in done.stdout
    assert "look 2 of 2, 6 seeds: stopped at the maximum of 6 seeds, 1 contrast undecided" in done.stdout
    return made


def test_a_study_with_a_huge_contrast_stops_at_the_first_look(study: Study) -> None:
    study.write(**SHORT, **HUGE, seeds=LOOKS)
    done = study.run()
    assert "look 1 of 2, 3 seeds: stopped because no main contrast is inconclusive" in done.stdout
    assert len(study.directories()) == 2 * 3
    found = answer(study)
    assert found["looks"] | {"level": None} == {
        "planned": [3, 6],
        "taken": [3],
        "level": None,
        "stopped": "decided",
        "undecided": [],
        "set_after_results": False,
    }
    assert 0.025 < found["looks"]["level"] < 0.03
    (contrast,) = found["contrasts"]
    assert contrast["verdict"] == "worse"
    assert contrast["holm_interval"]["level"] == pytest.approx(1 - found["looks"]["level"])
    markdown = (study.folder / "reports/tiny/report.md").read_text()
    assert "The study is judged at 3 and 6 seeds. Each of these looks tests at 2.7 %, so that" in markdown
    study.here(study.folder, "report", str(study.file), H2H_CACHE=str(study.cache))
    assert answer(study) == found


@pytest.mark.slow
def test_a_study_without_a_difference_goes_on_to_the_last_look(null_study: Study) -> None:
    found = answer(null_study)
    assert found["looks"]["taken"] == [3, 6]
    assert found["looks"]["stopped"] == "at_most"
    assert [contrast["verdict"] for contrast in found["contrasts"]] == ["inconclusive"]
    assert len(null_study.directories()) == 2 * 6


@pytest.mark.slow
def test_an_interruption_between_looks_gives_the_same_answer(
    study: Study, null_study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("look 1"):
            raise KeyboardInterrupt

    study.write(**SHORT, **NULL, seeds=LOOKS)
    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    with pytest.raises(KeyboardInterrupt):
        headtohead.run(study.file, tracking=False, workers=1, log=interrupt)
    assert len(study.directories()) == 2 * 3
    plan = headtohead.plan(study.file)
    assert plan.design.seeds == (1, 2, 3)
    assert plan.remaining == []
    done = study.run()
    assert "training 6 runs in 1 stack" in done.stderr
    assert study.scores() == null_study.scores()
    assert answer(study) == answer(null_study)


@pytest.mark.slow
def test_a_kill_in_the_second_look_gives_the_same_answer(study: Study, null_study: Study) -> None:
    study.write(**SHORT, **NULL, seeds=LOOKS)
    parent = study.start("--no-tracking")
    assert parent.stdout is not None
    for line in parent.stdout:
        if line.startswith("look 1"):
            break
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    study.run()
    assert answer(study) == answer(null_study)


@pytest.mark.slow
def test_runs_of_all_looks_are_logged_to_mlflow(study: Study) -> None:
    study.write(**SHORT, **NULL, seeds=LOOKS)
    study.run(tracking=True)
    with closing(sqlite3.connect(study.folder / "mlflow.db")) as connection:
        logged = connection.execute("select count(distinct value) from tags where key = 'h2h.run_hash'").fetchone()
    assert logged == (12,)


@pytest.mark.slow
def test_looks_that_are_changed_after_results_existed_are_labelled(null_study: Study) -> None:
    label = "The planned number of seeds was changed after results existed"
    assert not any(remark["text"].startswith(label) for remark in answer(null_study)["remarks"])
    null_study.write(**SHORT, **NULL, seeds=LOOKS | {"at_most": 8})
    assert (
        "at 4 and 8 seeds"
        in null_study.here(null_study.folder, "plan", str(null_study.file), H2H_CACHE=str(null_study.cache)).stdout
    )
    done = null_study.run()
    assert label in done.stdout
    found = answer(null_study)
    assert found["looks"]["taken"] == [8]
    assert found["looks"]["set_after_results"]
    null_study.write(**SHORT, **NULL, seeds=8)
    assert label in null_study.run().stdout
    assert answer(null_study)["looks"] is None

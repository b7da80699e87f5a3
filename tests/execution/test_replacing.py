"""A debug run beside a finished study, by the real command and from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headtohead
from headtohead import files

if TYPE_CHECKING:
    from .conftest import Study


def snapshot(study: Study) -> dict[str, bytes]:
    """Return every file of the study and its report except leases."""
    folders = (study.experiment, study.folder / "reports" / study.experiment.name)
    return {
        str(path): path.read_bytes()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.mark.slow
def test_a_debug_run_does_not_change_a_finished_study(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study.write(base={"train": {"steps": 4}, "evaluate": {"unpadded": False, "test_limit": 4}})
    study.run()
    before = snapshot(study)
    recorded = files.read_json(study.experiment / "experiment.json")["runs"]
    debug = ("--set", "train.steps=2", "--seeds", "1")
    expected = (
        f"experiment 'tiny' has {len(recorded)} finished or running runs, and --set "
        f"train.steps=2 --seeds 1 would drop {len(recorded)} of them from its report; add --name "
        "LABEL (name= in Python) to create experiment 'tiny-LABEL', or edit the experiment "
        "file"
    )
    assert study.run(*debug, code=2).stderr == f"h2h: {expected}\n"
    assert study.run(*debug, "--fresh", code=2).stderr == f"h2h: {expected}\n"
    plan = study.here(study.folder, "plan", str(study.file), *debug, H2H_CACHE=str(study.cache))
    assert plan.stdout.splitlines()[-1] == f"h2h run refuses this: {expected}"

    monkeypatch.chdir(study.folder)
    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    options = {"overrides": ["train.steps=2"], "seeds": 1, "tracking": False, "device": "cpu"}
    with pytest.raises(headtohead.HeadToHeadError) as error:
        headtohead.run(study.file, **options)
    assert str(error.value) == expected

    done = headtohead.run(study.file, name="debug", **options)
    assert done.complete
    assert done.experiment.name == "tiny-debug"
    assert snapshot(study) == before
    record = files.read_json(done.experiment / "experiment.json")
    assert record["command"] == (f"h2h run {study.file.name} --set train.steps=2 --seeds 1 --name debug")
    assert (study.folder / "reports" / "tiny-debug" / "report.md").is_file()
    assert study.run("--workers", "1", "--device", "cpu").returncode == 0
    assert files.read_json(study.experiment / "experiment.json")["runs"] == recorded

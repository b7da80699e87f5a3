"""Commands agree on which runs a live process trains; the progress of experiments, and how they are found."""

import json
import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from headtohead import files
from headtohead.planning.record import experiment_record
from headtohead.storage import leases
from headtohead.storage.experiment import experiment_folders
from headtohead.storage.frames import load_frames
from headtohead.storage.leases import Busy, Lease, observe
from headtohead.storage.progress import find_experiment, read_progress
from headtohead.storage.run import StatusRecord
from headtohead.storage.stack import StackFolder, StackMember, StackRecord
from headtohead.tracking.study import TrackedStudy
from made import refused
from made.fake_study import experiment_text

HOLDERS = {
    "no process": (None, 0, False),
    "a process that runs": ({}, 0, True),
    "a process that ended": ({"token": "0" * 32}, 0, False),
    "a process that was suspended for an hour": ({}, 3600, True),
    "a process of another host": ({"host": "node3"}, 5, True),
    "a process of a host that crashed": ({"host": "node3"}, 3600, False),
    "a process from before a restart": ({"boot": "another"}, 3600, False),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_all_commands_agree_on_which_runs_are_alive(plan, record, holder, monkeypatch, request):
    state = "LEASED" if "host" in holder else "RUNNING"
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.3)  # a takeover watches for 15 s
    fields, silent, alive = HOLDERS[holder]
    planned = plan(seeds=1)
    run = record(planned, planned.runs[0], state, gone=True, host="node3", pid=17, step=40)
    (run.parent / "experiment.json").write_text(json.dumps(experiment_record(planned).to_json()))
    if fields is not None:
        lease = Lease(run)
        lease.acquire()
        request.addfinalizer(lease.release)
        files.write_json(leases._lease_file(run), lease._holder | fields)
        os.utime(leases._alive_file(run, lease._holder), (time.time() - silent,) * 2)
    seen = state if alive else "INTERRUPTED"
    assert read_progress(run.parent).runs[0].state == seen
    again = plan(seeds=1)
    assert again.runs[0].state == seen
    assert [entry.directory for entry in again.remaining] == ([] if alive else [run.name])
    assert observe(run).state == seen
    assert load_frames(run.parent).runs["state"].tolist() == [seen]
    tracked = TrackedStudy.read(run.parent).runs()[0].observed(sweep=True)
    assert (tracked.state, tracked.reason) == (
        (state, None) if alive else ("KILLED", "process 17 on node3 is gone")
    )
    if alive:
        with pytest.raises(Busy):
            Lease(run).acquire()
    else:
        with Lease(run):
            assert plan(seeds=1).runs[0].state == state


def test_a_run_that_ends_during_the_check_is_not_interrupted(tmp_path, monkeypatch):
    statuses = iter([StatusRecord(state="RUNNING"), StatusRecord(state="DONE")])
    monkeypatch.setattr(leases, "read_status", lambda run: next(statuses))
    assert leases.observe(tmp_path / "run") == StatusRecord(state="DONE")


@pytest.fixture
def study(tmp_path):
    """An experiment of one variant, with a status of its run and the progress of its stack."""

    def study(status=None, **progress):
        folder, directory = tmp_path / "runs" / "study", "v-s1-00000000"
        (folder / directory).mkdir(parents=True)
        if status is not None:
            (folder / directory / "status.json").write_text(json.dumps(status))
            leases.enter_context(Lease(folder / directory))
        if progress:
            stack = StackFolder(folder / ".stacks" / "1")
            member = StackMember(variant="v", run_hash="0", seed=1, directory=directory)
            stack.write(StackRecord(members=(member,)))
            stack.write_progress(**progress)
        (folder / "experiment.json").write_text(
            experiment_text("study", {"v": None}, [("v", 1, directory)])
        )
        return folder

    with ExitStack() as leases:
        yield study


@pytest.mark.parametrize(
    ("state", "step", "left"), [("RUNNING", 20, 160.0), ("DONE", 5, None), ("OOM", 20, None)]
)
def test_the_remaining_time_of_a_training_run_follows_from_the_progress_of_its_stack(
    study, state, step, left
):
    (run,) = read_progress(
        study({"state": state, "step": 5}, step=20, steps=100, seconds=40.0)
    ).runs
    assert (run.state, run.step, run.seconds_left) == (state, step, left)


def test_an_experiment_is_found_by_file_name_or_folder(study, tmp_path):
    folder, root = study(), tmp_path / "runs"
    for named in (Path("experiments/study.yaml"), Path("study"), folder):
        assert find_experiment(named, root) == folder
    copied = shutil.copytree(
        folder, tmp_path / "copy" / folder.name
    )  # also beside another of the same name
    assert find_experiment(copied, root) == copied
    backup = shutil.copytree(folder, root / "backup")
    assert list(experiment_folders(root)) == [folder]
    assert refused(read_progress, backup).startswith(
        "'backup' is a copy of experiment 'study'; move it out"
    )


def test_a_file_without_runs_leads_to_run(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("other.yaml").touch()
    message = f"no runs of 'other' in '{tmp_path / 'runs'}'; start with h2h run other.yaml"
    assert refused(find_experiment, Path("other.yaml"), tmp_path / "runs") == message

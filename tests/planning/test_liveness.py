"""Status, plan, workers, reports and tracking agree on which runs a live process trains."""

import json
import os
import subprocess
import sys
import time

import pytest

from headtohead import files
from headtohead.storage import leases
from headtohead.storage.frames import load_frames
from headtohead.storage.leases import Busy, Lease
from headtohead.storage.progress import read_progress
from headtohead.storage.run import StatusRecord
from headtohead.storage.run_directory import RunDirectory
from headtohead.tracking.rundirs import TrackedStudy


def ended_process():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


HOLDERS = {
    "this process": ({}, 0, True),
    "no process": (None, 0, False),
    "a process that ended": ({"pid": ended_process}, 0, False),
    "an earlier process of the same number": ({"started": lambda: 0.0}, 0, False),
    "this process, suspended for an hour": ({}, 3600, True),
    "a process of another host": ({"host": lambda: "node3"}, 5, True),
    "a process of a host that crashed": ({"host": lambda: "node3"}, 3600, False),
    "a process from before a restart": ({"boot": lambda: "another"}, 3600, False),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("state", ["LEASED", "RUNNING"])
def test_all_commands_agree_on_which_runs_are_alive(plan, record, holder, state, monkeypatch):
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.3)  # a takeover watches for 15 s
    fields, silent, alive = HOLDERS[holder]
    planned = plan(seeds=1)
    run = record(planned, planned.runs[0], state, gone=True, host="node3", pid=17, step=40)
    (run.parent / "experiment.json").write_text(json.dumps(planned.record().to_json()))
    if fields is not None:
        lease = {"token": "other", "pid": os.getpid(), "started": leases.process_start(os.getpid())}
        changed = {name: value() for name, value in fields.items()}
        file = run.parent / ".leases" / f"{run.name}.json"
        file.parent.mkdir()
        files.write_json(file, lease | leases._identity() | changed)
        os.utime(file, (time.time() - silent,) * 2)
    seen = state if alive else "INTERRUPTED"
    assert read_progress(run.parent).runs[0].state == seen
    again = plan(seeds=1)
    assert again.runs[0].state == seen
    assert [entry.directory for entry in again.remaining] == ([] if alive else [run.name])
    assert RunDirectory(run).observed_state == seen
    assert load_frames(run.parent).runs["state"].tolist() == [seen]
    tracked = TrackedStudy.read(run.parent).runs()[0].observed(sweep=True)
    assert tracked[1:] == ((state, None) if alive else ("KILLED", "process 17 on node3 is gone"))
    if alive:
        with pytest.raises(Busy):
            Lease(run).acquire()
    else:
        with Lease(run):
            assert plan(seeds=1).runs[0].state == state


def test_a_run_that_ends_during_the_check_is_not_interrupted(tmp_path, monkeypatch):
    statuses = iter([StatusRecord(state="RUNNING"), StatusRecord(state="DONE")])
    monkeypatch.setattr(leases, "read_status", lambda run: next(statuses))
    assert leases.observe(tmp_path / "run") == (StatusRecord(state="DONE"), "DONE")

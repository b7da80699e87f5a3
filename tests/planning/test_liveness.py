"""Status, plan, workers, reports and tracking agree on which runs a live process trains."""

import json
import os
import time

import pytest

from headtohead import files
from headtohead.storage import leases
from headtohead.storage.frames import load_frames
from headtohead.storage.leases import Busy, Lease, observe
from headtohead.storage.progress import read_progress
from headtohead.storage.run import StatusRecord
from headtohead.tracking.study import TrackedStudy

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
    (run.parent / "experiment.json").write_text(json.dumps(planned.record().to_json()))
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
    assert (tracked.state, tracked.reason) == ((state, None) if alive else ("KILLED", "process 17 on node3 is gone"))
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

"""A shipper that is killed before any kind of call and restarted creates each run once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from headtohead.tracking.shipping import ship

MakeExperiment = Callable[..., Path]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# Before the first call of each name and before the last call: an empty store, a child that kills itself with SIGKILL as
# it makes that call, a second child that ships undisturbed. Prints the numbers of these calls. The parent ships once
# before it forks, so that its children find everything imported.
KILLED_AT_CALLS = """
import os, shutil, signal, sys
from pathlib import Path
from headtohead_mlflow.store import load_mlflow
load_mlflow()
import mlflow.store.tracking.sqlalchemy_store
from mlflow import MlflowClient
from headtohead.tracking.shipping import ship

CALLS = ("create_experiment", "create_run", "log_batch", "log_artifact", "log_artifacts", "set_tag",
         "set_experiment_tag", "set_terminated")
runs, template, stores = map(Path, sys.argv[1:])

def arm(fatal):
    made = []
    for name in CALLS:
        def call(*arguments, _name=name, _original=getattr(MlflowClient, name), **named):
            made.append(_name)
            if len(made) == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return _original(*arguments, **named)
        setattr(MlflowClient, name, call)
    return made

def child(fatal, uri):
    process = os.fork()
    if process == 0:
        arm(fatal)
        ship(runs, uri)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

def empty_store(name):
    folder = stores / name
    folder.mkdir(parents=True)
    shutil.copyfile(template, folder / "mlflow.db")
    return f"sqlite:///{folder}/mlflow.db"

made = arm(None)
ship(runs, empty_store("first"))
names = tuple(made)
moments = {names.index(name) for name in names} | {len(names) - 1}
for fatal in sorted(moment + 1 for moment in moments):
    uri = empty_store(str(fatal))
    assert child(fatal, uri) == -signal.SIGKILL
    assert child(0, uri) == 0
    print(fatal)
"""


def test_a_shipper_killed_before_any_kind_of_call_and_restarted_creates_each_run_once(
    make_experiment: MakeExperiment, tmp_path: Path, store_template: Path
) -> None:
    folder = make_experiment(axes={"positional": ["rotary"]})
    stores = tmp_path / "stores"
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_CALLS, folder, store_template, stores],
        check=True,
        capture_output=True,
        text=True,
    )
    calls = done.stdout.split()
    assert len(calls) >= 8
    for call in calls:
        _assert_one_of_each(f"sqlite:///{stores}/{call}/mlflow.db")
    assert ship(folder, f"sqlite:///{stores}/{calls[0]}/mlflow.db").unchanged == 1


def _assert_one_of_each(uri: str) -> None:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("quickstart")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert len(history) == len({metric.step for metric in history}) == 18
    index = client.get_experiment_by_name("headtohead studies")
    (study,) = client.search_runs([index.experiment_id])
    assert study.info.status == "FINISHED"
    assert run.data.tags["mlflow.parentRunId"] == study.info.run_id

"""A shipper killed before any of its calls, and run again, leaves one run of each kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mlflow import MlflowClient

from headtohead.tracking.shipping import ship

MakeExperiment = Callable[..., Path]

# Forks a child per call number, which kills itself with SIGKILL as it makes that call.
KILLED_AT_EVERY_CALL = """
import os, signal, sys
from pathlib import Path
from headtohead.tracking import environment
environment.load()
import mlflow.store.tracking.sqlalchemy_store
from mlflow import MlflowClient
from headtohead.tracking.shipping import ship

CALLS = ("create_experiment", "create_run", "log_batch", "log_artifacts", "log_inputs",
         "set_terminated", "create_logged_model", "finalize_logged_model", "log_outputs")

def arm(fatal):
    made = 0
    for name in CALLS:
        def call(*arguments, _original=getattr(MlflowClient, name), **named):
            nonlocal made
            made += 1
            if made == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return _original(*arguments, **named)
        setattr(MlflowClient, name, call)

for fatal in range(1, 100):
    child = os.fork()
    if child == 0:
        arm(fatal)
        ship(Path(sys.argv[1]), sys.argv[2])
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(fatal)
        break
"""


def test_killed_before_any_call_there_is_one_run_in_the_end(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder = make_experiment(seeds=1, axes={"positional": ["rotary"]})
    assert _calls(folder, store_uri) > 10
    _assert_one_of_each(folder, store_uri)


def _calls(folder: Path, uri: str) -> int:
    command = [sys.executable, "-W", "ignore", "-c", KILLED_AT_EVERY_CALL, str(folder), uri]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def _assert_one_of_each(folder: Path, uri: str) -> None:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("quickstart")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert len(run.outputs.model_outputs) == len(run.inputs.dataset_inputs) == 1
    assert len(client.search_logged_models([experiment.experiment_id])) == 1
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert len(history) == len({metric.step for metric in history}) == 60
    index = client.get_experiment_by_name("headtohead studies")
    (study,) = client.search_runs([index.experiment_id])
    assert study.info.status == "FINISHED"
    assert run.data.tags["mlflow.parentRunId"] == study.info.run_id
    assert ship(folder, uri).unchanged == 1

"""A local MLflow server, and links to its pages."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from headtohead import children
from headtohead.errors import HeadToHeadError, go_on_after
from headtohead_mlflow.completeness import INDEX, STUDY_TAG
from headtohead_mlflow.store import (
    ARTIFACTS,
    SETTINGS,
    database_of,
    mlflow_experiment,
    open_store,
    store_errors,
)
from headtohead_mlflow.view import HOST, PORT, link

START_SECONDS = 180.0
STOP_SECONDS = 10.0


def study_links(uri: str, port: int = PORT) -> dict[str, str]:
    """Return the links of the studies and of their list by the names of the MLflow experiments, newest first.

    Raises:
        HeadToHeadError: If the store does not exist or cannot be used.
    """
    store = open_store(uri, create=False)
    with store_errors(uri):
        experiments = store.client.search_experiments(order_by=["creation_time DESC"])
    links = {}
    for experiment in experiments:
        is_study = STUDY_TAG in experiment.tags
        is_index = experiment.name == mlflow_experiment(INDEX)
        if is_study or is_index:
            links[experiment.name] = link(experiment.experiment_id, uri, port, index=not is_study)
    return links


@contextmanager
def server(uri: str, port: int = PORT, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an MLflow server on this machine, and have its process in the block; then end it with its workers.

    Ctrl-C ends the block without an error. SIGTERM and SIGHUP raise SystemExit, also after the block, unless they were
    ignored before.

    Args:
        uri: The store.
        port: The port of the server.
        options: Further arguments of ``mlflow server``.

    Raises:
        HeadToHeadError: If the port is in use, or the server ends or does not respond within ``START_SECONDS``.
    """
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise HeadToHeadError(f"port {port} is in use; choose another with --port")
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    command += ["--host", HOST, "--port", str(port), "--workers", "1"]
    # By default, uvicorn imports the working directory.
    command += ["--uvicorn-opts", shlex.join(["--app-dir", sysconfig.get_path("purelib")])]
    database = database_of(uri)
    if database is not None:
        command += ["--default-artifact-root", (database.parent / ARTIFACTS).as_uri()]
    command += options
    environment = {**SETTINGS, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, _leave)
    # A separate process group: Ctrl-C interrupts only this process, which ends the server and its workers.
    process = children.start_program(command, env=environment, start_new_session=True, **quiet)
    try:
        _wait_until_ready(process, port, command)
        yield process
    except KeyboardInterrupt as error:
        go_on_after(error)
    finally:
        workers = []
        if psutil.pid_exists(process.pid):
            workers = psutil.Process(process.pid).children(recursive=True)
        for number in (signal.SIGTERM, signal.SIGKILL):  # a worker may outlive the server
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            psutil.wait_procs(workers, STOP_SECONDS)
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, command: Sequence[str]) -> None:
    """Wait until the server responds to requests.

    Raises:
        HeadToHeadError: If it ends or does not respond within ``START_SECONDS``; with ``command``, to find the reason.
    """
    end = time.monotonic() + START_SECONDS
    while True:
        address = f"http://{HOST}:{port}/health"
        with suppress(OSError), urllib.request.urlopen(address, timeout=2):
            return
        code = process.poll()
        if code is not None:
            reason = f"ended with code {code}"
            break
        if time.monotonic() > end:
            reason = "did not respond in time"
            break
        time.sleep(0.2)
    raise HeadToHeadError(
        f"the MLflow server {reason}; to see the reason, run: {shlex.join(command)}"
    )


def _leave(number: int, frame: object) -> None:
    """Raise SystemExit; further signals are ignored, so that they do not interrupt the clean-up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise SystemExit(128 + number)

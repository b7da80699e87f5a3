"""An MLflow server of our own, on this machine only, and the links into it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

import psutil

from headtohead.errors import HeadToHeadError
from headtohead.tracking import environment
from headtohead.tracking.store import ARTIFACTS, database_of, one_line, open_store
from headtohead.tracking.study import INDEX, STUDY_TAG
from headtohead.tracking.view import link

HOST = "127.0.0.1"
PORT = 5000
START_SECONDS = 60.0
STOP_SECONDS = 10.0


def server_of(uri: str, port: int = PORT) -> str:
    """Return where the page of a store is: the server itself, or the one ``h2h ui`` starts."""
    return uri if uri.startswith("http") else f"http://{HOST}:{port}"


def study_links(uri: str, server: str) -> dict[str, str]:
    """Return the link of each study's view by its name, the newest first.

    Raises:
        HeadToHeadError: If there is no store yet, or it cannot be used.
    """
    store = open_store(uri, create=False)
    with one_line(uri):
        experiments = store.client.search_experiments(order_by=["creation_time DESC"])
    return {
        experiment.name: link(experiment.experiment_id, server)
        for experiment in experiments
        if STUDY_TAG in experiment.tags and experiment.name != INDEX
    }


class Server:
    """A running MLflow server; leaving the block ends it and its workers."""

    def __init__(self, uri: str, port: int = PORT) -> None:
        self.uri, self.port = uri, port
        self.address = server_of("", port)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        _refuse_taken(self.port)
        # A group of its own: Ctrl-C reaches us alone, and we end the server with its workers.
        self.process = subprocess.Popen(
            _command(self.uri, self.port),
            env=_environment(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait_until_it_answers(self.process)
        except BaseException:
            self._end(self.process)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.process is not None:
            self._end(self.process)
        return kind is KeyboardInterrupt

    def wait(self) -> None:
        """Return when the server has ended by itself."""
        if self.process is not None:
            self.process.wait()

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if process.poll() is not None:
                raise HeadToHeadError(
                    f"the MLflow server ended with code {process.returncode}; "
                    f"type this to see why: {' '.join(_command(self.uri, self.port))}"
                )
            if _answers(self.address):
                return
            time.sleep(0.2)
        raise HeadToHeadError(f"the MLflow server did not answer within {START_SECONDS:.0f} s")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End every process of the server's group; a worker may outlive the server."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            group = _group(process.pid)
            if group:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                psutil.wait_procs(group, STOP_SECONDS)
        process.wait()


def _group(leader: int) -> list[psutil.Process]:
    """Return the processes of a group that still run."""
    found = []
    for one in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getpgid(one.pid) == leader and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit inside the block, so that it cleans up.

    A signal that this process ignores, as under nohup, stays ignored. Only the first signal counts:
    another one must not interrupt the cleaning.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {
        one: handler for one in (signal.SIGTERM, signal.SIGHUP) if (handler := signal.getsignal(one)) != signal.SIG_IGN
    }
    for one in before:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _command(uri: str, port: int) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        uri,
        "--host",
        HOST,
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    database = database_of(uri)
    if database is not None:
        command += ["--default-artifact-root", (database.parent / ARTIFACTS).as_uri()]
    return command


def _environment() -> dict[str, str]:
    return {**environment.SETTINGS, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise HeadToHeadError(f"port {port} is in use; choose another with --port")

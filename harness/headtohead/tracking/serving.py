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
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

import psutil

from headtohead import children
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
    """Return the address of a store's server: the store itself, or the server that ``h2h ui`` starts."""
    return uri if uri.startswith("http") else f"http://{HOST}:{port}"


def study_links(uri: str, server: str) -> dict[str, str]:
    """Return the links of experiments by name, newest first.

    Raises:
        HeadToHeadError: If the store does not exist or cannot be used.
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
    """A context manager that runs an MLflow server and ends it with its workers."""

    def __init__(self, uri: str, port: int = PORT) -> None:
        self.uri, self.port = uri, port
        self.address = server_of("", port)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        _refuse_taken(self.port)
        # A separate process group: Ctrl-C interrupts only this process, which ends the server and its workers.
        self.process = children.start_program(
            _command(self.uri, self.port),
            env=_environment(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait_until_ready(self.process)
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
        """Wait until the server ends."""
        if self.process is not None:
            self.process.wait()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if process.poll() is not None:
                raise HeadToHeadError(
                    f"the MLflow server ended with code {process.returncode}; "
                    f"to see the reason, run: {' '.join(_command(self.uri, self.port))}"
                )
            if _responds(self.address):
                return
            time.sleep(0.2)
        raise HeadToHeadError(
            f"the MLflow server did not respond within {START_SECONDS:.0f} s; run the same command again"
        )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End all processes of the server's group, since a worker may outlive the server."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            group = _group(process.pid)
            if group:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                psutil.wait_procs(group, STOP_SECONDS)
        process.wait()


def _group(leader: int) -> list[psutil.Process]:
    """Return the running processes of a process group."""
    members = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP inside the block, so that its clean-up runs.

    Signals that this process ignores, as under nohup, stay ignored. After the first signal, further signals are
    ignored so that they do not interrupt the clean-up.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        for handled in before:
            signal.signal(handled, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {
        handled: handler
        for handled in (signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(handled)) != signal.SIG_IGN
    }
    for handled in before:
        signal.signal(handled, leave)
    try:
        yield
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)


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
        "--uvicorn-opts",
        shlex.join(["--app-dir", sysconfig.get_path("purelib")]),  # by default, uvicorn imports the working directory
    ]
    database = database_of(uri)
    if database is not None:
        command += ["--default-artifact-root", (database.parent / ARTIFACTS).as_uri()]
    return command


def _environment() -> dict[str, str]:
    return {**environment.SETTINGS, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}


def _responds(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise HeadToHeadError(f"port {port} is in use; choose another with --port")

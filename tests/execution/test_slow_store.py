"""A slow, locked or unresponsive store delays neither the answer nor the report."""

from __future__ import annotations

import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from headtohead import api
from headtohead.execution.scheduler import Watcher
from headtohead.tracking import shipper
from made.study import Study

SECONDS = 4.0
"""The time limit of a command for its store in these tests."""


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that accepts every connection and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(listening.accept()[0])
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://name:secret@127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode=EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold an exclusive lock on the database by another process."""
    command = [sys.executable, "-c", LOCK, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.kill()


def lines_of_a_run(
    study: Study, monkeypatch: pytest.MonkeyPatch, uri: str | None, seconds: float = SECONDS
) -> list[tuple[float, str]]:
    """Run the study; return each output line with its seconds since the end of training."""
    monkeypatch.setenv("H2H_SHIPPING_SECONDS", str(seconds))
    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    monkeypatch.chdir(study.folder)
    if uri is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    messages: list[tuple[float, str]] = []
    watcher = _Watcher()
    api.run("tiny.yaml", workers=1, watcher=watcher, log=lambda line: messages.append((time.monotonic(), line)))
    messages.append((time.monotonic(), "end"))
    report = next(number for number, (_, line) in enumerate(messages) if line.startswith("report: "))
    return [(moment - watcher.ended_at, line) for moment, line in messages[report - 1 :]]


class _Watcher(Watcher):
    ended_at = 0.0

    def close(self) -> None:
        self.ended_at = time.monotonic()


def shippers(study: Study) -> list[int]:
    """Return the processes of shippers of the study."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "headtohead.tracking.shipper" in (process.info["cmdline"] or ())
        and any(str(study.folder) in word or word == str(study.experiment) for word in process.info["cmdline"])
    ]


def check(study: Study, messages: list[tuple[float, str]], uri: str) -> None:
    times, lines = zip(*messages, strict=True)
    assert lines[1] == "report: reports/tiny/index.html"
    assert lines[2] == (
        f"mlflow: shipping to {uri} for at most {SECONDS:.0f} s more; Ctrl-C leaves the rest to h2h sync tiny.yaml"
    )
    assert lines[3].startswith(f"mlflow: not everything was shipped to {uri} (")
    assert lines[3].endswith("); nothing is lost, run h2h sync tiny.yaml")
    assert lines[4] == "end"
    seconds = dict(zip(lines, times, strict=True))
    # The time to write the report varies; the store adds nothing to it.
    written = (study.folder / "reports" / "tiny" / "index.html").stat().st_mtime
    assert seconds[lines[1]] - seconds["end"] <= 0
    assert time.time() - written < SECONDS + 8
    assert seconds["end"] - seconds[lines[1]] < shipper.QUIET_SECONDS + SECONDS + 4
    assert shippers(study) == []


def sync(study: Study) -> None:
    """Ship to a store that works, which the last line names."""
    study.h2h("sync", "tiny.yaml")
    with closing(sqlite3.connect(study.folder / "mlflow.db")) as connection:
        rows = connection.execute("select count(distinct value) from tags where key = 'h2h.run_hash'").fetchone()
    assert rows == (2,)


@pytest.mark.slow
def test_a_server_that_never_answers_delays_nothing(
    study: Study, monkeypatch: pytest.MonkeyPatch, silent_server: str
) -> None:
    messages = lines_of_a_run(study, monkeypatch, silent_server)
    check(study, messages, silent_server.replace("name:secret@", ""))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sync(study)


@pytest.mark.slow
def test_a_locked_sqlite_file(study: Study, monkeypatch: pytest.MonkeyPatch, store_template: Path) -> None:
    database = study.folder / "mlflow.db"
    shutil.copyfile(store_template, database)
    with locked(database):
        messages = lines_of_a_run(study, monkeypatch, None)
    check(study, messages, f"sqlite:///{database}")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sync(study)


@pytest.mark.slow
def test_ctrl_c_while_shipping_ends_the_command(study: Study, silent_server: str) -> None:
    environment = study.environment | {"MLFLOW_TRACKING_URI": silent_server}
    with subprocess.Popen(
        study.command("run", "tiny.yaml", "--workers", "1"),
        cwd=study.folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "for at most" in line:
                break
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(20) == 0  # every run is done
    assert time.monotonic() - began < 15
    assert "nothing is lost, run h2h sync tiny.yaml" in rest
    assert shippers(study) == []

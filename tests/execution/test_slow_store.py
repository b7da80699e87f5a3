"""A slow, locked or unresponsive store delays neither the answer nor the report."""

import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from headtohead import api
from headtohead.tracking import shipper
from made import serving
from made.study import Study

SECONDS = 2.0
"""The time limit of a command for its store in these tests."""


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that never answers a request."""
    over = threading.Event()
    with serving(lambda handler: over.wait() and None) as address:
        yield address.replace("//", "//name:secret@")
        over.set()


def shippers(study: Study) -> list[int]:
    """Return the processes of shippers of the study."""
    found = ((process.pid, process.info) for process in psutil.process_iter(["cmdline", "cwd"]))
    return [
        pid
        for pid, info in found
        if "headtohead.tracking.shipper" in (info["cmdline"] or ())
        and str(study.folder) in " ".join([*info["cmdline"], info["cwd"] or ""])
    ]


def check_run(study: Study, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """Run the study with a store that never answers: the report is written first, and the command ends in time."""
    monkeypatch.setenv("H2H_TRACKING_SECONDS", str(SECONDS))
    monkeypatch.chdir(study.folder)
    messages: list[tuple[float, str]] = []
    api.run("tiny.yaml", workers=1, log=lambda line: messages.append((time.monotonic(), line)))
    ended = time.monotonic()
    times, lines = zip(*messages[-3:], strict=True)
    assert lines[0] == "report: reports/tiny/index.html"
    assert lines[1].startswith(f"mlflow: logging to {uri} for at most {SECONDS:.0f} s more; Ctrl-C leaves the rest to ")
    assert lines[2].startswith(f"mlflow: not everything was logged to {uri} (")
    assert lines[2].endswith("); nothing is lost, run h2h sync tiny.yaml")
    assert ended - times[0] < shipper.QUIET_SECONDS + SECONDS + 4
    assert shippers(study) == []


@pytest.mark.slow
def test_a_locked_store_and_a_server_that_never_answers_delay_nothing(
    study: Study, monkeypatch: pytest.MonkeyPatch, silent_server: str, store_template: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", silent_server)
    check_run(study, monkeypatch, silent_server.replace("name:secret@", ""))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    database = study.folder / "mlflow.db"
    shutil.copyfile(store_template, database)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        study.write(seeds=3)
        check_run(study, monkeypatch, f"sqlite:///{database}")
    study.h2h("sync", "tiny.yaml")
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("select count(distinct value) from tags where key = 'h2h.run_hash'").fetchone()
    assert rows == (3,)


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

"""The commands ``h2h sync`` and ``h2h ui``."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from filelock import FileLock

from headtohead.cli import main
from made import free_port

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary"]}


def test_sync_ships_all_experiments_and_prints_counts_and_links(
    make_experiment: MakeExperiment, tmp_path: Path, store_uri: str
) -> None:
    for name in ("one", "two"):
        make_experiment(name=name, seeds=(1, 2), axes=AXES, states={("rotary", 2): "PLANNED"})
    result = _call("sync", "--runs", str(tmp_path / "runs"))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "one: 1 logged, 0 unchanged, 1 not started"
    assert lines[1].endswith(
        "/runs?workflowType=machine_learning&viewStateShareKey=study&compareRunsMode=CHART"
    )
    assert lines[2] == "two: 1 logged, 0 unchanged, 1 not started"
    ui = f"h2h ui --runs {tmp_path / 'runs'}"
    assert lines[4] == f"store: {store_uri}; the links require a running {ui}"


def test_sync_names_a_study_that_another_process_logs_and_ships_the_others(
    make_experiment: MakeExperiment, tmp_path: Path, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        make_experiment(name=name, axes=AXES)
    monkeypatch.setenv("H2H_TRACKING_SECONDS", "0.1")
    lock = tmp_path / "runs/one/.loggers/mlflow.lock"
    lock.parent.mkdir()
    with FileLock(lock):
        result = _call("sync", "--runs", str(tmp_path / "runs"))
    assert result.exit_code == 1
    assert "another process logs 'one' to mlflow; waiting for it for at most 0 s" in result.output
    assert "another process logs 'one' to mlflow; wait until it ends" in result.output
    assert "two: 1 logged" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quikstart"], "no runs of 'quikstart'.*did you mean 'quickstart'"),
        (["--uri", "./mlruns"], "file store './mlruns' is not supported"),
        (["--uri", "sqlite:////"], "MLflow store sqlite://// is a folder"),
        (["--logger", "nope"], "unknown logger 'nope'; known: mlflow, tensorboard"),
    ],
)
def test_sync_reports_bad_input_in_one_line(
    make_experiment: MakeExperiment, tmp_path: Path, arguments: list[str], message: str
) -> None:
    make_experiment(axes=AXES)
    result = _call("sync", *arguments, "--runs", str(tmp_path / "runs"))
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert re.match(f"h2h: .*{message}", result.output)


def test_ui_without_a_store_names_the_command_that_creates_a_store(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    result = _call("ui", "--runs", str(tmp_path / "runs"), "--no-browser")
    assert "there is no MLflow store" in result.output


def _call(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


@pytest.mark.slow
def test_ui_stops_the_server_and_its_workers_when_its_terminal_is_closed(
    tmp_path: Path, store_uri: str
) -> None:
    """SIGTERM ends the servers of ``test_browser.py``."""
    (tmp_path / "runs").mkdir()
    port = free_port()
    # A machine without a browser, where xdg-open tries several browsers and prints errors.
    tool = tmp_path / "bin" / "xdg-open"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'xdg-open: no method available for opening' >&2\nexit 3\n")
    tool.chmod(0o755)
    environment = {
        k: v for k, v in os.environ.items() if k not in {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    }
    command = [sys.executable, "-m", "headtohead.cli", "ui", "--runs", str(tmp_path / "runs")]
    with subprocess.Popen(
        [*command, "--port", str(port)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | {"PATH": f"{tool.parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"},
    ) as parent:
        assert parent.stdout is not None
        assert any(line.startswith("Ctrl-C stops the server") for line in parent.stdout)
        started = psutil.Process(parent.pid).children(recursive=True)
        assert any("mlflow" in " ".join(process_of_ui.cmdline()) for process_of_ui in started)
        try:
            parent.send_signal(signal.SIGHUP)
            _, noise = parent.communicate(timeout=120)
            _, left = psutil.wait_procs(started, timeout=30)
            assert (parent.returncode, noise, left) == (128 + signal.SIGHUP, "", [])
        finally:
            for process_of_ui in started:
                with suppress(psutil.NoSuchProcess):
                    process_of_ui.kill()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0

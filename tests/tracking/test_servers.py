"""A team's server: PostgreSQL, users with passwords, artifacts through the server, experiments in a folder."""

import importlib.util
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from headtohead.tracking.serving import study_links
from headtohead.tracking.shipper import follow
from headtohead.tracking.shipping import Shipper, ship
from headtohead.tracking.store import DeniedError
from made import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
START_SECONDS = 300
"""Time for a server to start, which creates the tables of PostgreSQL."""

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary"]}
ENDED = threading.Event()
ENDED.set()
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an empty database of PostgreSQL, whose server ends after the test."""
    if not BINARIES or importlib.util.find_spec("psycopg2") is None:
        pytest.skip("needs PostgreSQL (Debian: apt-get install postgresql) and psycopg2")
    folder, port = Path("/tmp") / f"h2h-postgresql-{secrets.token_hex(4)}", free_port()
    folder.mkdir()
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        as_user = ["runuser", "-u", "postgres", "--"]
    programs = BINARIES[-1].parent
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(folder / "data"), "-w"]

    def call(*command: str) -> None:
        done = subprocess.run(command, cwd="/tmp", stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, command

    try:
        call(*as_user, str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "mlflow")
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
        call(*control, "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql+psycopg2://mlflow@127.0.0.1:{port}/postgres"
    finally:
        with suppress(AssertionError):
            call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mlflow_server(folder: Path, uri: str, *arguments: str, **environment: str) -> Iterator[str]:
    """Run ``mlflow server`` as a team does, and yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--port", str(port)]
    command += ["--workers", "1", "--serve-artifacts", "--artifacts-destination", str(folder / "artifacts"), *arguments]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **environment}
    address, log = f"http://127.0.0.1:{port}", folder / "server.log"
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            until = time.monotonic() + START_SECONDS
            while True:
                with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2):
                    break
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(log.read_text()[-3000:])
                time.sleep(0.3)
            yield address
        finally:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()


def test_a_study_is_logged_to_postgresql(make_experiment: MakeExperiment, tmp_path: Path, postgresql: str) -> None:
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    with mlflow_server(tmp_path, postgresql) as address:
        assert ship(folder, address).shipped == 2
        assert ship(folder, address).unchanged == 2
        client = MlflowClient(address)
        index = client.get_experiment_by_name("headtohead studies")
        (own,) = client.search_runs([index.experiment_id], "metrics.`study/runs` = 2")
        assert own.info.status == "FINISHED"
        assert own.info.artifact_uri.startswith("mlflow-artifacts:")
        assert "experiment.json" in {file.path for file in client.list_artifacts(own.info.run_id)}


def test_users_and_folders_of_a_team(
    make_experiment: MakeExperiment, tmp_path: Path, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("flask_wtf") is None:
        pytest.skip("needs Flask-WTF: pip install 'mlflow[auth]'")
    folder, password = make_experiment(axes=AXES), secrets.token_hex(8)
    settings = {
        "default_permission": "READ",
        "database_uri": f"sqlite:///{tmp_path}/users.db",
        "admin_username": "admin",
        "admin_password": password,
        "auth_cache_ttl_seconds": 60,
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
    }
    lines = ["[mlflow]", *(f"{name} = {value}" for name, value in settings.items())]
    (tmp_path / "auth.ini").write_text("\n".join(lines))
    secret = {"MLFLOW_AUTH_CONFIG_PATH": str(tmp_path / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": password}
    monkeypatch.setenv("H2H_MLFLOW_FOLDER", "/Users/name@example.org/")
    name = "/Users/name@example.org/quickstart"
    with mlflow_server(tmp_path, store_uri, "--app-name", "basic-auth", **secret) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
        with pytest.raises(DeniedError, match="not authenticated") as refused:
            follow(Shipper(folder, uri=address), ENDED)  # without a second attempt
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        assert ship(folder, address).failures == []
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name(name)
        (run,) = client.search_runs([experiment.experiment_id])
        assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"run", "images"}
        assert set(study_links(address)) == {name, "/Users/name@example.org/headtohead studies"}
        import requests

        reader = {"username": "reader", "password": secrets.token_hex(8)}
        made = requests.post(
            f"{address}/api/2.0/mlflow/users/create", json=reader, auth=("admin", password), timeout=20
        )
        assert made.status_code == 200, made.text
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", reader["username"])
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", reader["password"])
        status = folder / next(folder.glob("*/status.json"))
        status.write_text(json.dumps(json.loads(status.read_text()) | {"attempt": 2}))
        with pytest.raises(DeniedError, match="ermission denied") as denied:
            ship(folder, address)
        for error in (refused, denied):
            assert "\n" not in str(error.value)
            assert "no run is lost" in str(error.value)

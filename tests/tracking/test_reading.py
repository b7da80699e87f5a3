"""Real MLflow servers, also a team's with PostgreSQL, users and folders; scores of any code for ``h2h judge``."""

import importlib.util
import json
import os
import pwd
import secrets
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from headtohead.cli import main
from headtohead.errors import HeadToHeadError
from headtohead.tracking.shipper import follow
from headtohead.tracking.shipping import Shipper, ship
from headtohead_judge.sources import read_source
from headtohead_mlflow import serving
from headtohead_mlflow.serving import server, study_links
from headtohead_mlflow.store import DeniedError, open_store
from made import free_port
from made import serving as answering

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary"]}
ENDED = threading.Event()
ENDED.set()
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
SCORES = {"base": [0.80, 0.82, 0.81, 0.79], "new": [0.85, 0.86, 0.855, 0.84]}


@pytest.mark.slow
def test_a_study_is_shipped_to_a_server(
    make_experiment: MakeExperiment, tmp_path: Path, store_uri: str
) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    folder = make_experiment(axes=AXES, maps=True)
    # As on a remote server, artifacts are uploaded to the server instead of written directly.
    options = (
        "--default-artifact-root",
        "mlflow-artifacts:/",
        "--artifacts-destination",
        str(tmp_path / "artifacts"),
    )
    created: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        """Answer as the server, except that the first answers to requests for a new run are lost."""
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        with closing(HTTPConnection("127.0.0.1", port, timeout=120)) as behind:
            behind.request(request.command, request.path, body, dict(request.headers))
            reply = behind.getresponse()
            content = reply.read()
        if request.path.endswith("/runs/create"):
            created.append(request.path)
            if len(created) <= 2:
                return
        request.send_response(reply.status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    with server(store_uri, port, *options), answering(answer) as proxy:
        assert follow(Shipper(folder, uri=proxy), ENDED)
        assert len(created) == 2  # the study's own run and the training run
        assert ship(folder, proxy).unchanged == 1
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name("quickstart")
        assert experiment.artifact_location.startswith("mlflow-artifacts:")
        (run,) = client.search_runs([experiment.experiment_id])
        assert len(client.list_artifacts(run.info.run_id, "images")) == 2 * 3 * 2
        (directory,) = (path.parent for path in folder.glob("*/run.json"))
        back = Path(client.download_artifacts(run.info.run_id, "run", dst_path=str(tmp_path)))
        for file in ("run.json", "metrics.jsonl", "attention/maps.safetensors", "translations.tsv"):
            assert (back / file).read_bytes() == (directory / file).read_bytes()
        link = study_links(address)["quickstart"]
        assert link.startswith(f"{address}/#/experiments/{experiment.experiment_id}/runs?")
        with urllib.request.urlopen(address, timeout=120) as page:
            assert b"<title>MLflow</title>" in page.read()
        with (
            pytest.raises(HeadToHeadError, match="is in use; choose another with --port"),
            server(store_uri, port),
        ):
            pass


@pytest.fixture
def postgresql(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of an empty database of PostgreSQL, whose server ends after the test."""
    if not BINARIES or importlib.util.find_spec("psycopg2") is None:
        pytest.skip("needs PostgreSQL (Debian: apt-get install postgresql) and psycopg2")
    folder, port = Path("/tmp") / f"h2h-postgresql-{secrets.token_hex(4)}", free_port()
    folder.mkdir()
    monkeypatch.setattr(serving, "START_SECONDS", 300.0)  # the server creates the tables
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        as_user = ["runuser", "-u", "postgres", "--"]
    programs = BINARIES[-1].parent
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(folder / "data"), "-w"]

    def call(*command: str) -> None:
        done = subprocess.run(
            command, cwd="/tmp", stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False
        )
        assert done.returncode == 0, command

    try:
        call(
            *as_user,
            str(programs / "initdb"),
            "-D",
            str(folder / "data"),
            "-A",
            "trust",
            "-U",
            "mlflow",
        )
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
        call(*control, "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql+psycopg2://mlflow@127.0.0.1:{port}/postgres"
    finally:
        with suppress(AssertionError):
            call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_is_logged_to_postgresql(
    make_experiment: MakeExperiment, tmp_path: Path, postgresql: str
) -> None:
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with server(postgresql, port, "--artifacts-destination", str(tmp_path / "artifacts")):
        assert ship(folder, address).shipped == 2
        assert ship(folder, address).unchanged == 2
        client = MlflowClient(address)
        index = client.get_experiment_by_name("headtohead studies")
        (own,) = client.search_runs([index.experiment_id], "metrics.`study/runs` = 2")
        assert own.info.status == "FINISHED"
        assert own.info.artifact_uri.startswith("mlflow-artifacts:")
        assert "experiment.json" in {file.path for file in client.list_artifacts(own.info.run_id)}


@pytest.mark.slow
@pytest.mark.timeout(600)
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
    monkeypatch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(tmp_path / "auth.ini"))
    monkeypatch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", password)
    monkeypatch.setenv("H2H_MLFLOW_FOLDER", "/Users/name@example.org/")
    name = "/Users/name@example.org/quickstart"
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    options = (
        "--default-artifact-root",
        "mlflow-artifacts:/",
        "--artifacts-destination",
        str(tmp_path / "artifacts"),
    )
    with server(store_uri, port, "--app-name", "basic-auth", *options):
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
            f"{address}/api/2.0/mlflow/users/create",
            json=reader,
            auth=("admin", password),
            timeout=120,
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


@pytest.fixture(scope="module")
def foreign_store(tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> str:
    """The URI of a store with an experiment that other code has logged, with curves of the metric."""
    uri = f"sqlite:///{shutil.copy(store_template, tmp_path_factory.mktemp('other') / 'other.db')}"
    client = open_store(uri, create=False).client
    experiment = client.create_experiment("sweep")
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            run = client.create_run(experiment, run_name=f"{variant}-{seed}").info.run_id
            client.log_param(run, "arch", variant)
            client.log_param(run, "seed", seed)
            for step in (1, 2):
                client.log_metric(run, "val/accuracy", score * step / 2, step=step)
            client.set_terminated(run)
    crashed = client.create_run(experiment, run_name="crashed").info.run_id
    client.log_param(crashed, "arch", "new")
    client.log_param(crashed, "seed", 9)
    client.set_terminated(crashed, status="FAILED")
    return uri


def _judge(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["judge", *arguments])


def test_runs_of_other_code_are_judged_by_the_last_step(foreign_store: str) -> None:
    arguments = (
        "--experiment",
        "sweep",
        "--baseline",
        "base",
        "--variant",
        "arch",
        "--metric",
        "val/accuracy",
    )
    result = _judge(foreign_store, *arguments)
    assert result.exit_code == 0, result.output
    assert "baseline base: 0.8050" in result.output
    assert "row 1 (FAILED)" in result.output


def test_bad_stores_and_experiments_are_one_line(foreign_store: str, tmp_path: Path) -> None:
    for store, *experiment in (
        (foreign_store, "--experiment", "swep"),
        (foreign_store,),
        (f"sqlite:///{tmp_path / 'none.db'}", "--experiment", "sweep"),
    ):
        result = _judge(store, *experiment, "--baseline", "base")
        assert (result.exit_code, len(result.output.splitlines())) == (2, 1)


@pytest.mark.slow
def test_runs_of_headtohead_are_judged_like_their_report(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    ship(
        make_experiment(seeds=(1, 2, 3, 4), axes={"positional": ["sinusoidal", "none"]}), store_uri
    )
    table = read_source(store_uri, "quickstart", None)
    assert sorted(table["variant"].unique()) == ["sinusoidal", "without positions"]
    result = _judge(
        store_uri,
        "--experiment",
        "quickstart",
        "--baseline",
        "sinusoidal",
        "--metric",
        "test/exact_match",
    )
    assert result.exit_code == 1, result.output
    (row,) = [line for line in result.output.splitlines() if line.startswith("without positions")]
    assert row.endswith("worse")

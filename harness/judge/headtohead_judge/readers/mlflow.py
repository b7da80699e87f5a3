"""Experiments of MLflow, without importing mlflow: SQLite files by ``sqlite3``, tracking servers by their REST API.

Both give a row per active run, the newest first, with its parameters, its status and the last value of each metric;
with a metric, a row per logged step of it.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from http.client import HTTPException
from typing import Any

import pandas as pd

from headtohead_judge.errors import HeadToHeadError, similar_or_known
from headtohead_judge.readers.formats import HAS_STEPS, Rows, StoreFormat, sqlite_path

USER = "MLFLOW_TRACKING_USERNAME"
PASSWORD = "MLFLOW_TRACKING_PASSWORD"
TOKEN = "MLFLOW_TRACKING_TOKEN"
"""Variables of the environment with the access to a server, as mlflow reads them."""

SECONDS = 60.0
"""Maximum time of an answer of a server."""

RUNS_PER_PAGE = 1000
POINTS_PER_PAGE = 25_000


def read_sqlite(uri: str, experiment: str, metric: str | None) -> pd.DataFrame:
    """Return the runs of an experiment in ``sqlite:///FILE``.

    Raises:
        HeadToHeadError: If there is no such file, it is no MLflow store, or it has no such experiment or no run of it.
    """
    path = sqlite_path(uri)
    if not path.is_file():
        raise HeadToHeadError(f"no file {path}, which {uri} names")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = _rows_of_database(database, uri, experiment, metric)
    except sqlite3.Error as error:
        raise HeadToHeadError(f"{path}: not an MLflow store ({error})") from error
    return _table(rows, uri, experiment)


def _rows_of_database(
    database: sqlite3.Connection, uri: str, experiment: str, metric: str | None
) -> Rows:
    names = dict(database.execute("SELECT name, experiment_id FROM experiments"))
    if experiment not in names:
        raise _no_experiment(experiment, uri, [*names])
    query = (
        "SELECT run_uuid, name, status FROM runs WHERE experiment_id = ? AND lifecycle_stage = 'active' "
        "ORDER BY start_time DESC, run_uuid"
    )
    rows: Rows = []
    for run, name, status in database.execute(query, (names[experiment],)).fetchall():
        params = dict(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,)))
        last: dict[str, float] = {}
        for key, value, is_nan in database.execute(
            "SELECT key, value, is_nan FROM latest_metrics WHERE run_uuid = ?", (run,)
        ):
            last[key] = math.nan if is_nan else value
        points: list[Any] = []
        if metric is not None and metric in last:
            points = database.execute(
                "SELECT step, value, is_nan FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY step, timestamp",
                (run, metric),
            ).fetchall()
        by_step = {step: math.nan if is_nan else value for step, value, is_nan in points}
        rows += _rows_of_run({"run_name": name, **params, "status": status}, last, metric, by_step)
    return rows


def read_server(uri: str, experiment: str, metric: str | None) -> pd.DataFrame:
    """Return the runs of an experiment of the server ``http://HOST:PORT``.

    Raises:
        HeadToHeadError: If the server does not answer or refuses, or it has no such experiment or no run of it.
    """
    server = _Server(uri)
    try:
        rows = _rows_of_server(server, experiment, metric)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise HeadToHeadError(
            f"{server.uri} does not answer as an MLflow server ({reason}); check the address"
        ) from error
    return _table(rows, uri, experiment)


def _rows_of_server(server: _Server, experiment: str, metric: str | None) -> Rows:
    identity = server.experiment(experiment)
    rows: Rows = []
    body: dict[str, Any] = {"experiment_ids": [identity], "max_results": RUNS_PER_PAGE}
    for answer in server.pages("runs/search", body):
        for run in answer.get("runs", []):
            data = run.get("data", {})
            params = {pair["key"]: pair["value"] for pair in data.get("params", [])}
            last = {point["key"]: float(point["value"]) for point in data.get("metrics", [])}
            by_step: dict[int, float] = {}
            if metric is not None and metric in last:
                by_step = server.history(run["info"]["run_id"], metric)
            fields = {
                "run_name": run["info"].get("run_name"),
                **params,
                "status": run["info"]["status"],
            }
            rows += _rows_of_run(fields, last, metric, by_step)
    return rows


class _Server:
    """The REST API of a tracking server."""

    def __init__(self, uri: str) -> None:
        parts = urllib.parse.urlsplit(uri)
        access, _, address = parts.netloc.rpartition("@")
        path = parts.path.rstrip("/")
        self.uri = f"{parts.scheme}://{address}{path}"
        self.access = ""
        user, _, password = urllib.parse.unquote(access).partition(":")
        user = user or os.environ.get(USER, "")
        password = password or os.environ.get(PASSWORD, "")
        if user:
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self.access = f"Basic {encoded}"
        elif os.environ.get(TOKEN):
            self.access = f"Bearer {os.environ[TOKEN]}"

    def experiment(self, name: str) -> str:
        """Return the identity of an experiment."""
        names = {}
        for answer in self.pages("experiments/search", {"max_results": RUNS_PER_PAGE}):
            for experiment in answer.get("experiments", []):
                names[experiment["name"]] = experiment["experiment_id"]
        if name not in names:
            raise _no_experiment(name, self.uri, [*names])
        return str(names[name])

    def history(self, run: str, metric: str) -> dict[int, float]:
        """Return the values of a metric of a run by step; of several values of a step, the latest."""
        points: list[dict[str, Any]] = []
        query = {"run_id": run, "metric_key": metric, "max_results": POINTS_PER_PAGE}
        token: str | None = None
        while token != "":
            page = query if token is None else query | {"page_token": token}
            answer = self._answer(f"metrics/get-history?{urllib.parse.urlencode(page)}", None)
            points += answer.get("metrics", [])
            token = answer.get("next_page_token", "")
        points.sort(key=lambda point: (int(point.get("step", 0)), int(point.get("timestamp", 0))))
        return {int(point.get("step", 0)): float(point["value"]) for point in points}

    def pages(self, method: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return all answers to a request."""
        answers = [self._answer(method, body)]
        while answers[-1].get("next_page_token"):
            token = answers[-1]["next_page_token"]
            answers.append(self._answer(method, body | {"page_token": token}))
        return answers

    def _answer(self, method: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """Return the answer to a request; with a body, it is a POST."""
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{method}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if self.access:
            request.add_unredirected_header("Authorization", self.access)  # not for another host
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        except urllib.error.HTTPError as error:
            reason = _reason(error)
        except (OSError, HTTPException, ValueError) as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        raise HeadToHeadError(
            f"cannot read the MLflow server {self.uri}: {reason}; check the address, or set {USER} and {PASSWORD}"
        )


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the message of an answer with an error, in one line."""
    try:
        message = json.loads(error.read())["message"]
    except (ValueError, KeyError, TypeError, OSError):
        message = error.reason
    return f"HTTP {error.code}, {' '.join(str(message).split())[:200]}"


def _rows_of_run(
    fields: dict[str, Any], last: dict[str, float], metric: str | None, by_step: dict[int, float]
) -> Rows:
    """Return the rows of a run: one per step of the metric, or one with the last values if it has no steps."""
    if not by_step or metric is None:
        return [fields | last]
    return [fields | {"step": step, metric: value} for step, value in by_step.items()]


def _no_experiment(name: str, uri: str, known: list[str]) -> HeadToHeadError:
    return HeadToHeadError(
        f"no experiment '{name}' in {without_access(uri)}{similar_or_known(name, known)}"
    )


def without_access(uri: str) -> str:
    """Return the address of a store without its user and password."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _table(rows: Rows, uri: str, experiment: str) -> pd.DataFrame:
    if not rows:
        raise HeadToHeadError(f"experiment '{experiment}' in {without_access(uri)} has no runs")
    table = pd.DataFrame(rows, dtype="object")
    table.attrs[HAS_STEPS] = True
    return table


MLFLOW_SQLITE = StoreFormat("sqlite:///FILE of MLflow", ("sqlite",), read_sqlite)
MLFLOW_SERVER = StoreFormat("http://HOST:PORT of an MLflow server", ("http", "https"), read_server)

"""Results as other programs store them: a reader gives the scores of a small file in the public format, or an error."""

import importlib
import json
import pkgutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from headtohead_judge import readers
from headtohead_judge.command import command
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers import DATABASES, FOLDERS, TABLES
from headtohead_judge.readers.formats import (
    DatabaseFormat,
    FolderFormat,
    StoreFormat,
    TableFormat,
)
from headtohead_judge.readers.stores import STORES
from headtohead_judge.result_folders import read_results

SCORES = {
    "base": [0.80, 0.82, 0.81, 0.79, 0.803, 0.83],
    "new": [0.85, 0.86, 0.855, 0.84, 0.862, 0.87],
}


def judged(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments])


def by_seed(table: pd.DataFrame, metric: str) -> dict[str, dict[str, float]]:
    """Return the last score of each run of a table by variant and seed."""
    scores: dict[str, dict[str, float]] = {}
    for row in table.to_dict("records"):
        if "metric" in row and row["metric"] != metric:
            continue
        value = row["value"] if "metric" in row else row[metric]
        scores.setdefault(row["variant"], {})[str(row["seed"])] = float(value)
    return scores


def numbered(scores: dict[str, list[float]], first: int = 1) -> dict[str, dict[str, float]]:
    return {
        name: {str(seed): score for seed, score in enumerate(values, first)}
        for name, values in scores.items()
    }


# --- the logs of research loops


def pi_log(*runs: tuple[str, float, str], direction: str = "higher") -> str:
    """Return a log of pi-autoresearch with an earlier segment, hooks, and these runs."""
    config = {
        "type": "config",
        "name": "s",
        "metricName": "acc",
        "metricUnit": "",
        "bestDirection": direction,
    }
    lines: list[dict[str, Any]] = [{**config, "metricName": "old_ms"}]
    lines.append({"type": "hook", "stage": "before", "exit_code": 0})
    lines.append(pi_run(1, "an earlier idea", 120.5, "keep"))
    lines.append(config)
    for number, (description, score, status) in enumerate(runs, 2):
        lines.append(pi_run(number, description, score, status))
        lines.append({"type": "hook", "stage": "after", "exit_code": 0})
    return "".join(json.dumps(line) + "\n" for line in lines)


def pi_run(number: int, description: str, score: float, status: str) -> dict[str, Any]:
    return {
        "run": number,
        "commit": f"{number:07x}",
        "metric": score,
        "metrics": {"build_ms": 3.5},
        "status": status,
        "description": description,
        "timestamp": 1_760_000_000_000 + number,
        "segment": 1,
        "confidence": None,
    }


def pi_runs() -> list[tuple[str, float, str]]:
    runs = []
    for base, new in zip(SCORES["base"], SCORES["new"], strict=True):
        runs += [("base", base, "discard"), ("new", new, "keep")]
    return [*runs, ("too large", 0.0, "crash"), ("broken", 0.99, "checks_failed")]


def test_the_last_segment_of_a_log_of_pi_autoresearch_is_judged_by_description(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(pi_log(*pi_runs()))
    table = read_results(file)
    assert by_seed(table[table["status"] == "finished"], "acc") == numbered(SCORES)
    assert set(table["build_ms"]) == {"3.5"}
    result = judged(str(file), "--metric", "acc", "--baseline", "base")
    assert result.exit_code == 0, result.output
    assert "acc, higher is better" in result.output
    assert "row 13 (crashed), row 14 (crashed)" in result.output


def test_the_direction_is_that_of_the_log(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(pi_log(*pi_runs(), direction="lower"))
    result = judged(str(file), "--metric", "acc", "--baseline", "base")
    assert (result.exit_code, "acc, lower is better" in result.output) == (1, True)


def test_the_direction_of_a_log_is_that_of_its_metric_only(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(pi_log(*pi_runs(), direction="higher").replace("build_ms", "step_ms"))
    arguments = (str(file), "--baseline", "base", "--metric")
    assert "acc, higher is better" in judged(*arguments, "acc").output
    assert "step_ms, lower is better" in judged(*arguments, "step_ms").output
    file.write_text(pi_log(*pi_runs(), direction="higher"))
    refused = judged(*arguments, "build_ms")
    assert "whether more of 'build_ms' is better cannot be concluded" in str(refused.exception)


def test_a_quotation_mark_in_a_description_of_autoresearch_is_text(tmp_path: Path) -> None:
    lines = ["commit\tval_bpb\tmemory_gb\tstatus\tdescription"]
    for commit, score in (("a1b2c3d", 0.99), ("b2c3d4e", 0.98), ("a1b2c3d", 0.991)):
        lines.append(f'{commit}\t{score}\t44.0\tkeep\t"rate')
    (tmp_path / "results.tsv").write_text("\n".join(lines))
    scores = by_seed(read_results(tmp_path / "results.tsv"), "val_bpb")
    assert scores == {"a1b2c3d": {"1": 0.99, "2": 0.991}, "b2c3d4e": {"1": 0.98}}


def test_a_fork_of_autoresearch_with_another_score_has_its_columns_as_metrics(
    tmp_path: Path,
) -> None:
    lines = ["commit\tsharpe\tmax_dd\tstatus\tdescription"]
    for commit, score in (("a", 1.1), ("b", 1.3), ("a", 1.2), ("b", 1.5)):
        lines.append(f"{commit}\t{score}\t0.1\tKEEP \tan idea")
    (tmp_path / "results.tsv").write_text("\n".join(lines))
    table = read_results(tmp_path / "results.tsv")
    assert by_seed(table, "sharpe") == {"a": {"1": 1.1, "2": 1.2}, "b": {"1": 1.3, "2": 1.5}}
    assert set(table["status"]) == {"finished"}
    assert set(table["max_dd"]) == {"0.1"}


def test_a_table_of_commits_with_other_states_is_no_result_of_autoresearch(tmp_path: Path) -> None:
    row = "a,finished,text,7,0.5\n"
    (tmp_path / "x.csv").write_text("commit,status,description,run,acc\n" + row)
    assert [*read_results(tmp_path / "x.csv").columns] == [
        "commit",
        "status",
        "description",
        "run",
        "acc",
    ]


# --- nanochat


HEADER = (
    "depth,model_dim,num_params,num_scaling_params,num_iterations,tokens_trained,param_data_ratio,val_bpb,"
    "core_score,train_time_sec"
)


def series(shift: float) -> str:
    rows = [HEADER]
    for depth in range(12, 24, 2):
        bpb = 1.1 - 0.02 * depth + shift + 0.0001 * (depth % 5)
        core = "0.0" if depth == 12 else "0.21"
        rows.append(f"{depth},{64 * depth},1,1,100,52428800,8.00,{bpb:.6f},{core},900")
    return "\n".join(rows) + "\n"


def test_two_miniseries_of_nanochat_are_paired_by_depth(tmp_path: Path) -> None:
    for name, shift in (("jan11", 0.0), ("jan16", -0.004)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.csv").write_text(series(shift))
        (tmp_path / name / "d12_train.log").write_text("Validation bpb: 0.86\n")
    table = read_results(tmp_path)
    assert set(table["seed"]) == {"d12", "d14", "d16", "d18", "d20", "d22"}
    assert table["core_score"].isna().sum() == 2
    result = judged(
        str(tmp_path), "--metric", "val_bpb", "--baseline", "jan11", "--lower-is-better"
    )
    assert result.exit_code == 0, result.output
    assert "−0.004" in result.output


def test_a_depth_of_a_single_file_of_nanochat_is_a_variant_and_its_rows_are_seeds(
    tmp_path: Path,
) -> None:
    header = "flops_budget,depth,num_iterations,tokens_trained,val_bpb,core_score,train_time_sec"
    rows = [f"1e18,{depth},10,10,{0.9 - depth / 100},0.2,9" for depth in (10, 12, 10)]
    (tmp_path / "results.csv").write_text("\n".join([header, *rows]))
    scores = by_seed(read_results(tmp_path / "results.csv"), "val_bpb")
    assert scores == {"1e18 d10": {"1": 0.8, "2": 0.8}, "1e18 d12": {"1": 0.78}}


# --- modded-nanogpt


def log(last: int, steps: int, loss: float) -> str:
    lines = ["import torch  # the source of the script", "print(val_loss)", "=" * 20]
    for step in (0, last // 2, last):
        value = loss if step == last else 10.8 - step / 1000
        lines.append(
            f"step:{step}/{steps} val_loss:{value:.4f} train_time:{step * 60}ms step_avg:60.01ms"
        )
    return "\n".join(lines) + "\n"


def test_folders_and_files_of_repeated_baselines_of_track_1_are_variants(tmp_path: Path) -> None:
    for variant, loss in (("baseline-1480", 3.2800), ("xsa-1480", 3.2700)):
        (tmp_path / "a" / variant).mkdir(parents=True)
        (tmp_path / "b").mkdir(exist_ok=True)
        for seed in range(6):
            text = log(1480, 1480, loss + 0.0001 * seed**2)
            (
                tmp_path / "a" / variant / f"{seed}c2b7d30-0000-4000-8000-00000000000{seed}.txt"
            ).write_text(text)
            name, _, steps = variant.partition("-")
            (tmp_path / "b" / f"{name}{seed}-{steps}.txt").write_text(text)
    for folder in ("a", "b"):
        result = judged(
            str(tmp_path / folder),
            "--metric",
            "val_loss",
            "--unpaired",
            "--baseline",
            "baseline-1480",
        )
        assert result.exit_code == 0, result.output
        assert "baseline baseline-1480: 3.2" in result.output
    seeds = by_seed(read_results(tmp_path / "b"), "val_loss")["xsa-1480"]
    assert [*seeds] == ["0", "1", "2", "3", "4", "5"]


def test_runs_of_track_3_that_stop_at_one_earlier_step_are_finished(tmp_path: Path) -> None:
    (tmp_path / "stopped").mkdir()
    for seed in range(3):
        (tmp_path / "stopped" / f"{seed}.txt").write_text(log(2730, 2900, 3.278 + seed / 1000))
    (tmp_path / "stopped" / "cut.txt").write_text(log(1000, 2900, 3.9))
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "0.txt").write_text(log(2730, 2900, 3.277))
    table = read_results(tmp_path)
    finished = table[(table["state"] == "finished") & (table["step"] == "2730")]
    assert by_seed(finished, "val_loss") == {"stopped": {"0": 3.278, "1": 3.279, "2": 3.28}}
    states = {*table["state"]} - {"finished"}
    assert states == {
        "incomplete: cut.txt ends at step 1000 of 2900",
        "incomplete: 0.txt ends at step 2730 of 2900",
    }


# --- metrics.json, Weights & Biases, Trackio


def test_folders_of_metrics_json_are_variants_and_seeds(tmp_path: Path) -> None:
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            folder = tmp_path / "runs" / variant / str(seed)
            folder.mkdir(parents=True)
            record = {
                "test": {"accuracy": score, "loss": 1 - score},
                "curve": [1, 2],
                "converged": True,
            }
            (folder / "metrics.json").write_text(json.dumps(record))
    table = read_results(tmp_path)
    expected = {f"runs/{name}": values for name, values in numbered(SCORES, 0).items()}
    assert by_seed(table, "test/accuracy") == expected
    result = judged(str(tmp_path), "--metric", "test/accuracy", "--baseline", "runs/base")
    assert result.exit_code == 0, result.output


def test_variant_and_seed_in_a_metrics_json_replace_the_folders(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "metrics.json").write_text('{"variant": "base", "seed": 7, "acc": 0.5}')
    assert by_seed(read_results(tmp_path), "acc") == {"base": {"7": 0.5}}


def test_the_runs_table_of_wandb_needs_no_option_for_its_groups(tmp_path: Path) -> None:
    lines = ['"Name","State","Created","Runtime","Group","seed","val/accuracy"']
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            lines.append(
                f'"{variant}-{seed}","finished","2026-01-01T00:00:00.000Z","61","{variant}","{seed}","{score}"'
            )
    lines.append('"new-9","crashed","2026-01-01T00:00:00.000Z","5","new","9","0.1"')
    (tmp_path / "wandb.csv").write_text("\n".join(lines))
    result = judged(str(tmp_path / "wandb.csv"), "--metric", "val/accuracy", "--baseline", "base")
    assert result.exit_code == 0, result.output
    assert "row 13 (crashed)" in result.output


def test_the_csv_of_the_api_of_wandb_has_the_values_of_config_and_summary(tmp_path: Path) -> None:
    rows = []
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            summary = {
                "acc": score,
                "_step": 9,
                "_wandb": {"runtime": 3},
                "table": {"path": "t.json"},
            }
            config = {"variant": variant, "seed": seed, "lr": 0.1}
            rows.append({"summary": summary, "config": config, "name": f"{variant}-{seed}"})
    pd.DataFrame(rows).to_csv(tmp_path / "project.csv")
    table = read_results(tmp_path / "project.csv")
    assert by_seed(table, "acc") == numbered(SCORES, 0)
    assert {*table.columns} == {"name", "variant", "seed", "lr", "acc"}
    result = judged(str(tmp_path / "project.csv"), "--metric", "acc", "--baseline", "base")
    assert result.exit_code == 0, result.output


def test_histories_of_wandb_are_judged_by_their_last_step(tmp_path: Path) -> None:
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            (tmp_path / variant / str(seed)).mkdir(parents=True)
            history = [
                {"_step": 0, "_runtime": 1.5, "loss": 2.0, "acc": None},
                {"_step": 1, "_runtime": 2.5, "acc": score / 2, "loss": None},
                {"_step": 2, "_runtime": 3.5, "acc": score, "loss": 1.0},
            ]
            (tmp_path / variant / str(seed) / "history.json").write_text(json.dumps(history))
    result = judged(str(tmp_path), "--metric", "acc", "--baseline", "base")
    assert result.exit_code == 0, result.output
    assert "baseline base: 0.8088" in result.output


def trackio(
    path: Path, configs: dict[str, dict[str, Any]], points: list[tuple[str, int, str]]
) -> Path:
    """Write a database with the tables that Trackio creates."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, "
            "timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, "
            "log_id TEXT, space_id TEXT)"
        )
        database.execute(
            "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL, "
            "config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id))"
        )
        for run, config in configs.items():
            text = json.dumps(config).encode()
            database.execute(
                "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, '2026')",
                (run, run, text),
            )
        for run, step, text in points:
            database.execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '2026', ?, ?, ?)",
                (run, run, step, text.encode()),
            )
    return path


def test_the_database_of_trackio_is_judged_by_the_last_step_of_its_groups(tmp_path: Path) -> None:
    configs: dict[str, dict[str, Any]] = {}
    points = []
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            run = f"{variant}-{seed}"
            configs[run] = {"seed": seed, "_Group": variant, "_Username": None}
            points += [
                (run, 0, f'{{"acc": {score / 2}}}'),
                (run, 1, f'{{"acc": {score}, "note": null}}'),
            ]
    path = trackio(tmp_path / "project.db", configs, points)
    result = judged(str(path), "--baseline", "base")
    assert result.exit_code == 0, result.output
    assert "acc, higher is better; paired by seed; baseline base: 0.8088" in result.output


# --- MLflow


def mlflow_database(path: Path) -> Path:
    """Write the tables of an MLflow store that hold experiments, runs, parameters and metrics."""
    with closing(sqlite3.connect(path)) as database, database:
        for table in (
            "experiments (experiment_id INTEGER PRIMARY KEY, name TEXT, lifecycle_stage TEXT)",
            "runs (run_uuid TEXT, name TEXT, status TEXT, start_time BIGINT, lifecycle_stage TEXT, experiment_id INT)",
            "params (key TEXT, value TEXT, run_uuid TEXT)",
            "metrics (key TEXT, value DOUBLE, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN)",
            "latest_metrics (key TEXT, value DOUBLE, timestamp BIGINT, step BIGINT, is_nan BOOLEAN, run_uuid TEXT)",
        ):
            database.execute(f"CREATE TABLE {table}")
        database.execute("INSERT INTO experiments VALUES (3, 'sweep', 'active')")
        for run in mlflow_runs():
            info, data = run["info"], run["data"]
            key = info["run_id"]
            row = (
                key,
                info["run_name"],
                info["status"],
                info["start_time"],
                info["lifecycle_stage"],
            )
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, 3)", row)
            for pair in data["params"]:
                database.execute(
                    "INSERT INTO params VALUES (?, ?, ?)", (pair["key"], pair["value"], key)
                )
            for point in data["metrics"]:
                latest = (point["key"], point["value"], 5, point["step"], key)
                database.execute("INSERT INTO latest_metrics VALUES (?, ?, ?, ?, 0, ?)", latest)
            for point in mlflow_history(run):
                values = (point["key"], point["value"], point["timestamp"], key, point["step"])
                database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", values)
    return path


def mlflow_runs() -> list[dict[str, Any]]:
    """Return the runs of an experiment as the REST API gives them: two variants, a failed run and a deleted run."""
    runs = []
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            runs.append(mlflow_run(f"{variant}{seed}", variant, seed, score))
    failed = mlflow_run("failed", "new", 9, 0.1)
    failed["info"]["status"] = "FAILED"
    deleted = mlflow_run("deleted", "new", 10, 0.1)
    deleted["info"]["lifecycle_stage"] = "deleted"
    return [*runs, failed, deleted]


def mlflow_run(key: str, variant: str, seed: int, score: float) -> dict[str, Any]:
    return {
        "info": {
            "run_id": key,
            "run_name": key,
            "status": "FINISHED",
            "start_time": seed,
            "lifecycle_stage": "active",
        },
        "data": {
            "params": [{"key": "arch", "value": variant}, {"key": "seed", "value": str(seed)}],
            "metrics": [{"key": "acc", "value": score, "timestamp": 5, "step": 2}],
        },
    }


def mlflow_history(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return two steps, the last one logged twice: the later value counts."""
    (last,) = run["data"]["metrics"]
    halves = [(1, 1, last["value"] / 2), (2, 3, last["value"] / 3), (2, 5, last["value"])]
    return [
        {"key": "acc", "step": step, "timestamp": time, "value": value}
        for step, time, value in halves
    ]


class MlflowServer(BaseHTTPRequestHandler):
    """The three requests of the REST API, with pages of five runs and two points; it asks for a password."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        assert parts.path == "/api/2.0/mlflow/metrics/get-history"
        (run,) = [run for run in mlflow_runs() if run["info"]["run_id"] == query["run_id"][0]]
        points = mlflow_history(run)
        start = int(query.get("page_token", ["0"])[0])
        page: dict[str, Any] = {"metrics": points[start : start + 2]}
        if start + 2 < len(points):
            page["next_page_token"] = str(start + 2)
        self.answer(page)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/experiments/search"):
            self.answer({"experiments": [{"experiment_id": "3", "name": "sweep"}]})
            return
        assert self.path == "/api/2.0/mlflow/runs/search"
        assert body["experiment_ids"] == ["3"]
        runs = [run for run in mlflow_runs() if run["info"]["lifecycle_stage"] == "active"]
        start = int(body.get("page_token", 0))
        page: dict[str, Any] = {"runs": runs[start : start + 5]}
        if start + 5 < len(runs):
            page["next_page_token"] = str(start + 5)
        self.answer(page)

    def answer(self, content: dict[str, Any]) -> None:
        is_allowed = self.headers.get("Authorization") == "Basic YW5uOnNlY3JldA=="  # ann:secret
        if not is_allowed:
            content = {"error_code": "UNAUTHENTICATED", "message": "You are not\nauthenticated."}
        self.send_response(200 if is_allowed else 401)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler] = MlflowServer) -> Iterator[str]:
    """Serve requests on a free port; yield ``HOST:PORT``."""
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ARGUMENTS = ("--experiment", "sweep", "--variant", "arch", "--baseline", "base")


@pytest.mark.parametrize("metric", [(), ("--metric", "acc")])
def test_mlflow_stores_are_read_from_the_database_and_from_a_server(
    metric: tuple[str, ...], tmp_path: Path
) -> None:
    path = mlflow_database(tmp_path / "mlflow.db")
    of_file = judged(f"sqlite:///{path}", *ARGUMENTS, *metric)
    assert of_file.exit_code == 0, of_file.output
    assert "baseline base: 0.8088" in of_file.output
    assert "(FAILED)" in of_file.output
    with serving() as address:
        of_server = judged(f"http://ann:secret@{address}", *ARGUMENTS, *metric)
    assert of_server.exit_code == 0, of_server.output
    assert of_server.stdout == of_file.stdout


def test_a_server_that_refuses_is_one_line_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME", raising=False)
    with serving() as address:
        result = judged(f"http://ann:wrong@{address}", *ARGUMENTS)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
        assert judged(f"http://{address}", *ARGUMENTS).exit_code == 0
    assert isinstance(result.exception, HeadToHeadError)
    message = str(result.exception)
    assert message == (
        f"cannot read the MLflow server http://{address}: HTTP 401, You are not authenticated.; check the address, or "
        "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    )


def test_the_password_is_not_sent_to_the_target_of_a_redirection() -> None:
    received: list[str | None] = []

    class Other(MlflowServer):
        def do_GET(self) -> None:
            received.append(self.headers.get("Authorization"))
            self.answer({})

    with serving(Other) as other:

        class Redirecting(MlflowServer):
            def do_POST(self) -> None:
                self.send_response(302)
                self.send_header("Location", f"http://{other}/")
                self.end_headers()

        with serving(Redirecting) as address:
            result = judged(f"http://ann:secret@{address}", *ARGUMENTS)
    assert isinstance(result.exception, HeadToHeadError)
    assert received == [None]


@pytest.mark.parametrize(
    "content", ["[1]", '{"experiments": [{}]}', '{"experiments": 3}', "<html>"]
)
def test_another_server_is_one_line(content: str) -> None:
    class Other(MlflowServer):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content.encode())

    with serving(Other) as address:
        result = judged(f"http://{address}", *ARGUMENTS)
    assert isinstance(result.exception, HeadToHeadError)
    assert "check the address" in str(result.exception)
    assert "\n" not in str(result.exception)


# --- what is refused


Write = Callable[[Path], str]


def written(name: str, content: str) -> Write:
    def write(folder: Path) -> str:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return str(file if "/" not in name else folder)

    return write


def bad_trackio(folder: Path) -> str:
    return str(trackio(folder / "p.db", {"a": {"seed": 1}}, [("a", 0, "[1]")]))


def other_database(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "x.db")) as database, database:
        database.execute("CREATE TABLE runs (a TEXT)")
    return str(folder / "x.db")


PI_CONFIG = '{"type": "config", "metricName": "acc", "bestDirection": "higher"}\n'
PI_RUN = (
    '{"run": 1, "commit": "a", "metric": 1.5, "status": "keep", "description": "d", "type": null}\n'
)
REFUSED = {
    "a line of pi-autoresearch of another type": (
        written("log.jsonl", PI_CONFIG + PI_RUN + '{"type": "note", "text": "x"}\n'),
        "log.jsonl: row 3: neither a config, a hook nor a run; remove it",
    ),
    "another status of pi-autoresearch": (
        written("log.jsonl", PI_CONFIG + PI_RUN.replace("keep", "kept")),
        "log.jsonl: row 2: unknown status 'kept'; use one of keep, discard, crash, checks_failed",
    ),
    "another direction of pi-autoresearch": (
        written("log.jsonl", PI_CONFIG.replace("higher", "up") + PI_RUN),
        "log.jsonl: row 1: unknown bestDirection 'up'; use lower or higher",
    ),
    "a run of pi-autoresearch without a description": (
        written("log.jsonl", PI_CONFIG + PI_RUN.replace('"d"', '""')),
        "log.jsonl: row 2: the run has no description, which names its variant",
    ),
    "another status of autoresearch": (
        written(
            "results.tsv",
            "commit\tval_bpb\tstatus\tdescription\na\t1.0\tkeep\tx\nb\t1.0\tkeeep\ty\n",
        ),
        "results.tsv: row 2: unknown status 'keeep'; use one of keep, discard, crash",
    ),
    "a row of nanochat without a depth": (
        written("results.csv", f"{HEADER}\n12,1,1,1,1,1,1,0.9,0.2,9\n,1,1,1,1,1,1,0.9,0.2,9\n"),
        "results.csv: row 2: no depth; remove the row",
    ),
    "another results.csv in a folder": (
        written("a/results.csv", "depth,val_bpb\n12,0.9\n"),
        "a/results.csv: no results.csv of nanochat; it has no column 'core_score'",
    ),
    "a metrics.json without a seed": (
        written("base/metrics.json", '{"acc": 1}'),
        "no variant and seed; store it as VARIANT/SEED/metrics.json, or add the keys variant and seed",
    ),
    "a list as metrics.json": (
        written("base/1/metrics.json", "[1]"),
        'base/1/metrics.json: not an object of metrics such as {"accuracy": 0.81}',
    ),
    "a key twice in a metrics.json": (
        written("base/1/metrics.json", '{"a": 1, "a": 2}'),
        "base/1/metrics.json: not valid JSON (the key 'a' twice)",
    ),
    "a dictionary of the API of wandb that is none": (
        written("p.csv", "summary,config,name\n\"{'a': nan}\",{},x\n"),
        "p.csv: row 1: 'summary' is no dictionary of plain values; write config and summary as columns",
    ),
    "two values of a name in the API of wandb": (
        written("p.csv", "summary,config,name\n{'a': 1},{'a': 2},x\n"),
        "p.csv: row 1: 'a' is 2 in config and 1 in summary; remove one",
    ),
    "a row of a history without a step": (
        written("base/1/history.json", '[{"_step": 0, "a": 1}, {"a": 2}]'),
        "base/1/history.json: row 2: no object with '_step', as histories of W&B have",
    ),
    "a history without a variant": (
        written("base/history.json", '[{"_step": 0, "a": 1}]'),
        "no variant and seed; store it as VARIANT/SEED/history.json",
    ),
    "a row of trackio that is no object": (
        bad_trackio,
        "row 1 of the table 'metrics' is no JSON object",
    ),
    "a database of other tables": (
        other_database,
        "unknown tables; it is none of: PROJECT.db of Trackio",
    ),
    "a text as database": (written("x.db", "no database" * 99), "x.db: not an SQLite database"),
    "an empty folder": (
        written("a/b.md", ""),
        "it needs one of: submission.json of parameter-golf; ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_reader_does_not_understand_is_refused_in_one_line(
    name: str, tmp_path: Path
) -> None:
    write, message = REFUSED[name]
    result = judged(write(tmp_path), "--baseline", "base", "--metric", "acc")
    assert isinstance(result.exception, HeadToHeadError), result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "postgresql://h/d",
            "postgresql:// is no readable store; sqlite:///FILE of MLflow and http://HOST:PORT of an",
        ),
        ("file:///mlruns", "run mlflow server --backend-store-uri URI, and name its address"),
        ("sqlite:///none.db", "no file none.db, which sqlite:///none.db names"),
        ("http://127.0.0.1:9", "cannot read the MLflow server http://127.0.0.1:9: "),
    ],
)
def test_another_store_is_refused_with_the_way_that_works(
    uri: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = judged(uri, *ARGUMENTS)
    assert isinstance(result.exception, HeadToHeadError), result.output
    assert message in str(result.exception)


def test_a_store_without_the_experiment_names_a_similar_one(tmp_path: Path) -> None:
    path = mlflow_database(tmp_path / "mlflow.db")
    result = judged(f"sqlite:///{path}", "--experiment", "swep", "--baseline", "base")
    assert "no experiment 'swep'" in str(result.exception)
    assert "did you mean 'sweep'?" in str(result.exception)


def test_every_format_of_a_module_is_in_its_list() -> None:
    defined = []
    for module in pkgutil.iter_modules(readers.__path__):
        names = vars(importlib.import_module(f"headtohead_judge.readers.{module.name}"))
        formats = (TableFormat, FolderFormat, DatabaseFormat, StoreFormat)
        defined += [value for value in names.values() if isinstance(value, formats)]
    listed = [*TABLES, *FOLDERS, *DATABASES, *STORES]
    assert {id(reader) for reader in defined} == {id(reader) for reader in listed}

"""Loggers get every step of every run once, from a process of their own, whatever happens to it."""

import json
import math
import os
import pickle
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headtohead.plugin import Answer
from headtohead.plugins import registry
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.storage.run_directory import RunDirectory, checksums
from headtohead.tracking.shipping import Shipper, ship
from made.fake_study import edit, record_checksums
from made.study import wait_for

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary"]}
MINE = '''
"""A logger that appends to a text file, and fails as its environment demands."""
import os
from pathlib import Path
from headtohead.plugin import HeadToHeadError, Logger, hookimpl


class LinesLogger(Logger):
    """Appends a line per step to a text file."""

    def begin(self):
        if os.environ.get("LINES_DOWN"):
            raise HeadToHeadError("the tracker cannot be reached")
        self.file = self.run.root / f"{self.run.name}.txt"
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return int(lines[-1].split()[0]) if lines else -1

    def log(self, step, seconds, metrics):
        with self.file.open("a") as file:
            file.write(f"{step} {len(metrics)}\\n")
        if step == int(os.environ.get("LINES_FAIL_AT", -1)):
            raise ValueError("lost the connection")

    def end(self, state, results):
        Path(f"{self.file}.end").write_text(f"{state} {' '.join(results)}")


@hookimpl
def register_loggers():
    return {"lines": LinesLogger}
'''


def recorded(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the history of each metric in a run directory, read by this test."""
    found: dict[str, dict[int, float]] = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        for name, value in entry["values"].items():
            if value is not None and math.isfinite(value):
                found.setdefault(name, {})[entry["step"]] = value
    return {name: sorted(points.items()) for name, points in found.items()}


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the scalars of TensorBoard event files as TensorBoard reads them."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        name: [(event.step, event.value) for event in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


def assert_logged(folder: Path) -> None:
    """Check that TensorBoard has the recorded history of every run, and the results that differ from it once."""
    for run in sorted(path.parent for path in folder.glob("*/run.json")):
        history = recorded(run)
        results = RunDirectory(run).final_metrics
        found = events(folder.parent.parent / "tensorboard" / folder.name / run.name)
        last = max(points[-1][0] for points in history.values())
        for name, value in results.items():
            if value is not None and (name not in history or history[name][-1][1] != value):
                history.setdefault(name, []).append((last, value))
        rounded = {
            n: [(step, float(np.float32(value))) for step, value in p] for n, p in history.items()
        }
        assert found == rounded


def test_tensorboard_events_equal_the_recorded_metrics(make_experiment: MakeExperiment) -> None:
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    sent = ship(folder, logger="tensorboard")
    assert (sent.shipped, sent.failures) == (2, [])
    assert_logged(folder)
    again = ship(folder, logger="tensorboard")
    assert again.shipped == 0
    assert_logged(folder)


def test_a_run_is_followed_while_it_trains(make_experiment: MakeExperiment) -> None:
    """A recent step waits, because further metrics of it may follow; the state DONE completes it."""
    folder = make_experiment(axes=AXES)
    (run,) = (path.parent for path in folder.glob("*/run.json"))
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    status = json.loads((run / "status.json").read_text())
    live = status | {"state": "RUNNING", "ended": None, "files": {}, "pid": os.getpid()}
    shipper = Shipper(folder, "tensorboard")
    for count in (len(lines) // 3, 2 * len(lines) // 3):
        last = json.loads(lines[count])
        recent = [json.dumps(last | {"time": time.time()}) + "\n"]
        (run / "metrics.jsonl").write_text("".join(lines[:count] + recent))
        (run / "status.json").write_text(json.dumps(live))
        assert shipper.ship(is_last=False).failures == []
        newest = last["step"]
        found = events(folder.parent.parent / "tensorboard" / folder.name / run.name)
        expected = {n: [p for p in points if p[0] < newest] for n, points in recorded(run).items()}
        assert {name: len(points) for name, points in found.items()} == {
            n: len(p) for n, p in expected.items() if p
        }
    (run / "metrics.jsonl").write_text("".join(lines))
    (run / "status.json").write_text(json.dumps(status))
    shipper.ship(is_last=False)
    assert_logged(folder)


def test_a_logger_that_follows_an_early_stopped_run_receives_the_test_metrics_at_its_end(
    make_experiment: MakeExperiment, lines: Path
) -> None:
    """The last line of its metrics has the test metrics, at the step of the best checkpoint."""
    folder = make_experiment(axes=AXES)
    (run,) = (path.parent for path in folder.glob("*/run.json"))
    status = json.loads((run / "status.json").read_text())
    results = json.loads((run / "results.json").read_text())["metrics"]
    measured = {name: value for name, value in results.items() if name.startswith("test/")}
    shipper = Shipper(folder, "lines")
    live = status | {"state": "RUNNING", "ended": None, "files": {}, "pid": os.getpid()}
    (run / "status.json").write_text(json.dumps(live))
    shipper.ship(is_last=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": 150, "epoch": 4.0, "time": time.time(), "values": measured}) + "\n"
        )
    (run / "status.json").write_text(json.dumps(status | {"files": checksums(run)}))
    assert shipper.ship(is_last=False).failures == []
    (end,) = folder.parent.parent.glob("*.txt.end")
    state, *names = end.read_text().split()
    assert state == "DONE"
    assert set(names) >= {"valid/loss", *measured}


def wandb_records(file: Path) -> Iterator[bytes]:
    """Yield the records of an offline W&B run: a LevelDB log of blocks of 32 KiB after a header of 7 bytes."""
    content, offset, parts = file.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while offset + 7 <= len(content):
        if 2**15 - offset % 2**15 < 7:
            offset += 2**15 - offset % 2**15
            continue
        length, kind = struct.unpack_from("<HB", content, offset + 4)
        if offset + 7 + length > len(content):  # W&B is still writing it
            return
        parts += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield parts
            parts = b""


def wandb_history(root: Path) -> list[tuple[str, dict[str, list[tuple[int, float]]]]]:
    """Return the name and the history of each folder of an offline W&B run."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for file in root.glob("wandb/offline-run-*/*.wandb"):
        name, history = "", {}
        for content in wandb_records(file):
            record = Record.FromString(content)
            name = record.run.display_name or name
            for item in record.history.item:
                metric = item.key or item.nested_key[0]
                if not metric.startswith("_"):
                    points = history.setdefault(metric, [])
                    points.append((record.history.step.num, float(json.loads(item.value_json))))
        found.append((name, history))
    return sorted(found, key=itemgetter(0))


def assert_in_wandb(folder: Path) -> None:
    root, expected = folder.parent.parent, []
    for path in folder.glob("*/run.json"):
        record = json.loads(path.read_text())
        expected.append((f"{record['title']}, seed {record['seed']}", recorded(path.parent)))
    expected.sort(key=itemgetter(0))
    # The process of W&B writes its file after the run has ended.
    with suppress(AssertionError):
        wait_for(lambda: wandb_history(root) == expected, seconds=120)
    assert wandb_history(root) == expected


def assert_in_trackio(folder: Path) -> None:
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    file = (folder.parent.parent / "trackio" / f"{folder.name}.db").as_uri()
    with closing(sqlite3.connect(f"{file}?mode=ro", uri=True)) as database:
        for run in runs:
            query = "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id"
            history, state = dict[str, list[tuple[int, float]]](), ""
            for step, values in database.execute(query, (run.name,)):
                line = json.loads(values)
                state = line.pop("state", "")
                for name, value in line.items():
                    history.setdefault(name, []).append((step, value))
            expected, results = recorded(run), RunDirectory(run).final_metrics
            last = max(points[-1][0] for points in expected.values())
            for name, value in results.items():
                if value is not None and (name not in expected or expected[name][-1][1] != value):
                    expected.setdefault(name, []).append((last, value))
            assert (history, state) == (expected, "DONE")
        (names,) = database.execute("SELECT count(DISTINCT run_id) FROM metrics").fetchone()
    assert names == len(runs)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("TRACKIO_DIR", raising=False)


@pytest.mark.slow
def test_a_failed_wandb_run_begins_again_in_the_same_process(
    make_experiment: MakeExperiment, offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kind = make_experiment(axes=AXES), registry.registered("logger", "wandb")

    def fail(self: object, *arguments: object) -> None:
        raise OSError("lost the connection")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "end", fail)
        assert "lost the connection" in ship(folder, logger="wandb").failures[0]
    assert ship(folder, logger="wandb").failures == []
    assert_in_wandb(folder)
    (before,) = folder.parent.parent.glob("wandb/offline-run-*")
    (run,) = (path.parent for path in folder.glob("*/run.json"))
    edit(run / "run.json", created="2026-02-01T00:00:00Z")  # retrained
    record_checksums(run)
    assert ship(folder, logger="wandb").shipped == 1
    (after,) = folder.parent.parent.glob("wandb/offline-run-*")
    assert before.name.rpartition("-")[2] != after.name.rpartition("-")[2]


@pytest.fixture
def lines(tmp_path: Path, own_registry: None) -> Path:
    """Register the logger ``lines`` for this test; return its file."""
    file = tmp_path / "mine.py"
    file.write_text(textwrap.dedent(MINE))
    registry.use_files([file])
    return file


def steps_in(folder: Path) -> list[list[int]]:
    files = sorted(folder.parent.parent.glob("*.txt"))
    return [[int(line.split()[0]) for line in file.read_text().splitlines()] for file in files]


def recorded_steps(folder: Path) -> list[list[int]]:
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    return [
        sorted({step for points in recorded(run).values() for step, _ in points}) for run in runs
    ]


def test_a_failing_logger_gets_the_missing_steps_at_the_next_command(
    make_experiment: MakeExperiment, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    monkeypatch.setenv("LINES_DOWN", "1")
    down = ship(folder, logger="lines")
    assert down.shipped == 0
    assert [line.split(": ", 1)[1] for line in down.failures] == [
        "the tracker cannot be reached"
    ] * 2
    monkeypatch.delenv("LINES_DOWN")
    steps = recorded_steps(folder)
    monkeypatch.setenv("LINES_FAIL_AT", str(steps[0][len(steps[0]) // 2]))
    broken = ship(folder, logger="lines")
    assert all(
        "ValueError: lost the connection (" in line and "mine.py:" in line
        for line in broken.failures
    )
    monkeypatch.delenv("LINES_FAIL_AT")
    sent = ship(folder, logger="lines")
    assert (sent.shipped, sent.failures) == (2, [])
    assert steps_in(folder) == steps
    ends = [file.read_text().split()[0] for file in folder.parent.parent.glob("*.txt.end")]
    assert ends == ["DONE", "DONE"]


SLOW = """
import os, signal, sys, time
from pathlib import Path
from headtohead.tracking.shipping import Shipper
from headtohead.plugins.registry import registered

kind = registered("logger", sys.argv[3])
calls, original = 0, kind.log
def log(self, *arguments):
    global calls
    calls += 1
    original(self, *arguments)
    self.flush()
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
kind.log = log
Shipper(Path(sys.argv[1]), sys.argv[3]).ship()
"""


CHECKS = {"tensorboard": assert_logged, "trackio": assert_in_trackio, "wandb": assert_in_wandb}


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 20])
@pytest.mark.parametrize("logger", CHECKS)
def test_a_killed_shipper_repeats_no_step(
    logger: str, call: int, make_experiment: MakeExperiment, offline: None
) -> None:
    pytest.importorskip(logger)
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    # Without the service of W&B in this process.
    environment = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    command = [sys.executable, "-c", SLOW, str(folder), str(call), logger]
    killed = subprocess.run(command, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    command = [sys.executable, "-m", "headtohead.cli", "sync", folder.name, "--logger", logger]
    for _ in range(2):
        if logger == "trackio":  # it keeps the folder of the first study of a process
            subprocess.run(command, cwd=folder.parent.parent, env=environment, check=True)
        else:
            assert ship(folder, logger=logger).failures == []
        CHECKS[logger](folder)
        (folder / ".loggers" / f"{logger}.json").unlink()  # now every run begins again


@pytest.mark.slow
def test_the_shipper_process_logs_with_a_plugin_file_and_ends_with_its_parent(
    make_experiment: MakeExperiment, lines: Path
) -> None:
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    command = [
        sys.executable,
        "-m",
        "headtohead.tracking.shipper",
        str(folder),
        "lines",
    ]
    plugins = pickle.dumps(WorkerPlugins(((str(lines), lines.read_bytes()),)))
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(plugins)
        process.stdin.flush()
        wait_for(lambda: len(list(folder.parent.parent.glob("*.txt.end"))) == 2, seconds=120)
        process.stdin.close()
        assert process.wait(timeout=120) == 0
    assert steps_in(folder) == recorded_steps(folder)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1.0, 0.5], ids=["whole", "killed"])
def test_the_shipper_process_logs_the_answer_that_its_parent_sends_as_a_whole(
    make_experiment: MakeExperiment, tmp_path: Path, parts: float
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "loggers.md").read_text("utf-8")
    plugin = tmp_path / "answers.py"
    plugin.write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1], encoding="utf-8")
    folder = make_experiment(axes=AXES)
    answer = Answer(
        text="Rotary is better. " * 10_000,  # longer than a pipe holds
        limits="",
        rows=[],
        cautions=[],
        setup="",
        scores={},
        contrasts=[],
        verdicts={"rotary": "baseline"},
        report={},
    )
    sent = pickle.dumps(answer)
    plugins = pickle.dumps(WorkerPlugins(((str(plugin), plugin.read_bytes()),)))
    command = [sys.executable, "-m", "headtohead.tracking.shipper", str(folder), "answer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        process.communicate(plugins + sent[: round(parts * len(sent))], timeout=240)
    assert process.returncode == 0
    logged = tmp_path / "quickstart.txt"
    expected = f"{answer.text}\nrotary: baseline\n" if parts == 1 else None
    assert (logged.read_text() if logged.exists() else None) == expected


@pytest.mark.parametrize("writable", [True, False])
def test_sync_logs_to_loggers(
    make_experiment: MakeExperiment,
    h2h_here: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writable: bool,
) -> None:
    """What a logger has received is in the folder of the study, or in the cache if that folder is read-only."""
    folder = make_experiment(axes=AXES, seeds=(1, 2))
    monkeypatch.setattr(os, "access", lambda path, mode: writable)
    for shipped in (2, 0):
        done = h2h_here(
            tmp_path, "sync", "--logger", "tensorboard", H2H_CACHE=str(tmp_path / "cache")
        )
        expected = f"quickstart: {shipped} logged, {2 - shipped} unchanged (tensorboard)\n"
        assert (done.returncode, done.stdout) == (0, expected)
    assert_logged(folder)
    assert not (tmp_path / "mlflow.db").exists()
    assert (folder / ".loggers").exists() == writable


@pytest.mark.parametrize("command", [("run", "file.yaml"), ("sync",)])
def test_unknown_loggers_are_named(
    command: tuple[str, ...],
    make_experiment: MakeExperiment,
    h2h_here: Callable[..., Any],
    tmp_path: Path,
) -> None:
    make_experiment(axes=AXES)
    (tmp_path / "file.yaml").write_text("question: Does it log?\nbaseline: {}\nseeds: 1\n")
    done = h2h_here(tmp_path, *command, "--logger", "tensorbord")
    assert done.returncode == 2
    assert done.stderr == "h2h: unknown logger 'tensorbord'; did you mean 'tensorboard'?\n"
    if command[0] == "run":
        done = h2h_here(tmp_path, *command, "--logger", "mlflow", "--no-tracking")
        assert done.stderr.endswith(" exclude each other\n")


def test_the_logger_of_the_documentation_works(
    make_experiment: MakeExperiment, h2h_here: Callable[..., Any], tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "loggers.md").read_text(
        encoding="utf-8"
    )
    source = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 25
    (tmp_path / "json_lines.py").write_text(source, encoding="utf-8")
    folder = make_experiment(axes=AXES)
    done = h2h_here(tmp_path, "sync", "--logger", "json-lines", "--plugin", "json_lines.py")
    assert (done.returncode, done.stdout) == (
        0,
        "quickstart: 1 logged, 0 unchanged (json-lines)\n",
    ), done.stderr
    (file,) = (tmp_path / "lines" / "quickstart").glob("*.jsonl")
    *steps, end = map(json.loads, file.read_text().splitlines())
    assert [step["step"] for step in steps] == recorded_steps(folder)[0]
    assert end["state"] == "DONE"


def test_the_tracker_of_studies_of_the_documentation_gets_the_answer_of_the_report(
    make_experiment: MakeExperiment, h2h_here: Callable[..., Any], tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "loggers.md").read_text("utf-8")
    source = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "answers.py").write_text(source, encoding="utf-8")
    make_experiment(axes={"positional": ["rotary", "none"]}, seeds=(1, 2, 3))
    report = h2h_here(tmp_path, "report", "quickstart").stdout.splitlines()
    arguments = ("--logger", "answer", "--plugin", "answers.py")
    done = h2h_here(tmp_path, "sync", *arguments)
    assert done.returncode == 0, done.stderr
    text, *verdicts = (tmp_path / "quickstart.txt").read_text().splitlines()
    assert text == report[0]
    assert {line.partition(":")[0] for line in verdicts} == {"rotary", "none"}
    assert "rotary: baseline" in verdicts


def test_a_damaged_list_of_complete_runs_or_a_deleted_folder_sends_all_again(
    make_experiment: MakeExperiment,
) -> None:
    folder = make_experiment(axes=AXES)
    ship(folder, logger="tensorboard")
    (folder / ".loggers" / "tensorboard.json").write_text("{")
    assert ship(folder, logger="tensorboard").shipped == 1
    assert_logged(folder)
    shutil.rmtree(folder.parent.parent / "tensorboard")
    assert ship(folder, logger="tensorboard").shipped == 1

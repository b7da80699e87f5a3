"""Limits of the machine, read-only folders, a killed fork server and wrong clocks: a helpful line, and nothing lost."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
import yaml

from headtohead import files
from headtohead.execution import local
from headtohead.storage import exits, leases
from headtohead.storage.leases import Busy, Lease
from headtohead.storage.objects import worker_plugins
from made import case_table, kind_table, read_only

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]

MB = 2**20
RUN = ("run", "study.yaml", "--no-tracking", "--workers", "2")


@dataclass(frozen=True)
class Case:
    """A command with limits and read-only folders, and what it prints."""

    kind: str
    name: str
    arguments: tuple[str, ...]
    text: str
    code: int = 2
    limits: Mapping[str, int] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()
    finished: bool = True
    """Whether the runs are finished before."""


DONE = "report: reports/study/index.html"
SAME = "then run the same command; finished runs are kept"
CASES = (
    Case("limit", "400-mb", RUN, f"free memory or raise ulimit -v, {SAME}", limits={"AS": 400 * MB}),
    Case("folder", "read-only-status", ("status", "study.yaml"), "2 DONE", 0, read_only=("runs",)),
    Case("folder", "read-only-run", RUN, "cannot write to 'runs/study' (Read-only file system)", read_only=("runs",)),
    Case("limit", "64-open-files", RUN, DONE, 0, limits={"NOFILE": 64}, finished=False),
)  # fmt: skip

LIMIT = """
import os, resource, sys
for word in sys.argv[1].split():
    name, value = word.split("=")
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(value), int(value)))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, h2h_here: Command, cache: Path) -> Path:
    """The folder of a study with two finished runs."""
    folder = tmp_path_factory.mktemp("finished")
    content = {
        "question": "Does it survive?",
        "base": {
            "data": {"dataset": "toy-grammar", "size": 200},
            "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.1},
            "train": {"steps": 16, "batch_tokens": 128, "evaluate_every": 2},
            "evaluate": {"test_limit": 8, "max_length": 6},
        },
        "seeds": 2,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    done = h2h_here(folder, *RUN, "--no-report", H2H_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    """The folder of a study without runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copyfile(finished / "study.yaml", folder / "study.yaml")
    return folder


def start(study: Path, cache: Path, *arguments: str, limits: str = "", **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headtohead.cli", *arguments]
    if limits:
        command = [sys.executable, "-c", LIMIT, limits, *command]
    # Python 3.11 would replace compiled modules by cut ones, which no later process can import.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("H2H_", "MLFLOW_"))}
    variables = inherited | {"PYTHONDONTWRITEBYTECODE": "1", "H2H_CACHE": str(cache)} | environment
    return subprocess.Popen(
        command, cwd=study, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[str], seconds: float = 400.0) -> Completed:
    out, err = process.communicate(timeout=seconds)
    return Completed(process.args, process.returncode, out, err)


def results(study: Path) -> dict[str, tuple[bytes, dict[str, float]]]:
    """Return weights and scores by run."""
    found = {}
    for path in sorted(study.glob("runs/study/*/results.json")):
        metrics = files.read_json(path)["metrics"]
        scores = {name: value for name, value in metrics.items() if not name.startswith("system/")}
        found[path.parent.name] = ((path.parent / "checkpoint.safetensors").read_bytes(), scores)
    return found


@pytest.mark.slow
@kind_table("case", [(case.kind, case.name, case) for case in CASES])
def test_a_limit_is_a_helpful_line_and_loses_nothing(
    case: Case, study: Path, finished: Path, cache: Path, h2h_here: Command, without_figures: None
) -> None:
    if case.finished:
        shutil.copytree(finished / "runs", study / "runs")
    limits = " ".join(f"{name}={value}" for name, value in case.limits.items())
    with ExitStack() as mounts:
        for name in case.read_only:
            mounts.enter_context(read_only(study / name))
        if limits:
            done = ended(start(study, cache, *case.arguments, limits=limits))
        else:
            done = h2h_here(study, *case.arguments, H2H_CACHE=str(cache))
    assert "Traceback" not in done.stderr
    assert done.returncode == case.code, done.stderr
    if case.code:
        lines = done.stderr.splitlines()
        assert lines[-1].startswith("h2h: ")
        assert case.text in lines[-1]
        assert [line for line in lines[:-1] if not line.startswith(("training", "["))] == []
    else:
        assert case.text in done.stdout
    assert results(study) == results(finished)


# -- the fork server ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_starts_although_the_fork_server_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    with local.hidden_main():
        forkserver.ensure_running()
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    os.kill(server, signal.SIGSTOP)  # so that the start is in progress when it is killed
    threading.Timer(0.3, os.kill, (server, signal.SIGKILL)).start()
    alive, write_end = context.Pipe(duplex=False)
    process = local._start(context, (tmp_path / "no-stack", "cpu", worker_plugins(), dict(os.environ), alive))
    assert forkserver._forkserver._forkserver_pid != server  # type: ignore[attr-defined]
    process.join(60)
    assert process.exitcode == exits.BUSY
    alive.close()
    write_end.close()


# -- clocks ------------------------------------------------------------------------------------------

DAY = 86_400.0

HOLDER = """
import os, socket, sys, time
from pathlib import Path
from headtohead.storage import leases
run, shift = Path(sys.argv[1]), float(sys.argv[2])
socket.gethostname = lambda: "elsewhere"
clock, touch = time.time, os.utime
time.time = lambda: clock() + shift
leases.os.utime = lambda file: touch(file, (time.time(), time.time()))
leases.HEARTBEAT_SECONDS = 0.05
with leases.Lease(run) as lease:
    leases.os.utime(leases._alive_file(run, lease._holder))
    print("held", flush=True)
    sys.stdin.read()
"""


@case_table("shift", [DAY, -DAY, 0.0], default=1)
def test_a_lease_of_a_host_with_another_clock_is_kept_until_its_holder_is_dead(
    tmp_path: Path, shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "study" / "rotary-s1-01234567"
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.3)
    monkeypatch.setattr(leases, "STALE_SECONDS", 0.3)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run), str(shift)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for _ in range(2):
            with pytest.raises(Busy, match="on elsewhere"):
                Lease(run).acquire()
            time.sleep(0.1)
        holder.kill()
    end = time.monotonic() + 5
    while True:
        with suppress(Busy), Lease(run):
            break
        assert time.monotonic() < end


SLOW = """
import time
import headtohead as h2h

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    time.sleep(0.7)
"""


@pytest.mark.slow
def test_stacks_train_on_when_the_fork_server_is_killed(study: Path, finished: Path, cache: Path) -> None:
    (study / "slow.py").write_text(SLOW)
    parent = start(study, cache, *RUN, "--no-report", "--plugin", "slow.py")
    end = time.monotonic() + 60
    while len(list(study.glob("runs/study/*/metrics.jsonl"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    (server,) = (
        child for child in psutil.Process(parent.pid).children() if "multiprocessing.forkserver" in str(child.cmdline())
    )
    server.kill()
    done = ended(parent)
    assert (done.returncode, "KILLED" in done.stderr) == (0, False), done.stderr
    assert results(study) == results(finished)
    assert list(study.glob("runs/study/*/attempts/*.json")) == []  # no run was trained a second time


JUMPING = """
import os, socket, time
if host := os.environ.get("HOST_OF_TEST"):
    clock, steady, touch = time.time, time.monotonic, os.utime
    # A day forward for two seconds, then a day back for two seconds, and so on; hosts differ by an hour.
    skew = 3600.0 if host == "elsewhere" else 0.0
    time.time = lambda: clock() + skew + 86_400.0 * (int(steady() / 2) % 3 - 1)
    os.utime = lambda path, times=None, **rest: touch(path, times or (time.time(), time.time()), **rest)
    socket.gethostname = lambda: host
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clocks_that_jump_by_a_day_on_two_hosts_change_nothing(study: Path, finished: Path, cache: Path) -> None:
    (study / "sitecustomize.py").write_text(JUMPING)
    (study / "slow.py").write_text(SLOW)
    path = f"{study}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    parents = []
    for host in ("here", "elsewhere"):
        parents.append(
            start(study, cache, *RUN, "--no-report", "--plugin", "slow.py", PYTHONPATH=path, HOST_OF_TEST=host)
        )
        time.sleep(2)
    for parent in parents:
        done = ended(parent)
        assert done.returncode == 0, done.stderr
    assert results(study) == results(finished)
    for status in study.glob("runs/study/*/status.json"):
        assert files.read_json(status)["attempt"] == 1

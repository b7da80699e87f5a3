"""Limits of the machine, read-only folders, a killed fork server and wrong clocks: a helpful line, and nothing lost."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

from headtohead.execution import local
from headtohead.storage import exits, leases
from headtohead.storage.leases import Busy, Lease
from headtohead.storage.objects import worker_plugins
from made import case_table, kind_table, read_only, with_limits
from made.study import TINY, Completed, Study, on_evaluation, wait_for

RUN = ("run", "study.yaml", "--no-tracking", "--workers", "2")


DONE = "report: reports/study/index.html"
UNWRITABLE = "cannot write to 'runs/study' (Read-only file system)"
SAME = "then run the same command; finished runs are kept"
Case = tuple[str, str, tuple[str, ...], int, str, dict[str, int], str]
"""Kind, name, command, exit code, the text that it prints, limits of the process, and a read-only folder.

The runs are finished before, unless the process has limits and the command succeeds.
"""
CASES: tuple[Case, ...] = (
    ("limit", "400-mb", RUN, 2, f"free memory or raise ulimit -v, {SAME}", {"AS": 400 * 2**20}, ""),
    ("folder", "read-only-status", ("status", "study.yaml"), 0, "2 DONE", {}, "runs"),
    ("folder", "read-only-run", RUN, 0, DONE, {}, "runs"),
    (
        "folder",
        "read-only-more",
        (*RUN, "--seeds", "3"),
        2,
        f"{UNWRITABLE}; free disk space",
        {},
        "runs",
    ),
    ("limit", "64-open-files", RUN, 0, DONE, {"NOFILE": 64}, ""),
)

CONTENT: dict[str, Any] = TINY | {
    "base": TINY["base"]
    | {
        "train": {"steps": 16, "batch_tokens": 128, "evaluate_every": 2},
        "evaluate": {"test_limit": 8, "max_length": 6},
    }
}


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, h2h_here: Callable[..., Completed], cache: Path
) -> Study:
    """A study with two finished runs."""
    made = Study(tmp_path_factory.mktemp("finished"), cache, h2h_here, CONTENT, "study")
    made.write()
    made.run("--no-report", "--workers", "2")
    return made


@pytest.fixture
def study(finished: Study, tmp_path: Path) -> Study:
    """The study without runs."""
    made = replace(finished, folder=tmp_path / "project")
    made.folder.mkdir()
    made.write()
    return made


def start(study: Study, command: list[str], **environment: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        command, cwd=study.folder, env=study.environment | environment, text=True, **pipes
    )


def ended(process: subprocess.Popen[str], seconds: float = 400.0) -> Completed:
    out, err = process.communicate(timeout=seconds)
    return Completed(process.args, process.returncode, out, err)


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
@kind_table("case", [(*case[:2], case) for case in CASES])
def test_a_limit_is_a_helpful_line_and_loses_nothing(
    case: Case, study: Study, finished: Study
) -> None:
    _, _, arguments, code, text, limits, folder = case
    if code or not limits:
        shutil.copytree(finished.runs, study.runs)
    with read_only(study.folder / folder) if folder else nullcontext():
        if limits:
            done = ended(start(study, with_limits(study.command(*arguments), **limits)))
        else:
            done = study.h2h(*arguments, code=code)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    if code:
        lines = done.stderr.splitlines()
        assert lines[-1].startswith("h2h: ")
        assert text in lines[-1]
        assert [line for line in lines[:-1] if not line.startswith(("training", "["))] == []
    else:
        assert text in done.stdout
    assert study.results() == finished.results()


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
    process = local._start(
        context, (tmp_path / "no-stack", "cpu", worker_plugins(), dict(os.environ), alive)
    )
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
        [sys.executable, "-c", HOLDER, str(run), str(shift)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
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


SLOW = on_evaluation("import time\ntime.sleep(0.7)")


@pytest.mark.slow
def test_stacks_train_on_when_the_fork_server_is_killed(study: Study, finished: Study) -> None:
    study.write(plugin=SLOW)
    parent = start(study, study.command(*RUN, "--no-report"))
    wait_for(lambda: len(list(study.experiment.glob("*/metrics.jsonl"))) == 2)
    (server,) = (
        child
        for child in psutil.Process(parent.pid).children()
        if "multiprocessing.forkserver" in str(child.cmdline())
    )
    server.kill()
    done = ended(parent)
    assert (done.returncode, "KILLED" in done.stderr) == (0, False), done.stderr
    assert study.results() == finished.results()
    assert study.attempts() == []  # no run was trained a second time


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
def test_clocks_that_jump_by_a_day_on_two_hosts_change_nothing(
    study: Study, finished: Study
) -> None:
    (study.folder / "sitecustomize.py").write_text(JUMPING)
    study.write(plugin=SLOW)
    path = f"{study.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    parents = []
    for host in ("here", "elsewhere"):
        parents.append(
            start(study, study.command(*RUN, "--no-report"), PYTHONPATH=path, HOST_OF_TEST=host)
        )
        time.sleep(2)
    for parent in parents:
        done = ended(parent)
        assert done.returncode == 0, done.stderr
    assert study.results() == finished.results()
    assert study.attempts() == []

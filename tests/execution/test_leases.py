"""At most one live process writes a run directory, and the lease of a dead process is taken over."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest
from filelock import FileLock

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import leases, states
from headtohead.storage.leases import Busy, Lease, LeaseLost
from headtohead.storage.results import ResultsRecord
from headtohead.storage.run import RunRecord
from headtohead.storage.run_directory import RunWriter, leased
from made.study import wait_for

HOLDING = """
import sys
from pathlib import Path
from headtohead.storage.leases import Lease
with Lease(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


FORKING = """
import os, sys, time

def fork():
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # after its hooks of a fork, which close the inherited lock
        os.close(0)
        os.close(1)
        time.sleep(60)
        os._exit(0)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "study" / "rotary-s1-01234567"
    path.mkdir(parents=True)
    return path


@pytest.fixture(autouse=True)
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take over leases of other hosts soon."""
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.2)


@contextmanager
def held_elsewhere(*runs: Path, **fields: str) -> Iterator[Lease]:
    """Hold the leases of runs as a process of another host whose last heartbeat is too old."""
    with Lease(*runs) as lease:
        lease._holder |= fields or {"host": "another"}  # type: ignore[operator]
        before = time.time() - leases.STALE_SECONDS - 1
        os.utime(leases._alive_file(runs[0], lease._holder), (before, before))
        for run in runs:
            files.write_json(leases._lease_file(run), lease._holder)
        yield lease


def test_a_live_lease_is_respected_and_a_released_lease_is_free(run: Path) -> None:
    with Lease(run), pytest.raises(Busy, match=f"process {os.getpid()} on"):
        Lease(run).acquire()
    with Lease(run):
        pass
    assert [path.name for path in (run.parent / ".leases").iterdir()] == [f"{run.name}.lock"]


def test_a_suspended_process_keeps_its_lease_and_a_killed_process_loses_it(run: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        (alive,) = (
            path for path in (run.parent / ".leases").glob("*.lock") if path.stem != run.name
        )
        os.utime(alive, (0, 0))
        with pytest.raises(Busy, match=f"process {child.pid} on"):
            Lease(run).acquire()
        child.kill()
        child.wait()
    assert leases.holder_of(run) is None
    with Lease(run):
        assert files.read_json(leases._lease_file(run))["pid"] == os.getpid()


@pytest.mark.parametrize("field", ["host", "boot"])
def test_the_heartbeat_decides_on_a_process_of_another_host(run: Path, field: str) -> None:
    with held_elsewhere(run, **{field: "another"}) as lease:
        os.utime(leases._alive_file(run, lease._holder))
        with pytest.raises(Busy):
            Lease(run).acquire()
    with held_elsewhere(run, **{field: "another"}), Lease(run):
        pass


def test_a_heartbeat_of_a_clock_that_is_late_keeps_a_lease(run: Path) -> None:
    with held_elsewhere(run) as lease:
        alive = leases._alive_file(run, lease._holder)
        beat = Thread(target=lambda: (time.sleep(0.1), os.utime(alive, (1, 1))))
        beat.start()
        with pytest.raises(Busy, match="on another"):
            Lease(run).acquire()
        beat.join()


def test_many_leases_of_a_dead_host_are_released_in_the_time_of_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = time.sleep

    def record(seconds: float) -> None:
        slept.append(seconds)
        sleep(seconds)

    runs = [run.with_name(f"rotary-s{seed}-01234567") for seed in range(10)]
    with ExitStack() as held:
        for run_of_host in runs:  # each lease has its own heartbeat
            held.enter_context(held_elsewhere(run_of_host))
        monkeypatch.setattr(time, "sleep", record)
        leases.release_dead([*runs, run.with_name("without-lease")])
        assert slept.count(leases.WATCH_SECONDS) == 1
        assert list(run.parent.glob(".leases/*.json")) == []


def test_a_process_writes_heartbeats(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.02)
    with Lease(run) as lease:
        alive = leases._alive_file(run, lease._holder)
        os.utime(alive, (0, 0))
        wait_for(lambda: alive.stat().st_mtime > 0, seconds=60)


def test_leases_of_several_runs_are_held_all_or_none(run: Path) -> None:
    other_runs = [run.with_name(f"rotary-s{seed}-01234567") for seed in (2, 3)]
    with Lease(other_runs[1]):
        with pytest.raises(Busy, match="rotary-s3"):
            Lease(run, *other_runs).acquire()
        with Lease(run, other_runs[0]):
            pass


@pytest.mark.parametrize(
    "write",
    [
        lambda run: run.plan(RunRecord.model_construct()),
        lambda run: run.set_state(states.RUNNING),
        lambda run: run.begin_attempt(),
        lambda run: run.log_metrics(1, 0.1, 0.0, {"valid/loss": 1.0}),
        lambda run: run.finish(ResultsRecord.model_construct()),
        lambda run: run.write_json("heads.json", {}),
    ],
)
def test_a_lease_that_was_taken_over_permits_no_write(run: Path, write: object) -> None:
    assert callable(write)
    with held_elsewhere(run) as lost, Lease(run) as taken:
        with pytest.raises(LeaseLost):
            write(RunWriter(run, lost))
        assert list(run.iterdir()) == []
        lost.release()
        assert leases.holder_of(run) == taken._holder


def test_a_process_that_lost_one_of_its_leases_writes_no_other_run(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.02)
    other = run.with_name("rotary-s2-01234567")
    with Lease(run, other) as lease:
        files.write_json(leases._lease_file(other), lease._holder | {"token": "0" * 32})
        time.sleep(0.3)
        with pytest.raises(LeaseLost, match=other.name), lease.held(run):
            pass
    assert not leases._lease_file(run).exists()
    assert leases._lease_file(other).exists()


def test_no_process_takes_over_a_lease_during_a_write(run: Path) -> None:
    refused: list[Busy] = []

    def take_over() -> None:
        try:
            Lease(run).acquire()
        except Busy as error:
            refused.append(error)

    with held_elsewhere(run) as lease, RunWriter(run, lease).writing():
        other = Thread(target=take_over)
        other.start()
        other.join()
    assert len(refused) == 1


def _try(
    run: Path, queue: multiprocessing.Queue[bool], answered: multiprocessing.synchronize.Event
) -> None:
    lease = Lease(run)
    try:
        lease.acquire()
    except Busy:
        queue.put(False)
    else:
        queue.put(True)
        answered.wait(60)  # the lease of a winner that ends would be dead


def test_exactly_one_of_many_processes_takes_over_a_dead_lease(run: Path) -> None:
    with held_elsewhere(run):
        context = multiprocessing.get_context("fork")
        queue: multiprocessing.Queue[bool] = context.Queue()
        answered = context.Event()
        processes = [context.Process(target=_try, args=(run, queue, answered)) for _ in range(6)]
        for process in processes:
            process.start()
        won = [queue.get(timeout=60) for _ in processes]
        answered.set()
        for process in processes:
            process.join()
        assert sum(won) == 1


def test_a_lease_file_emptied_by_a_power_failure_is_free(run: Path) -> None:
    leases._lease_file(run).parent.mkdir(parents=True)
    leases._lease_file(run).write_text("")
    with leased(run):
        pass


def test_a_timeout_while_stacks_are_created_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LAYOUT_SECONDS", 0.0)
    with (
        FileLock(tmp_path / ".layout.lock"),
        pytest.raises(HeadToHeadError),
        leases.layout_lock(tmp_path),
    ):
        pass


def test_only_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    for name in (".resume.safetensors.ab.tmp", ".stack.json.cd.tmp", "resume.safetensors"):
        (tmp_path / name).touch()

    def write(temporary: Path) -> None:
        files.remove_leftovers(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {temporary.name, "resume.safetensors"}

    files.replace(tmp_path / "stack.json", write)
    assert {path.name for path in tmp_path.iterdir()} == {"stack.json", "resume.safetensors"}


def test_a_forked_child_does_not_keep_the_lease_of_its_dead_parent(run: Path) -> None:
    code = HOLDING.replace("import sys", FORKING).replace('print("held", flush=True)', "fork()")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            os.kill(child, 0)
            with Lease(run):
                pass
        finally:
            os.kill(child, signal.SIGKILL)

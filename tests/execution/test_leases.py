"""At most one live process writes a run directory, and the lease of a dead process is taken over."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from headtohead.storage.stack import StackFolder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "study" / "rotary-s1-01234567"


@pytest.fixture(autouse=True)
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take over leases of other hosts soon."""
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.4)


def lease_file(run: Path) -> Path:
    return run.parent / ".leases" / f"{run.name}.json"


@contextmanager
def held_by(run: Path, **fields: object) -> Iterator[None]:
    """Write a lease of this process with some fields replaced."""
    with Lease(run):
        mine = files.read_json(lease_file(run))
        files.write_json(lease_file(run), mine | {"token": "other"} | fields)
        yield


def expire_heartbeat(run: Path) -> None:
    """Set the heartbeat of a lease to a time at which its process counts as dead."""
    before = time.time() - leases.STALE_SECONDS - 1
    os.utime(lease_file(run), (before, before))


def test_a_live_lease_is_respected(run: Path) -> None:
    with Lease(run), pytest.raises(Busy, match=f"process {os.getpid()} on"):
        Lease(run).acquire()


def test_a_released_lease_is_free(run: Path) -> None:
    with Lease(run):
        pass
    with Lease(run):
        pass


def test_the_lease_of_a_dead_process_is_taken_over(run: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with held_by(run, pid=child.pid), Lease(run):
        assert files.read_json(lease_file(run))["pid"] == os.getpid()


def test_a_zombie_process_is_dead(run: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    with held_by(run, pid=child.pid, started=leases.process_start(child.pid)):
        assert leases.holder_of(run) is not None
        child.kill()
        while child_status(child.pid) != "Z":
            time.sleep(0.01)
        assert leases.holder_of(run) is None
    child.wait()


def child_status(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_reused_process_id_is_not_the_holder(run: Path) -> None:
    started = leases.process_start(os.getpid())
    assert started is not None
    with held_by(run, started=started - 1000), Lease(run):
        pass


@pytest.mark.parametrize("field", ["host", "boot", "namespace"])
def test_the_heartbeat_decides_if_a_process_cannot_be_looked_up(run: Path, field: str) -> None:
    with held_by(run, **{field: "another"}):
        with pytest.raises(Busy):
            Lease(run).acquire()
        expire_heartbeat(run)
        with Lease(run):
            pass


def test_many_leases_of_a_dead_host_are_released_in_the_time_of_one(run: Path) -> None:
    runs = [run.with_name(f"rotary-s{seed}-01234567") for seed in range(10)]
    with Lease(*runs):
        for held in runs:
            mine = files.read_json(lease_file(held))
            files.write_json(lease_file(held), mine | {"token": "other", "host": "another"})
            expire_heartbeat(held)
        began = time.monotonic()
        leases.release_dead([*runs, run.with_name("without-lease")])
        assert time.monotonic() - began < 5 * leases.WATCH_SECONDS
        assert list(run.parent.glob(".leases/*.json")) == []


def test_the_heartbeat_keeps_a_lease_of_another_host_alive(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.02)
    with Lease(run):
        expire_heartbeat(run)
        end = time.monotonic() + 10
        while time.time() - lease_file(run).stat().st_mtime > 30:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_lost_lease_is_not_released_for_its_new_holder(run: Path) -> None:
    with Lease(run):
        content = files.read_json(lease_file(run)) | {"token": "taken over"}
        files.write_json(lease_file(run), content)
    assert files.read_json(lease_file(run))["token"] == "taken over"


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
    run.mkdir(parents=True)
    with Lease(run) as lease, held_by_another_host(run):
        before = sorted(path.name for path in run.iterdir())
        with pytest.raises(LeaseLost):
            write(RunWriter(run, lease))
        assert sorted(path.name for path in run.iterdir()) == before
        with pytest.raises(LeaseLost):
            lease.check()


@contextmanager
def held_by_another_host(run: Path) -> Iterator[None]:
    """Hold a lease that another host has taken over after its heartbeat expired."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases.socket, "gethostname", lambda: "elsewhere")
        expire_heartbeat(run)
        with Lease(run):
            yield


def test_no_process_takes_over_a_lease_during_a_write(run: Path) -> None:
    run.mkdir(parents=True)
    refused: list[Busy] = []

    def take_over() -> None:
        try:
            Lease(run).acquire()
        except Busy as error:
            refused.append(error)

    with leased(run) as writer, writer.writing():
        content = files.read_json(lease_file(run)) | {"host": "elsewhere"}
        files.write_json(lease_file(run), content)
        expire_heartbeat(run)
        other = Thread(target=take_over)
        other.start()
        other.join()
    assert [str(error) for error in refused] == [f"'{run.name}' is being written by another process"]


def _try(run: Path, queue: multiprocessing.Queue[bool], answered: multiprocessing.synchronize.Event) -> None:
    lease = Lease(run)
    try:
        lease.acquire()
    except Busy:
        queue.put(False)
    else:
        queue.put(True)
        answered.wait(60)  # a winner that ends would leave a dead lease, which another may take


def test_exactly_one_of_many_processes_takes_over_a_dead_lease(run: Path) -> None:
    with held_by(run, host="another"):
        expire_heartbeat(run)
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
    lease_file(run).parent.mkdir(parents=True)
    lease_file(run).write_text("")
    with Lease(run):
        pass


def test_a_timeout_while_stacks_are_created_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LAYOUT_SECONDS", 0.0)
    message = "another process has been laying out the stacks of"
    with (
        FileLock(tmp_path / ".layout.lock"),
        pytest.raises(HeadToHeadError, match=message),
        leases.layout_lock(tmp_path),
    ):
        pass


def _write_progress(stack: Path, failures: multiprocessing.Queue[str]) -> None:
    try:
        for step in range(300):
            StackFolder(stack).write_progress(step=step, steps=300, seconds=1.0)
    except OSError as error:
        failures.put(repr(error))


@pytest.mark.slow
def test_two_processes_can_write_the_progress_of_the_same_stack(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    failures: multiprocessing.Queue[str] = context.Queue()
    processes = [context.Process(target=_write_progress, args=(tmp_path, failures)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert failures.empty(), failures.get()
    assert StackFolder(tmp_path).read_progress() == {"step": 299, "steps": 300, "seconds": 1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_only_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    for name in (".resume.safetensors.ab.tmp", ".stack.json.cd.tmp", "resume.safetensors"):
        (tmp_path / name).touch()

    def write(temporary: Path) -> None:
        files.remove_leftovers(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {temporary.name, "resume.safetensors"}

    files.replace(tmp_path / "stack.json", write)
    assert {path.name for path in tmp_path.iterdir()} == {"stack.json", "resume.safetensors"}

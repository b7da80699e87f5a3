"""Concurrent commands on one experiment, suspended workers, and hosts that cannot look up each other's processes."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock, Timeout

from headtohead import files
from headtohead.storage import leases
from headtohead.storage.stack import stack_folders
from headtohead.tracking import shipping
from made.study import TINY, Study, wait_for

TRAIN = TINY["base"]["train"] | {"steps": 320, "evaluate_every": 80, "checkpoint_seconds": 0.05}
STUDY: dict[str, Any] = TINY | {
    "base": TINY["base"] | {"train": TRAIN},
    "design": [{"one_at_a_time": {"model.d_ff": [20]}}],
    "seeds": 3,
}
RUNS = 6

PLUGIN = """
import os, re, sys
from pathlib import Path

RUN = re.compile(r"^(.*)/runs/[^/]+/([^/]+-s[0-9]+-[0-9a-f]{8})/([^.].*)$")

def audit(event, arguments):
    if event == "os.rename":
        path = arguments[1]
    elif event == "open" and set(str(arguments[1])) & set("wax+"):
        path = arguments[0]
    else:
        return
    found = RUN.search(os.path.abspath(str(path)))
    if found:
        log = os.open(f"{found[1]}/writes.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, f"{found[2]} {os.getpid()} {found[3]}\\n".encode())
        os.close(log)

sys.addaudithook(audit)

import headtohead

@headtohead.plugin.hookimpl
def register_positionals():
    return {}

from headtohead.execution import scheduler
from headtohead.storage import leases

scheduler.BUSY_SECONDS = 0.1
leases.WATCH_SECONDS = 1.0
"""
"""A plugin file that records each write into a run directory before the process makes it."""

HOST = """
import os, socket, time

if host := os.environ.get("HOST_OF_TEST"):
    socket.gethostname = lambda: host

if "HOST_OF_TEST" in os.environ:
    from headtohead.execution import scheduler

    def slow(*arguments, arrange=scheduler.arrange):
        time.sleep(1.0)
        return arrange(*arguments)

    scheduler.arrange = slow
"""
"""``sitecustomize.py``: another host name for a command and its child processes.

It delays the assignment of runs to stacks, so that another command waits to make it too.
"""


@dataclass(frozen=True)
class Race(Study):
    """One experiment and the commands that train it."""

    content: Mapping[str, Any] = field(default_factory=lambda: STUDY)
    commands: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def made(cls, folder: Path, cache: Path) -> Iterator["Race"]:
        folder.mkdir()
        race = cls(folder, cache, subprocess.run)
        race.write(plugin=PLUGIN)
        (folder / "sitecustomize.py").write_text(HOST)
        try:
            yield race
        finally:
            race.end()

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path])}

    def train(self, host: str, workers: int) -> None:
        """Start a command on a host; on this one if its name is empty."""
        words = (
            "run",
            str(self.file),
            "--no-tracking",
            "--no-report",
            "--workers",
            str(workers),
            "--threads",
            "1",
        )
        with (self.folder / f"log-{len(self.commands)}").open("w") as log:
            environment = self.environment | {"HOST_OF_TEST": host}
            command = self.command(*words)
            started = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, text=True
            )
        self.commands.append(started)

    def are_over(self) -> bool:
        return all(command.poll() is not None for command in self.commands)

    def finish(self) -> None:
        wait_for(self.are_over)
        for number, command in enumerate(self.commands):
            assert command.returncode == 0, (self.folder / f"log-{number}").read_text()
        assert [*self.states().values()] == ["DONE"] * RUNS

    def expire_heartbeats(self, runs: list[str]) -> None:
        """Set heartbeats back by more than a minute."""
        before = time.time() - leases.STALE_SECONDS - 1
        for run in (self.experiment / name for name in runs):
            if holder := leases._read(run):
                with suppress(FileNotFoundError):
                    os.utime(leases._alive_file(run, holder), (before, before))

    def is_written(self, run: str) -> bool:
        """Return whether a process is writing the run now."""
        try:
            with FileLock(self.experiment / ".leases" / f"{run}.lock").acquire(timeout=0):
                return False
        except Timeout:
            return True

    def writers(self) -> dict[str, list[int]]:
        """Return the workers that wrote each run: one for each takeover."""
        lines = [line.split() for line in (self.folder / "writes.log").read_text().splitlines()]
        parents = {str(command.pid) for command in self.commands}
        found: dict[str, list[int]] = {}
        for run in {run for run, _, _ in lines}:
            pids = [pid for name, pid, _ in lines if name == run and pid not in parents]
            found[run] = [int(pid) for pid, _ in groupby(pids)]
        return found

    def members(self) -> dict[str, list[str]]:
        """Return the run directories of each stack."""
        return {
            folder.path.name: [member.directory for member in folder.record.members]
            for folder in stack_folders(self.experiment)
        }

    def histories(self) -> dict[str, list[tuple[int, str, float]]]:
        """Return every logged value of training, including repeated values."""
        return {
            path.name: [
                (line["step"], name, value)
                for line in map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
                for name, value in line["values"].items()
                if not name.startswith("system/")
            ]
            for path in self.directories()
        }

    def bytes(self) -> dict[str, tuple[bytes, int]]:
        """Return all files of the runs and the stacks except logs and locks."""
        return {
            str(path.relative_to(self.experiment)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in self.experiment.rglob("*")
            if path.is_file() and path.suffix not in {".log", ".lock"}
        }


def check_single_writer(race: Race) -> None:
    """Check that each run was in a single stack and had a single writer at a time."""
    assert len(race.directories()) == RUNS
    held = Counter(run for members in race.members().values() for run in members)
    assert set(held.values()) == {1}, held
    writers = race.writers()
    for path in race.directories():
        pids = writers[path.name]
        assert len(pids) == len(set(pids)), f"{path.name} was written by turns: {pids}"
        assert len(pids) == files.read_json(path / "status.json")["attempt"]


@pytest.mark.slow
def test_a_suspended_worker_whose_lease_was_taken_over_stops_without_writing(
    tmp_path: Path, cache: Path
) -> None:
    with Race.made(tmp_path / "race", cache) as race:
        race.train("elsewhere", 1)
        worker, runs = suspend_in_training(race)
        race.expire_heartbeats(runs)
        race.train("", 1)
        wait_for(lambda: race.commands[1].poll() is not None)
        assert {race.states()[run] for run in runs} == {"DONE"}
        before = race.bytes()
        os.kill(worker, signal.SIGCONT)
        wait_for(lambda: not psutil.pid_exists(worker))
        after = race.bytes()
        assert {name: content for name, content in after.items() if name in before} == before
        race.finish()
    check_single_writer(race)
    assert [run for run in runs if len(race.writers()[run]) == 2] == runs
    log = "".join(path.read_text() for path in race.experiment.glob(".stacks/*/worker.log"))
    assert "another process took over the lease of a run" in log


def suspend_in_training(race: Race) -> tuple[int, list[str]]:
    """Suspend a worker that has logged metrics and is not writing; return the worker and its runs."""
    while True:
        wait_for(lambda: any(race.experiment.glob("*/metrics.jsonl")))
        holders = race.holders()
        logged = {path.parent.name for path in race.experiment.glob("*/metrics.jsonl")}
        for run in logged & holders.keys():
            runs = sorted(name for name, pid in holders.items() if pid == holders[run])
            os.kill(holders[run], signal.SIGSTOP)
            if not any(map(race.is_written, runs)):
                return holders[run], runs
            os.kill(holders[run], signal.SIGCONT)
        time.sleep(0.001)


TRIALS = int(os.environ.get("H2H_TEST_RACES", "1"))
"""Races of the long test: a race takes about 25 s. ``H2H_TEST_RACES=50`` runs the long form."""
MAX_SUSPENSIONS = 4
"""Maximum number of suspensions in a race."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("default")  # MLflow's own imports
def test_races_with_random_suspensions(tmp_path: Path, cache: Path, store_template: Path) -> None:
    figures: Counter[str] = Counter()
    references = [undisturbed(tmp_path, cache, workers) for workers in (1, 2)]
    for trial in range(TRIALS):
        chance = random.Random(trial)
        with Race.made(tmp_path / f"trial{trial}", cache) as race:
            shutil.copyfile(store_template, race.folder / "mlflow.db")
            hosts = chance.choice([("elsewhere", ""), ("", "elsewhere"), ("", "")])
            workers = chance.sample((1, 2), 2)
            for host, number in zip(hosts, workers, strict=True):
                race.train(host, number)
            disturb(race, chance, figures, takeovers="elsewhere" in hosts)
            race.finish()
        check_single_writer(race)
        compare(race, references, figures)
        ship(race)
        check_store(race.folder / "mlflow.db")
        figures["races"] += 1
        print(trial, workers, dict(figures), flush=True)
    assert figures["races"] == TRIALS
    assert figures["suspensions"] > TRIALS
    if TRIALS >= 10:  # With few races, every takeover can come too late.
        assert figures["takeovers"] > 0


def undisturbed(folder: Path, cache: Path, workers: int) -> Race:
    with Race.made(folder / f"undisturbed{workers}", cache) as race:
        race.train("", workers)
        race.finish()
    check_single_writer(race)
    return race


def disturb(race: Race, chance: random.Random, figures: Counter[str], *, takeovers: bool) -> None:
    """Suspend random workers until all commands have ended, and run the shipper once after the first suspension.

    With ``takeovers``, the heartbeats of every second suspended worker are set back, so that the command on the
    other host takes over its leases.
    """
    ship_at, before = time.monotonic() + chance.uniform(0.2, 2.0), figures["suspensions"]
    while not race.are_over():
        time.sleep(chance.uniform(0.01, 0.15))
        if time.monotonic() > ship_at and figures["suspensions"] > before:
            ship_at = float("inf")
            ship(race)
        holders = race.holders()
        if not holders or figures["suspensions"] >= MAX_SUSPENSIONS * (figures["races"] + 1):
            continue
        pid = chance.choice(sorted(set(holders.values())))
        runs = [run for run, holder in holders.items() if holder == pid]
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            continue
        try:
            figures["suspensions"] += 1
            if takeovers and chance.random() < 0.5:
                race.expire_heartbeats(runs)
                figures["silenced"] += 1
                wait_until_taken(race, runs, pid, 20.0)
            else:
                time.sleep(chance.uniform(0.02, 0.5))
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def wait_until_taken(race: Race, runs: list[str], pid: int, seconds: float) -> None:
    """Wait until another process holds a run, or until a command has ended and takes over nothing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(command.poll() is None for command in race.commands):
        holders = race.holders()
        if any(holders.get(run, pid) != pid for run in runs):
            return
        time.sleep(0.02)


def compare(race: Race, references: list[Race], figures: Counter[str]) -> None:
    """Compare each run with an undisturbed run that trained in a stack of the same members."""
    ours, logged, writers = race.results(), race.histories(), race.writers()
    for stack, members in race.members().items():
        (reference, *_) = [candidate for candidate in references if stack in candidate.members()]
        theirs, expected = reference.results(), reference.histories()
        for name in members:
            assert ours[name] == theirs[name], name
            last, last_expected = (
                {value[:2]: value[2] for value in own[name]} for own in (logged, expected)
            )
            assert last == last_expected, name
            figures["runs"] += 1
            figures["takeovers"] += len(writers[name]) - 1
            if len(writers[name]) == 1:
                assert logged[name] == expected[name], f"{name} repeats steps"


def ship(race: Race) -> None:
    report = shipping.ship(race.experiment, f"sqlite:///{race.folder / 'mlflow.db'}")
    assert report.complete, report.failures


def check_store(database: Path) -> None:
    """Check that each run is in the store once, finished, and without repeated steps."""
    with closing(sqlite3.connect(database)) as connection:
        runs = connection.execute(
            "select count(*), count(distinct runs.experiment_id || tags.value), min(runs.status), "
            "max(runs.status) from runs join tags using (run_uuid) where tags.key = 'h2h.run_hash'"
        ).fetchone()
        repeated = connection.execute(
            "select run_uuid, key, step, count(*) from metrics where key not like 'study/%' "  # these change over time
            "group by run_uuid, key, step having count(*) > 1"
        ).fetchall()
    assert runs == (RUNS, RUNS, "FINISHED", "FINISHED")
    assert repeated == [], json.dumps(repeated[:5])

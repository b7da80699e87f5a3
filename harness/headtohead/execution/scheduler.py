"""Execution of a plan: lays out run directories and stacks, starts workers and handles their exits.

Training happens only in workers. The parent may be killed at any moment; the same command then continues from the
run directories.
"""

from __future__ import annotations

import logging
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from headtohead import files
from headtohead.errors import HeadToHeadError, UndefinedError, machine_limit
from headtohead.execution.progress import Watcher
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import Plan
from headtohead.planning.record import experiment_record, run_record
from headtohead.planning.stacking import arrange
from headtohead.plugins.launcher import Job, Launcher
from headtohead.plugins.registry import current
from headtohead.storage import exits, states
from headtohead.storage.experiment import EXPERIMENT, ExperimentDirectory, ProbeSentence
from headtohead.storage.leases import Busy, Lease, LeaseLost, layout_lock, observe, release_dead
from headtohead.storage.objects import worker_plugins
from headtohead.storage.paths import inside
from headtohead.storage.run import RUN
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased
from headtohead.storage.run_files import delete_run_files
from headtohead.storage.stack import (
    RECORD,
    STACKS,
    StackFolder,
    StackMember,
    StackRecord,
    stack_folders,
)

MAX_DEATHS = 3
"""After this many deaths of its process, a stack is not started again until the command is repeated."""

ENDING_SECONDS = 10.0
"""How long a killed process may hold its leases: it exists until its memory is freed."""

EQUAL_FAILURES = 3
"""Number of stacks with the same failure after which no stack is started any more."""

MAX_NUM_MICROBATCHES = 64
BUSY_SECONDS = 1.0


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """Launcher, device, number of concurrent stacks, CPU threads per stack, and time limit per stack."""

    launcher: Launcher
    device: str = "cpu"
    workers: int | None = None
    threads: int | None = None
    timeout_seconds: float | None = None

    def share(self, stacks: int) -> tuple[int, int]:
        """Return the number of concurrent processes and the number of threads per process."""
        return self.launcher.share(self.device, stacks, self.workers, self.threads)

    def stacks(
        self, plan: Plan, runs: Sequence[PlannedRun], existing: int = 0
    ) -> list[list[PlannedRun]]:
        """Return the runs of each stack in which this machine would train runs, besides a number of existing stacks."""
        workers, _ = self.share(existing + len(runs))
        return arrange(plan, runs, workers, self.device, self.launcher.memory(self.device, workers))


@dataclass
class Outcome:
    """The number of runs by final state, and the reason if the execution stopped early."""

    states: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every run has a result."""
        return set(self.states) <= states.RESULTS


def pending(plan: Plan) -> list[PlannedRun]:
    """Return the runs without a final state, of the variants to which the plan is limited.

    They include runs that another process trains; a worker waits for their leases.
    """
    return [run for run in plan.selected if not run.reused_from and run.state not in states.FINAL]


def execute(plan: Plan, machine: Machine, cache: Path, command: str) -> Outcome:
    """Train every pending run of a plan.

    Without a pending run and with the plan that the experiment's folder has, nothing is written, so that a finished
    study can be on a read-only disk.

    Raises:
        HeadToHeadError: If the runs folder cannot be written or the disk is full. Finished runs are kept, and the same
            command resumes.
    """
    experiment = plan.directory
    if not pending(plan) and _is_recorded(plan):
        return Outcome(final_states(plan))
    with _disk_errors(experiment):
        experiment.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(experiment)
        files.remove_leftovers(cache)
        release_dead([inside(experiment, run.directory) for run in pending(plan)])
        with layout_lock(experiment):
            files.write_json(experiment / EXPERIMENT, experiment_record(plan, command).to_json())
            try:
                folders = _lay_out_study(plan, machine, cache)
            except (
                LeaseLost
            ):  # released while this process was suspended; the lock still keeps others out
                folders = _lay_out_study(plan, machine, cache)
    outcome = Outcome()
    if folders:
        hooks = current().manager.hook
        hooks.on_experiment_start(experiment=experiment)
        with _disk_errors(experiment):
            outcome.stopped = run_stacks(folders, machine, experiment)
        hooks.on_experiment_end(experiment=experiment)
    outcome.states = final_states(plan)
    return outcome


def _is_recorded(plan: Plan) -> bool:
    """Return whether the record of the experiment is that of the plan, apart from who wrote it and when."""
    try:
        recorded = ExperimentDirectory.read(plan.directory).record.to_json()
    except HeadToHeadError:  # missing or damaged, so it is written
        return False
    origin = {"created", "command", "versions"}
    planned = experiment_record(plan).to_json()
    return all(recorded[name] == value for name, value in planned.items() if name not in origin)


def run_stacks(folders: Sequence[StackFolder], machine: Machine, experiment: Path) -> str | None:
    """Train stacks; return the reason if the execution stopped early, else None."""
    with closing(Watcher(folders, has_bar=not machine.launcher.in_process)) as watcher:
        return _Execution(machine, watcher, experiment).run(
            {run for folder in folders for run in folder.record.hashes}
        )


def final_states(plan: Plan, runs: Sequence[PlannedRun] | None = None) -> Counter[str]:
    """Count the current states of a plan's runs, or of some of them."""
    return Counter(
        observe(run.path(plan.directory)).state for run in (plan.runs if runs is None else runs)
    )


def stacks_of(experiment: Path, run_hashes: Set[str]) -> list[StackFolder]:
    """Return the stacks of an experiment that contain any of these runs."""
    return [
        folder
        for folder in stack_folders(experiment)
        if not run_hashes.isdisjoint(folder.record.hashes)
    ]


def _lay_out_study(plan: Plan, machine: Machine, cache: Path) -> list[StackFolder]:
    """Create missing run directories and stacks; return the stacks to train.

    Existing stacks keep their members. If another process has laid them out, the leases decide which process trains
    them. The caller holds the layout lock.
    """
    paths = {run.run_hash: inside(plan.directory, run.directory) for run in pending(plan)}
    # Another process may have finished runs since planning.
    runs = [
        run for run in pending(plan) if RunDirectory(paths[run.run_hash]).state not in states.FINAL
    ]
    remaining = {run.run_hash: run.directory for run in runs}
    folders = stacks_of(plan.directory, remaining.keys())
    for folder in folders:
        # The name of an archived run's new directory has all axes of the current design.
        members = tuple(
            member.model_copy(
                update={"directory": remaining.pop(member.run_hash, member.directory)}
            )
            for member in folder.record.members
        )
        folder.change(
            cache=str(cache), timeout_seconds=machine.timeout_seconds, deaths=0, members=members
        )
    unassigned = [run for run in runs if run.run_hash in remaining]
    missing = [run for run in runs if not (paths[run.run_hash] / RUN).exists()]
    new_stacks = machine.stacks(plan, unassigned, len(folders))
    _, threads = machine.share(len(folders) + len(new_stacks))
    with Lease(*{paths[run.run_hash] for run in [*missing, *unassigned]}) as lease:
        for run in missing:
            writer = RunWriter(inside(plan.directory, run.directory, tree=True), lease)
            writer.plan(run_record(plan, run))
        for folder in folders:
            folder.record_execution(lease, {paths[run.run_hash] for run in missing})
        return folders + [
            new_stack(plan, members, machine, cache, threads, lease) for members in new_stacks
        ]


def new_stack(
    plan: Plan,
    runs: Sequence[PlannedRun],
    machine: Machine,
    cache: Path,
    threads: int,
    lease: Lease,
) -> StackFolder:
    """Lay out a stack of planned runs with existing directories."""
    config = plan.variant_of(runs[0]).config
    record = StackRecord(
        members=tuple(StackMember.model_validate(run, from_attributes=True) for run in runs),
        probes=tuple(
            record for probe in plan.probes if (record := _with_target(plan, runs[0], probe))
        ),
        threads=threads,
        device=machine.device,
        num_microbatches=config.train.num_microbatches,
        cache=str(cache),
        timeout_seconds=machine.timeout_seconds,
    )
    return lay_out(plan.directory, record, lease)


def lay_out(experiment: Path, record: StackRecord, lease: Lease) -> StackFolder:
    """Write a stack's folder, and the execution settings into the records of its runs."""
    folder = StackFolder(experiment / STACKS / record.id)
    folder.write(record)
    # A finished run keeps the settings that it was trained with.
    folder.record_execution(
        lease, {run.path for run in folder.runs() if run.state not in states.RESULTS}
    )
    return folder


def _with_target(plan: Plan, run: PlannedRun, probe: ProbeSentence) -> ProbeSentence | None:
    """Return a probe with its target: that of the file, the reference in the corpus, or the run's translation.

    Returns None if a sentence is empty or has a refused word, or if there is no reference and the run cannot translate.
    """
    data, config = plan.data_of(run), plan.variant_of(run).config
    try:
        source = data.tokenise(probe.source, "source")
        sides = [source] if "encoder" in config.roles else []
        sides += [] if probe.target is None else [data.tokenise(probe.target, "target")]
        if not all(sides):
            return None
    except UndefinedError:
        return None
    if probe.target is not None:
        return probe.model_copy(update={"target_from": "file"})
    for split in (data.splits[name] for name in ("test", "valid", "train")):
        for ids, target in zip(split.source, split.target_text, strict=True):
            if len(ids) == len(source) and list(ids) == source:
                return probe.model_copy(update={"target": target, "target_from": "reference"})
    can_translate = config.evaluate.decode in ("greedy", "non-autoregressive")
    return probe.model_copy(update={"target_from": "translation"}) if can_translate else None


class _Execution:
    """Trains the runs of stacks until each has a final state or an error ends the execution."""

    def __init__(self, machine: Machine, watcher: Watcher, experiment: Path) -> None:
        self.machine, self.watcher, self.experiment = machine, watcher, experiment
        self.failures: defaultdict[str, set[str]] = defaultdict(set)
        """Names of failed stacks by error signature."""
        self.left: set[str] = set()
        """Hashes of the runs for the next round; this or another process may split their stacks meanwhile."""
        self.waiting: set[Path] = set()
        """Stacks that another process trains and that the watcher has been notified of."""

    def run(self, run_hashes: set[str]) -> str | None:
        """Run rounds of stacks until no run is left; return the reason if the execution stops early."""
        self.left = run_hashes
        while self.left:
            with layout_lock(self.experiment):
                records = {
                    folder.path: folder.record for folder in stacks_of(self.experiment, self.left)
                }
            self.left = set()
            workers, _ = self.machine.share(len(records))
            plugins = worker_plugins()
            jobs = [
                Job(path, self.machine.device, record.threads, plugins)
                for path, record in records.items()
            ]
            log.info("training %d stacks, %d at a time", len(jobs), workers)
            ends = self.machine.launcher.launch(jobs, workers)
            try:
                for end in ends:
                    if end is None:
                        self.watcher.tick()
                        continue
                    log.info("stack %s ended with exit code %d", end.job.stack.name, end.code)
                    with layout_lock(self.experiment):
                        stopped = self._ended(
                            StackFolder(end.job.stack), records[end.job.stack], end.code
                        )
                    if stopped:
                        return stopped
            finally:
                getattr(ends, "close", lambda: None)()  # a plugin's iterator may have none
            if self.left:
                time.sleep(BUSY_SECONDS)
        return None

    def _ended(self, folder: StackFolder, record: StackRecord, code: int) -> str | None:
        """Handle the exit of a worker; return the reason to stop if too many stacks failed in the same way."""
        if not folder.exists:  # another process has split or archived it
            self.left |= record.hashes
            return None
        self._handle(folder, folder.record, code)
        if not folder.exists:
            return None
        if code != exits.BUSY or folder.path not in self.waiting:
            self.watcher.ended(folder, code)
        if code == exits.BUSY:
            self.waiting.add(folder.path)
            return None
        self.waiting.discard(folder.path)
        statuses = [run.status for run in folder.runs()]
        if all(status.state == states.FAILED for status in statuses):
            for signature in {str(status.signature) for status in statuses}:
                self.failures[signature].add(folder.path.name)
                if len(self.failures[signature]) >= EQUAL_FAILURES:
                    return (
                        f"stopped after {EQUAL_FAILURES} stacks failed in the same way: {signature}"
                    )
        return None

    def _handle(self, folder: StackFolder, record: StackRecord, code: int) -> None:
        last = files.last_line(folder.path / "worker.log")
        if code == exits.BUSY:
            self.left |= record.hashes
        elif code == exits.DISK:
            # On a full disk, the reason in the log may be missing or incomplete.
            found = re.search(r"(?:\[Errno \d+\]|I/O error:) ([^:(]+)", last)
            raise unwritable(self.experiment, found[1].strip() if found else "the disk is full")
        elif code == exits.INPUT:
            raise HeadToHeadError(last)
        elif code == exits.OOM:
            self._out_of_memory(folder, record)
        elif code == exits.TIMEOUT:
            self._set_states(folder, states.TIMEOUT, f"over {record.timeout_seconds:g} s")
        elif code == exits.FAILED or (code == exits.DEVICE and record.deaths + 1 >= MAX_DEATHS):
            if len(record.variants) == 1:
                self._set_states(folder, states.FAILED, last)
            else:  # separate stacks show which variant fails
                variants = groupby(
                    sorted(record.members, key=lambda run: run.variant), lambda run: run.variant
                )
                self._split(folder, record, [record.part(members) for _, members in variants])
        elif code != exits.OK:
            # After an error of the GPU, a new process has a new context.
            died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            folder.change(deaths=record.deaths + 1)
            self._set_states(folder, states.KILLED, f"the process died ({died})", ENDING_SECONDS)
            if record.deaths + 1 < MAX_DEATHS:
                self.left |= record.hashes

    def _out_of_memory(self, folder: StackFolder, record: StackRecord) -> None:
        """Halve the stack, or double the number of microbatches of a single run.

        The batch size does not change, so the results stay the same.
        """
        left, num_microbatches = len(folder.open_runs()), record.num_microbatches * 2
        if left == 1 and num_microbatches > MAX_NUM_MICROBATCHES:
            self._set_states(
                folder, states.OOM, "out of memory with the maximum number of microbatches"
            )
        elif left:
            self._set_states(folder, states.KILLED, f"out of memory in a stack of {left}")
            if left == 1:
                folder.change(num_microbatches=num_microbatches)
                self.left |= record.hashes
            else:
                self.watcher.ended(folder, exits.OOM)
                middle = len(record.members) // 2
                self._split(
                    folder,
                    record,
                    map(record.part, (record.members[:middle], record.members[middle:])),
                )

    def _split(
        self, folder: StackFolder, record: StackRecord, parts: Iterable[StackRecord]
    ) -> None:
        """Replace a stack by parts that are trained from the first step, unless another process trains it.

        A folder is a stack if it contains ``stack.json``. Its file is removed first, so that no run is ever in two
        stacks.
        """
        self.left |= record.hashes
        with suppress(Busy), Lease(*(run.path for run in folder.runs())) as lease:
            folder.resume_points.clear()  # a kill between the next writes must not resume without the histories
            for run in folder.open_runs():
                RunWriter(run.path, lease).archive_metrics()
            (folder.path / RECORD).unlink()
            for part in parts:
                lay_out(folder.experiment, part, lease)
            delete_run_files(folder.path)

    def _set_states(
        self, folder: StackFolder, state: str, reason: str, wait_seconds: float = 0.0
    ) -> None:
        """Write the state of runs without a final state; wait for the leases of a dying process.

        Runs that another process trains are left for the next round.
        """
        deadline = time.monotonic() + wait_seconds
        for run in folder.runs():
            while True:
                try:
                    with leased(run.path) as writer:
                        if writer.state not in states.FINAL:
                            writer.set_state(state, reason=reason, signature=reason[:200])
                    break
                except Busy:
                    if time.monotonic() >= deadline:
                        self.left |= folder.record.hashes
                        break
                    time.sleep(0.05)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if machine_limit(error):
            raise
        if isinstance(error, FileNotFoundError) and folder.exists():
            raise HeadToHeadError(
                f"'{Path(error.filename).parent}' was moved or deleted during the run; the same command trains it "
                "again; finished runs are kept"
            ) from error
        raise unwritable(folder, error.strerror or str(error)) from error


def unwritable(folder: Path, reason: str) -> HeadToHeadError:
    """Return the error for a runs folder on a full or unwritable disk."""
    return HeadToHeadError(
        f"cannot write to '{folder}' ({reason}); free disk space, correct the permissions or choose another "
        "folder with --runs, then run the same command; finished runs are kept"
    )

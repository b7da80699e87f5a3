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
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headtohead import files
from headtohead.errors import HeadToHeadError, UndefinedError, machine_limit
from headtohead.execution.progress import Watcher
from headtohead.planning.estimate import time_line
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import Plan
from headtohead.planning.record import experiment_record, run_record
from headtohead.planning.stacking import arrange
from headtohead.plugins.launcher import Job, Launcher
from headtohead.plugins.registry import current
from headtohead.storage import exits, states
from headtohead.storage.experiment import ExperimentDirectory, ProbeSentence
from headtohead.storage.leases import Busy, Lease, LeaseLost, layout_lock, observe, release_dead
from headtohead.storage.objects import worker_plugins
from headtohead.storage.paths import checked_path
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
    """Train every pending run of a plan; return the number of runs by state, and why training stopped early, if it did.

    The record of the experiment, run directories and stacks are written first. Without a pending run and with the plan
    that the experiment's folder has, nothing is written, so that a finished study can be on a read-only disk. Failed
    runs do not raise: they are states of the outcome.

    Args:
        plan: The plan.
        machine: The launcher, the device and their limits.
        cache: Folder of prepared data.
        command: The shell command that runs the experiment, for its record.

    Raises:
        HeadToHeadError: If the runs folder cannot be written or the disk is full; if files of the study are deleted
            meanwhile; if a record is damaged or a run directory has a symbolic link; if another process writes a run
            or lays out stacks for too long; if a worker refuses its input, or none can be started. Finished runs are
            kept, and the same command resumes.
        LeaseLost: If another process takes over a run while this process lays out or splits its stack.
    """
    experiment = plan.directory
    if not pending(plan) and _is_recorded(plan):
        return Outcome(final_states(plan))
    with _disk_errors(experiment):
        experiment.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(experiment)
        files.remove_leftovers(cache)
        release_dead([checked_path(experiment, run.directory) for run in pending(plan)])
        with layout_lock(experiment):
            ExperimentDirectory.write(experiment, experiment_record(plan, command))
            try:
                folders = _lay_out_study(plan, machine, cache)
            except LeaseLost:
                # Released while this process was suspended; the lock still keeps others out.
                folders = _lay_out_study(plan, machine, cache)
    outcome = Outcome()
    if folders:
        hooks = current().manager.hook
        hooks.on_experiment_start(experiment=experiment)
        with _disk_errors(experiment):
            outcome.stopped = run_stacks(folders, machine, experiment, time_line(plan))
        hooks.on_experiment_end(experiment=experiment)
    outcome.states = final_states(plan)
    return outcome


def _is_recorded(plan: Plan) -> bool:
    """Return whether the record of the experiment is that of the plan, apart from who wrote it, with what, and when.

    False if it cannot be read. Reading it declares its metrics in this process.

    Raises:
        HeadToHeadError: If a data file of the plan cannot be read.
    """
    record = ExperimentDirectory.find_record(plan.directory)
    if record is None:
        return False
    recorded = record.to_json()
    not_compared = {"created", "command", "versions"}
    planned = experiment_record(plan).to_json()
    compared = planned.keys() - not_compared
    return all(recorded[name] == planned[name] for name in compared)


def run_stacks(
    folders: Sequence[StackFolder], machine: Machine, experiment: Path, expected: str = ""
) -> str | None:
    """Train stacks; return the reason if the execution stopped early, else None; raises as `_Execution.run`.

    ``expected`` is the estimated time, which is printed before the first stack starts.
    """
    run_hashes = {run_hash for folder in folders for run_hash in folder.record.hashes}
    allow_bar = not machine.launcher.in_process
    with closing(Watcher(folders, allow_bar=allow_bar, expected=expected)) as watcher:
        machine.launcher.watch = watcher.tick
        return _Execution(machine, watcher, experiment).run(run_hashes)


def final_states(plan: Plan, runs: Sequence[PlannedRun] | None = None) -> Counter[str]:
    """Count the current states of a plan's runs, or of some of them."""
    counted_runs = plan.runs if runs is None else runs
    return Counter(observe(run.path(plan.directory)).state for run in counted_runs)


def stacks_of(experiment: Path, run_hashes: Set[str]) -> list[StackFolder]:
    """Return the stacks of an experiment that contain any of these runs."""
    folders = []
    for folder in stack_folders(experiment):
        if not run_hashes.isdisjoint(folder.record.hashes):
            folders.append(folder)
    return folders


def _lay_out_study(plan: Plan, machine: Machine, cache: Path) -> list[StackFolder]:
    """Create missing run directories and stacks; return all stacks with pending runs, existing ones first.

    Existing stacks are renewed first (`_renew_stacks`), and stay so if an error is raised afterwards. The leases decide
    which process trains a stack. The caller holds the layout lock.

    Raises:
        Busy: If another process writes a run that has no record or no stack yet.
        LeaseLost: If another process takes over such a run meanwhile.
        HeadToHeadError: If a record is damaged, or a symbolic link is in a run directory.
    """
    paths: dict[str, Path] = {}  # by run hash
    runs = []
    for run in pending(plan):
        path = checked_path(plan.directory, run.directory)
        if RunDirectory(path).state not in states.FINAL:  # no other process has finished it
            paths[run.run_hash] = path
            runs.append(run)
    existing = stacks_of(plan.directory, paths.keys())
    _renew_stacks(existing, machine, cache, paths)
    assigned = {run_hash for folder in existing for run_hash in folder.record.hashes}
    without_stack = [run for run in runs if run.run_hash not in assigned]
    without_record = [run for run in runs if not (paths[run.run_hash] / RUN).exists()]
    new_stacks = machine.stacks(plan, without_stack, len(existing))
    _, threads = machine.share(len(existing) + len(new_stacks))
    with Lease(*{paths[run.run_hash] for run in [*without_record, *without_stack]}) as lease:
        for run in without_record:
            writer = RunWriter(checked_path(plan.directory, run.directory, tree=True), lease)
            writer.plan(run_record(plan, run))
        for folder in existing:
            # A run whose directory was deleted gets the settings of its stack again.
            folder.record_execution(lease, {paths[run.run_hash] for run in without_record})
        created = [
            new_stack(plan, stack_runs, machine, cache, threads, lease) for stack_runs in new_stacks
        ]
    return [*existing, *created]


def _renew_stacks(
    folders: Sequence[StackFolder], machine: Machine, cache: Path, paths: Mapping[str, Path]
) -> None:
    """Change the records of existing stacks to the settings of this call; their runs and threads stay.

    A stack gets the cache, the time limit, the present directories of its pending runs, and a count of 0 deaths. No
    lease is required: another process that trains the stack has read its record at its start.

    Args:
        folders: The stacks.
        machine: Its time limit is that of the stacks.
        cache: Folder of prepared data.
        paths: The directories of the pending runs, by run hash.

    Raises:
        HeadToHeadError: If the record of a stack is damaged.
    """
    for folder in folders:
        folder.change(
            cache=str(cache),
            timeout_seconds=machine.timeout_seconds,
            deaths=0,
            members=_relocated(folder.record.members, paths),
        )


def _relocated(
    members: Sequence[StackMember], paths: Mapping[str, Path]
) -> tuple[StackMember, ...]:
    """Return members of a stack, those of pending runs with their present directories.

    The new directory of an archived run is named by all axes of the current design, so its name may differ from the
    recorded name. Members without a path in ``paths`` keep the recorded name.

    Args:
        members: The members.
        paths: The directories of the pending runs, by run hash.
    """
    relocated = []
    for member in members:
        path = paths.get(member.run_hash)
        directory = member.directory if path is None else path.name
        relocated.append(member.model_copy(update={"directory": directory}))
    return tuple(relocated)


def new_stack(
    plan: Plan,
    runs: Sequence[PlannedRun],
    machine: Machine,
    cache: Path,
    threads: int,
    lease: Lease,
) -> StackFolder:
    """Write a stack of planned runs with existing directories, and return its folder.

    Args:
        plan: The plan of the runs.
        runs: The members, at least one; the first one determines the microbatches and the targets of probes.
        machine: Its device and time limit.
        cache: Folder of prepared data.
        threads: CPU threads of the stack.
        lease: The lease of the runs.

    Raises:
        LeaseLost: If another process has taken over the lease.
        HeadToHeadError: If the record of a run is missing or damaged.
    """
    config = plan.variant_of(runs[0]).config
    probes = []
    for probe in plan.probes:
        with_target = _with_target(plan, runs[0], probe)
        if with_target is not None:
            probes.append(with_target)
    record = StackRecord(
        members=tuple(StackMember.model_validate(run, from_attributes=True) for run in runs),
        probes=tuple(probes),
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
    """Return a copy of a probe with its target, and where this is from: "file", "reference" or "translation".

    A probe with a target keeps it ("file"). Otherwise it gets the first reference of an equal source in the parts test,
    valid, train ("reference"). Without a reference, the target stays None, and the worker translates the source
    ("translation"), if ``evaluate.decode`` is greedy or non-autoregressive. If it is not, the result is None. It is
    also None if a sentence has a refused word, or no token, not even a boundary token; a source without a token is
    permitted in a decoder-only model.
    """
    data = plan.data_of(run)
    config = plan.variant_of(run).config
    try:
        source = data.tokenise(probe.source, "source")
        if "encoder" in config.roles and not source:
            return None
        if probe.target is not None and not data.tokenise(probe.target, "target"):
            return None
    except UndefinedError:
        return None
    if probe.target is not None:
        return probe.model_copy(update={"target_from": "file"})
    for name in ("test", "valid", "train"):
        split = data.splits[name]
        for ids, target in zip(split.source, split.target_text, strict=True):
            if len(ids) == len(source) and list(ids) == source:
                return probe.model_copy(update={"target": target, "target_from": "reference"})
    if config.evaluate.decode in ("greedy", "non-autoregressive"):
        return probe.model_copy(update={"target_from": "translation"})
    return None


class _Execution:
    """Trains the runs of stacks until each has a final state or an error ends the execution."""

    def __init__(self, machine: Machine, watcher: Watcher, experiment: Path) -> None:
        self.machine = machine
        self.watcher = watcher
        self.experiment = experiment
        self.failures: defaultdict[str, set[str]] = defaultdict(set)
        """Names of failed stacks by error signature."""
        self.left: set[str] = set()
        """Hashes of the runs for the next round; this or another process may split their stacks meanwhile."""
        self.waiting: set[Path] = set()
        """Stacks that another process trains and that the watcher has been notified of."""

    def run(self, run_hashes: set[str]) -> str | None:
        """Train rounds of stacks until no run is left; return the reason if the execution stops early, else None.

        The stacks are looked up anew for each round, because they may have been split.

        Raises:
            HeadToHeadError: If the disk is full, a worker refuses its input or cannot be started, another process lays
                out stacks for too long, or a record is damaged.
            LeaseLost: If another process takes over a run while its stack is split.
        """
        self.left = run_hashes
        while self.left:
            with layout_lock(self.experiment):
                folders = stacks_of(self.experiment, self.left)
                records = {folder.path: folder.record for folder in folders}
            self.left = set()
            stopped = self._run_round(records)
            if stopped is not None:
                return stopped
            if self.left:
                time.sleep(BUSY_SECONDS)
        return None

    def _run_round(self, records: Mapping[Path, StackRecord]) -> str | None:
        """Train stacks to the end of their workers; return the reason if the execution stops early, else None.

        The launcher yields None between the exits of workers; the watcher then updates the shown progress. `_ended`
        adds the runs that are to be trained in another round to ``left``. The workers that still run are ended if the
        execution stops early or an error is raised, unless the launcher of a plugin returns an iterator without
        ``close``.

        Args:
            records: The record of each stack by its folder.

        Raises:
            HeadToHeadError: If the disk is full, a worker refuses its input or cannot be started, another process lays
                out stacks for too long, or a record is damaged.
            LeaseLost: If another process takes over a run while its stack is split.
        """
        workers, _ = self.machine.share(len(records))
        plugins = worker_plugins()
        jobs = []
        for path, record in records.items():
            jobs.append(Job(path, self.machine.device, record.threads, plugins))
        log.info("training %d stacks, %d at a time", len(jobs), workers)
        ends = self.machine.launcher.launch(jobs, workers)
        try:
            for end in ends:
                if end is None:  # no worker has ended since the last exit
                    self.watcher.tick()
                    continue
                log.info("stack %s ended with exit code %d", end.job.stack.name, end.code)
                stack = end.job.stack
                with layout_lock(self.experiment):
                    stopped = self._ended(StackFolder(stack), records[stack], end.code)
                if stopped is not None:
                    return stopped
        finally:
            close = getattr(ends, "close", None)  # the iterator of a plugin may have none
            if close is not None:
                close()
        return None

    def _ended(self, folder: StackFolder, record: StackRecord, code: int) -> str | None:
        """Handle the exit of a worker; return the reason to stop if too many stacks failed in the same way, else None.

        The watcher prints a line about the exit: of a stack that another process trains, only the first time; of a
        stack that was split, none here. The runs of a stack that no longer exists are left for the next round.

        Args:
            folder: The stack, which may have been split or archived meanwhile.
            record: Its record at the start of the round, for its runs if the stack no longer exists.
            code: The exit code of the worker.

        Raises:
            HeadToHeadError: If the disk is full, the worker refused its input, or a record is damaged.
            LeaseLost: If another process takes over a run while its stack is split.
        """
        if not folder.exists:  # another process has split or archived it
            self.left |= record.hashes
            return None
        if self._handle(folder, folder.record, code):
            self.left |= record.hashes
        if not folder.exists:  # it was split here
            return None
        # While another process trains a stack, its worker ends in every round; one line about it suffices.
        if code != exits.BUSY or folder.path not in self.waiting:
            self.watcher.ended(folder, code)
        if code == exits.BUSY:
            self.waiting.add(folder.path)
            return None
        self.waiting.discard(folder.path)
        return self._repeated_failure(folder)

    def _repeated_failure(self, folder: StackFolder) -> str | None:
        """Count the failure of a stack; return the reason to stop if `EQUAL_FAILURES` stacks failed in the same way."""
        statuses = [run.status for run in folder.runs()]
        if not all(status.state == states.FAILED for status in statuses):
            return None
        for signature in {str(status.signature) for status in statuses}:
            self.failures[signature].add(folder.path.name)
            if len(self.failures[signature]) >= EQUAL_FAILURES:
                return f"stopped after {EQUAL_FAILURES} stacks failed in the same way: {signature}"
        return None

    def _handle(self, folder: StackFolder, record: StackRecord, code: int) -> bool:
        """Write the states that a worker could not write; return whether its runs are left for the next round.

        By exit code; a state is written to the runs that have no final state:

        - BUSY: the runs are left. OK: they are not. DISK and INPUT: an error is raised.
        - OOM: a smaller stack or smaller microbatches; see `_out_of_memory`.
        - TIMEOUT: the state TIMEOUT.
        - FAILED, or DEVICE as the ``MAX_DEATHS``-th death of the process, whatever ended it before: the state FAILED if
          the stack has a single variant, else one new stack for each variant, whose runs are left.
        - DEVICE before that, and any other code: the state KILLED; the runs are left until the ``MAX_DEATHS``-th death.

        Runs are also left if another process writes one of them.

        Raises:
            HeadToHeadError: If the disk is full, the worker refused its input, or a record is damaged.
            LeaseLost: If another process takes over a run while its stack is split.
        """
        last = files.last_line(folder.path / "worker.log")
        if code == exits.BUSY:
            return True
        if code == exits.OK:
            return False
        if code == exits.DISK:
            # On a full disk, the reason in the log may be missing or incomplete.
            logged = re.search(r"(?:\[Errno \d+\]|I/O error:) ([^:(]+)", last)
            raise unwritable(self.experiment, logged[1].strip() if logged else "the disk is full")
        if code == exits.INPUT:
            raise HeadToHeadError(last)
        if code == exits.OOM:
            return self._out_of_memory(folder, record)
        if code == exits.TIMEOUT:
            limit = record.timeout_seconds
            # None: another command without a limit has changed the record since the worker read it.
            reason = "over the time limit" if limit is None else f"over {limit:g} s"
            return not self._set_states(folder, states.TIMEOUT, reason)
        deaths = record.deaths + 1
        if code == exits.FAILED or (code == exits.DEVICE and deaths >= MAX_DEATHS):
            if len(record.variants) == 1:
                return not self._set_states(folder, states.FAILED, last)
            # Separate stacks show which variant fails.
            self._split(folder, record, _by_variant(record))
            return True
        # After an error of the GPU, a new process has a new context.
        died = _signal_name(-code) if code < 0 else f"exit code {code}"
        folder.change(deaths=deaths)
        are_written = self._set_states(
            folder, states.KILLED, f"the process died ({died})", ENDING_SECONDS
        )
        return deaths < MAX_DEATHS or not are_written

    def _out_of_memory(self, folder: StackFolder, record: StackRecord) -> bool:
        """Halve the stack or, if it has a single run, double its number of microbatches.

        Return whether its runs are left for the next round; those without a final state get the state KILLED. The batch
        size does not change, so the results stay the same. If the doubled number would exceed `MAX_NUM_MICROBATCHES`,
        the single run gets the state OOM and is not left. Nothing happens if all runs have a final state. Finished runs
        count as runs of the stack, because its model still has them.

        Raises:
            HeadToHeadError: If a record is damaged.
            LeaseLost: If another process takes over a run meanwhile.
        """
        if not folder.open_runs():
            return False
        size = len(record.members)
        num_microbatches = record.num_microbatches * 2
        if size == 1 and num_microbatches > MAX_NUM_MICROBATCHES:
            reason = "out of memory with the maximum number of microbatches"
            return not self._set_states(folder, states.OOM, reason)
        self._set_states(folder, states.KILLED, f"out of memory in a stack of {size}")
        if size == 1:
            folder.change(num_microbatches=num_microbatches)
            return True
        self.watcher.ended(folder, exits.OOM)
        middle = size // 2
        first = record.part(record.members[:middle])
        second = record.part(record.members[middle:])
        self._split(folder, record, [first, second])
        return True

    def _split(
        self, folder: StackFolder, record: StackRecord, parts: Sequence[StackRecord]
    ) -> None:
        """Replace a stack by parts that are trained from the first step; change nothing if another process trains it.

        In this order: the resume points are deleted, the histories of open runs are moved to their attempts,
        ``stack.json`` is deleted (the folder is no stack any more), the parts are written, and the folder is deleted.
        So no run is ever in two stacks. After a kill in between, runs are in no stack, and the next call lays out new
        ones for them.

        Args:
            folder: The stack.
            record: Its record.
            parts: The records of the new stacks, which have all its members.

        Raises:
            LeaseLost: If another process takes over a run meanwhile.
            HeadToHeadError: If a record is damaged.
        """
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
    ) -> bool:
        """Write the state of those runs of a stack that have no final state.

        Return False if another process still writes a run after the wait; its state stays.

        Args:
            folder: The stack.
            state: The new state.
            reason: Its reason.
            wait_seconds: How long to wait in all for the leases of a dying process.

        Raises:
            HeadToHeadError: If the record of the stack or a status is damaged.
            LeaseLost: If another process takes over a run meanwhile.
        """
        deadline = time.monotonic() + wait_seconds
        are_written = True
        for run in folder.runs():
            while not _set_state(run, state, reason):
                if time.monotonic() >= deadline:
                    are_written = False
                    break
                time.sleep(0.05)
        return are_written


def _set_state(run: RunDirectory, state: str, reason: str) -> bool:
    """Write the state of a run without a final state; return False if another process writes the run."""
    try:
        with leased(run.path) as writer:
            if writer.state not in states.FINAL:
                writer.set_state(state, reason=reason, signature=reason[:200])
    except Busy:
        return False
    return True


def _signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _by_variant(record: StackRecord) -> list[StackRecord]:
    """Return a stack for each variant of a stack."""
    members_of: dict[str, list[StackMember]] = {}
    for member in sorted(record.members, key=lambda member: member.variant):
        members_of.setdefault(member.variant, []).append(member)
    return [record.part(members) for members in members_of.values()]


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of a study's files in the block into an error for the user.

    All other errors are raised unchanged.

    Args:
        folder: The experiment's folder.

    Raises:
        HeadToHeadError: That a file was moved or deleted, for a `FileNotFoundError` while the folder exists; the error
            of `unwritable` for every other `OSError`.
        OSError: Unchanged, if it is a limit of the machine, such as the number of open files; or if it is a
            `FileNotFoundError` without the name of a file, which a plugin raises, while the folder exists.
    """
    try:
        yield
    except OSError as error:
        if machine_limit(error):
            raise
        if isinstance(error, FileNotFoundError) and folder.exists():
            if error.filename is None:
                raise
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

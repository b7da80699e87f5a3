"""Execution of a plan: lays out run directories and stacks, starts workers and handles their exits.

Training happens only in workers. The parent may be killed at any moment; the same command then continues from the
run directories.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.errors import HeadToHeadError, UndefinedError, machine_limit
from headtohead.planning.plan import Plan, PlannedRun
from headtohead.planning.stacking import arrange
from headtohead.plugins.launcher import Exit, Job, Launcher
from headtohead.plugins.registry import current
from headtohead.schema.run_config import STEPWISE
from headtohead.storage import exits, states
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import EXPERIMENT, ProbeSentence
from headtohead.storage.leases import Busy, Lease, layout_lock, refuse_busy, release_dead
from headtohead.storage.objects import worker_plugins
from headtohead.storage.paths import inside, run_folder
from headtohead.storage.run import RUN
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased, now
from headtohead.storage.run_files import delete_run_files
from headtohead.storage.stack import RECORD, STACKS, StackFolder, StackMember, StackRecord, stack_folders

MAX_DEATHS = 3
"""A stack stays KILLED after its process has died this many times."""

ENDING_SECONDS = 10.0
"""How long a killed process may hold its leases: it exists until its memory is freed."""

EQUAL_FAILURES = 3
"""Number of stacks with the same failure after which no stack is started any more."""

LARGEST_NUM_MICROBATCHES = 64
BUSY_SECONDS = 1.0


log = logging.getLogger(__name__)


class Watcher:
    """Receives progress events, for display on a terminal; this class ignores them."""

    def start(self, folders: Sequence[StackFolder]) -> None:
        """Called before stacks start."""

    def tick(self) -> None:
        """Called a few times per second."""

    def ended(self, folder: StackFolder, code: int) -> None:
        """Called when the process of a stack has ended."""

    def close(self) -> None:
        """Called last, also after errors."""


@dataclass(frozen=True)
class Machine:
    """Launcher, device, number of concurrent stacks, CPU threads per stack, and time limit per stack."""

    launcher: Launcher
    device: str = "cpu"
    workers: int | None = None
    threads: int | None = None
    timeout_seconds: float | None = None


@dataclass
class Outcome:
    """The number of runs by final state, and the reason if the execution stopped early."""

    states: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None


def pending(plan: Plan) -> list[PlannedRun]:
    """Return the runs without a final state, of the variants to which the plan is limited.

    They include runs that another process trains; a worker waits for their leases.
    """
    return [run for run in plan.selected if not run.reused_from and run.state not in states.FINAL]


def execute(plan: Plan, machine: Machine, cache: Path, watcher: Watcher, command: str) -> Outcome:
    """Train every pending run of a plan.

    Raises:
        HeadToHeadError: If the runs folder cannot be written or the disk is full. Finished runs are kept, and the same
            command resumes.
    """
    experiment = plan.directory
    with _disk_errors(experiment):
        experiment.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(experiment)
        files.remove_leftovers(cache)
        release_dead([inside(experiment, run.directory) for run in pending(plan)])
        with layout_lock(experiment):
            files.write_json(experiment / EXPERIMENT, plan.record(command).to_json())
            folders = _lay_out_study(plan, machine, cache, _unfinished(plan))
    outcome = Outcome()
    if folders:
        hooks = current().manager.hook
        hooks.on_experiment_start(experiment=experiment)
        with _disk_errors(experiment):
            outcome.stopped = run_stacks(folders, machine, watcher, experiment)
        hooks.on_experiment_end(experiment=experiment)
    outcome.states = final_states(plan)
    return outcome


def run_stacks(folders: Sequence[StackFolder], machine: Machine, watcher: Watcher, experiment: Path) -> str | None:
    """Train stacks; return the reason if the execution stopped early, else None."""
    watcher.start(folders)
    try:
        return _Execution(machine, watcher, experiment).run(folders)
    finally:
        watcher.close()


def final_states(plan: Plan, runs: Sequence[PlannedRun] | None = None) -> Counter[str]:
    """Count the current states of a plan's runs, or of some of them."""
    counts: Counter[str] = Counter()
    for run in plan.runs if runs is None else runs:
        path = run_folder(plan.directory, run.directory, run.reused_from)
        counts[RunDirectory(path).observed_state] += 1
    return counts


def archive_runs(experiment: Path) -> None:
    """Move all run directories and stacks of an experiment to ``.archived``, for ``--fresh``.

    Raises:
        HeadToHeadError: If another process trains one of the runs; then nothing is moved.
    """
    paths = run_directories(experiment)
    if not paths:
        return
    with layout_lock(experiment), refuse_busy(), Lease(*paths):
        archive = move_to_archive(experiment, paths)
        if (experiment / STACKS).exists():
            (experiment / STACKS).rename(archive / STACKS)


def move_to_archive(experiment: Path, runs: Sequence[Path]) -> Path:
    """Move run directories to a new folder in ``.archived`` and return it; the caller holds their leases."""
    archive = inside(experiment, ".archived", now().replace(":", ""))
    archive.mkdir(parents=True)
    for run in runs:
        run.rename(archive / run.name)
    return archive


def reset_failed(plan: Plan, runs: Sequence[PlannedRun]) -> None:
    """Reset runs to PLANNED and remove the resume points of their stacks, for ``--retry``.

    Raises:
        HeadToHeadError: If another process trains one of the runs; then nothing is changed.
    """
    if not runs:
        return
    paths = [inside(plan.directory, run.directory, tree=True) for run in runs]
    with layout_lock(plan.directory), refuse_busy():
        stacks = stacks_of(plan.directory, {run.run_hash for run in runs})
        # Without resume points, all members of their stacks that are still open begin at step 0.
        members = {*paths, *(run.path for folder in stacks for run in folder.open_runs())}
        with Lease(*members) as lease:
            for path in members:
                RunWriter(path, lease).archive_metrics()
            for path in paths:
                RunWriter(path, lease).set_state(states.PLANNED)
            # The resume points record them as failed.
            for folder in stacks:
                folder.resume_points.clear()


def stacks_of(experiment: Path, run_hashes: Set[str]) -> list[StackFolder]:
    """Return the stacks of an experiment that contain any of these runs."""
    return [
        folder
        for folder in stack_folders(experiment)
        if any(member.run_hash in run_hashes for member in folder.record.members)
    ]


def _unfinished(plan: Plan) -> list[PlannedRun]:
    """Return the pending runs that no other process has finished since planning."""
    return [
        run for run in pending(plan) if RunDirectory(inside(plan.directory, run.directory)).state not in states.FINAL
    ]


def _lay_out_study(plan: Plan, machine: Machine, cache: Path, runs: Sequence[PlannedRun]) -> list[StackFolder]:
    """Create missing run directories and stacks; return the stacks to train.

    Existing stacks keep their members. If another process has laid them out, the leases decide which process trains
    them. The caller holds the layout lock.
    """
    folders, unassigned = _existing_stacks(plan, runs, machine, cache)
    paths = {run.run_hash: inside(plan.directory, run.directory) for run in runs}
    missing = [run for run in runs if not (paths[run.run_hash] / RUN).exists()]
    workers, _ = share_machine(machine, len(folders) + len(unassigned))
    memory = machine.launcher.memory(machine.device, workers)
    new_stacks = arrange(plan, unassigned, workers, machine.device, memory)
    _, threads = share_machine(machine, len(folders) + len(new_stacks))
    records = [stack_record(plan, members, machine, cache, threads) for members in new_stacks]
    with refuse_busy(), Lease(*{paths[run.run_hash] for run in [*missing, *unassigned]}) as lease:
        plan_directories(plan, missing, lease)
        for folder in folders:
            folder.record_execution(lease, {paths[run.run_hash] for run in missing})
        return folders + [lay_out(plan.directory, record, lease, initial_weights(plan, record)) for record in records]


def plan_directories(plan: Plan, runs: Sequence[PlannedRun], lease: Lease) -> None:
    """Write the directories of planned runs."""
    for run in runs:
        RunWriter(inside(plan.directory, run.directory, tree=True), lease).plan(plan.run_record(run))


def _existing_stacks(
    plan: Plan, runs: Sequence[PlannedRun], machine: Machine, cache: Path
) -> tuple[list[StackFolder], list[PlannedRun]]:
    """Return the existing stacks with any of the runs, and the runs without a stack."""
    remaining = {run.run_hash: run.directory for run in runs}
    folders: list[StackFolder] = []
    for folder in stack_folders(plan.directory):
        record = folder.record
        if any(member.run_hash in remaining for member in record.members):
            # The name of an archived run's new directory has all axes of the current design.
            members = [
                replace(member, directory=remaining.pop(member.run_hash, member.directory)) for member in record.members
            ]
            folder.change(cache=str(cache), timeout_seconds=machine.timeout_seconds, deaths=0, members=members)
            folders.append(folder)
    return folders, [run for run in runs if run.run_hash in remaining]


def share_machine(machine: Machine, stacks: int) -> tuple[int, int]:
    """Return the number of concurrent processes and the number of threads per process."""
    return machine.launcher.share(machine.device, stacks, machine.workers, machine.threads)


def stack_record(plan: Plan, runs: Sequence[PlannedRun], machine: Machine, cache: Path, threads: int) -> StackRecord:
    """Return the record of a stack of planned runs."""
    slug = runs[0].variant
    variant = plan.variant_of(runs[0])
    variants = list(dict.fromkeys(run.variant for run in runs))
    return StackRecord(
        variant=slug if len(variants) == 1 else f"{slug} and {len(variants) - 1} more",
        config=variant.config.model_dump(mode="json"),
        members=[
            StackMember(
                run.run_hash,
                run.seed,
                run.directory,
                None if run.variant == slug else plan.variant_of(run).config.model_dump(mode="json"),
            )
            for run in runs
        ],
        probes=[record for probe in plan.probes if (record := _with_target(plan, runs[0], probe))],  # type: ignore[misc]
        threads=threads,
        device=machine.device,
        num_microbatches=variant.config.train.num_microbatches,
        cache=str(cache),
        timeout_seconds=machine.timeout_seconds,
    )


def initial_weights(plan: Plan, record: StackRecord) -> Path | None:
    """Return the checkpoint that ``init_from`` of a stack names; None without ``init_from``."""
    init_from = record.config.get("init_from")
    return plan.initial_weights[init_from["weights"]] if init_from else None


def lay_out(experiment: Path, record: StackRecord, lease: Lease, weights: Path | None = None) -> StackFolder:
    """Write a stack's folder, and the execution settings into the records of its runs.

    The initial ``weights`` are copied into the folder, so that a resumed stack does not depend on another run.
    """
    folder = StackFolder(experiment / STACKS / record.id)
    if weights is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
        files.replace(folder.initial_weights, lambda temporary: shutil.copyfile(weights, temporary))
    folder.write(record)
    # A finished run keeps the settings that it was trained with.
    folder.record_execution(lease, {run.path for run in folder.runs() if run.state not in states.RESULTS})
    return folder


def _replace_stack(folder: StackFolder, parts: Sequence[StackRecord], lease: Lease) -> list[StackFolder]:
    """Replace a stack by several stacks that resume from copies of its resume points.

    A folder is a stack if it contains ``stack.json``. Its file is removed first, so that no run is ever in two stacks.
    """
    for part in parts:
        folder.resume_points.copy(folder.path.parent / part.id)
    (folder.path / RECORD).unlink()
    weights = folder.initial_weights if folder.initial_weights.exists() else None
    new_stacks = [lay_out(folder.experiment, part, lease, weights) for part in parts]
    delete_run_files(folder.path)
    return new_stacks


def _with_target(plan: Plan, run: PlannedRun, probe: ProbeSentence) -> dict[str, Any] | None:
    """Return a probe with its target: that of the file, the reference in the corpus, or the run's translation.

    Returns None if a sentence is empty or contains a refused word, or if there is no reference and the run cannot
    translate.
    """
    data, decode = plan.data_of(run), plan.variant_of(run).config.evaluate.decode
    try:
        source = data.tokenise(probe.source, "source")
        if probe.target is not None:
            target_ids = data.tokenise(probe.target, "target")
            return probe.to_json() | {"target_from": "file"} if source and target_ids else None
    except UndefinedError:
        return None
    if not source:
        return None
    for name in ("test", "valid", "train"):
        split = data.splits[name]
        for ids, target in zip(split.source, split.target_text, strict=True):
            if len(ids) == len(source) and list(ids) == source:
                return probe.to_json() | {"target": target, "target_from": "reference"}
    if decode not in {*STEPWISE, "non-autoregressive"}:
        return None
    return probe.to_json() | {"target_from": "translation"}


class _Execution:
    """The state of an execution: stacks to start, failures, and stacks of other processes."""

    def __init__(self, machine: Machine, watcher: Watcher, experiment: Path) -> None:
        self.machine = machine
        self.watcher = watcher
        self.experiment = experiment
        self.failures: defaultdict[str, set[str]] = defaultdict(set)
        """Names of failed stacks by error signature."""
        self.next_round: list[StackFolder] = []
        self.records: dict[Path, StackRecord] = {}
        """Last known records of the stacks, which another process may split or archive."""
        self.waiting: set[Path] = set()
        """Stacks that another process trains and that the watcher has been notified of."""

    def run(self, folders: Sequence[StackFolder]) -> str | None:
        """Run rounds of stacks until none is left; return the reason if the execution stops early."""
        while folders := self._current(folders):
            self.next_round = []
            stopped = self._round(folders)
            if stopped:
                return stopped
            folders = self.next_round
            if folders:
                time.sleep(BUSY_SECONDS)
        return None

    def _current(self, folders: Sequence[StackFolder]) -> list[StackFolder]:
        """Return the stacks; a stack that was split is replaced by the stacks that now contain its runs."""
        with layout_lock(self.experiment):
            current = {folder.path: folder for folder in folders if folder.exists}
            missing = {
                member.run_hash
                for folder in folders
                if folder.path not in current and folder.path in self.records
                for member in self.records[folder.path].members
            }
            if missing:
                current |= {folder.path: folder for folder in stacks_of(self.experiment, missing)}
            self.records |= {path: folder.record for path, folder in current.items()}
            return list(current.values())

    def _round(self, folders: Sequence[StackFolder]) -> str | None:
        workers, _ = share_machine(self.machine, len(folders))
        plugins = worker_plugins()
        jobs = [Job(folder.path, self.machine.device, self.records[folder.path].threads, plugins) for folder in folders]
        log.info("training %d stacks, %d at a time", len(jobs), workers)
        exits_of_workers = self.machine.launcher.launch(jobs, workers)
        try:
            for ended in exits_of_workers:
                if ended is None:
                    self.watcher.tick()
                    continue
                stopped = self._ended(ended)
                if stopped:
                    return stopped
        finally:
            close: Callable[[], None] = getattr(exits_of_workers, "close", lambda: None)
            close()
        return None

    def _ended(self, ended: Exit) -> str | None:
        folder = StackFolder(ended.job.stack)
        log.info("stack %s ended with exit code %d", folder.path.name, ended.code)
        with layout_lock(self.experiment):
            if not folder.exists:
                self.next_round.append(folder)
                return None
            self._handle(folder, ended.code)
            if not folder.exists:
                return None
            busy, notified = ended.code == exits.BUSY, folder.path in self.waiting
            if not (busy and notified):
                self.watcher.ended(folder, ended.code)
            (self.waiting.add if busy else self.waiting.discard)(folder.path)
            return None if busy else self._count_failure(folder)

    def _handle(self, folder: StackFolder, code: int) -> None:
        handle: Callable[[], None] = {
            exits.OK: lambda: None,
            exits.BUSY: lambda: self.next_round.append(folder),
            exits.DISK: lambda: self._disk(folder),
            exits.INPUT: lambda: self._input(folder),
            exits.OOM: lambda: self._out_of_memory(folder),
            exits.TIMEOUT: lambda: self._end_runs(folder, states.TIMEOUT, f"over {folder.record.timeout_seconds:g} s"),
            exits.FAILED: lambda: self._failed(folder),
            exits.DEVICE: lambda: self._device_failed(folder),
        }.get(code, lambda: self._died(folder, code))
        handle()

    def _count_failure(self, folder: StackFolder) -> str | None:
        """Return the reason to stop if too many stacks failed as a whole with the same signature."""
        statuses = [run.status for run in folder.runs()]
        if any(status.state != states.FAILED for status in statuses):
            return None
        for signature in {str(status.signature) for status in statuses}:
            self.failures[signature].add(folder.path.name)
            if len(self.failures[signature]) >= EQUAL_FAILURES:
                return f"stopped after {EQUAL_FAILURES} stacks failed in the same way: {signature}"
        return None

    def _disk(self, folder: StackFolder) -> None:
        # On a full disk, the reason in the log may be missing or incomplete.
        last = files.last_line(folder.path / "worker.log")
        found = re.search(r"(?:\[Errno \d+\]|I/O error:) ([^:(]+)", last)
        raise unwritable(self.experiment, found[1].strip() if found else "the disk is full")

    @staticmethod
    def _input(folder: StackFolder) -> None:
        raise HeadToHeadError(files.last_line(folder.path / "worker.log"))

    def _out_of_memory(self, folder: StackFolder) -> None:
        """Halve the stack, or double the number of micro-batches of a single run.

        The batch size does not change, so the results stay the same.
        """
        record, left = folder.record, folder.open_runs()
        if not left:
            return
        num_microbatches = record.num_microbatches * 2
        if len(left) == 1 and num_microbatches > LARGEST_NUM_MICROBATCHES:
            self._end_runs(folder, states.OOM, "out of memory with the maximum number of micro-batches")
            return
        self._end_runs(folder, states.KILLED, f"out of memory in a stack of {len(left)}")
        if len(left) == 1:
            folder.change(num_microbatches=num_microbatches)
            self._restart(folder)
            return
        self.watcher.ended(folder, exits.OOM)
        middle = len(record.members) // 2
        halves = [record.part(part) for part in (record.members[:middle], record.members[middle:])]
        self._split(folder, halves)

    def _device_failed(self, folder: StackFolder) -> None:
        """Train on in a new process, which has a new context of the GPU; if that fails as often, end the runs."""
        if folder.record.deaths + 1 < MAX_DEATHS:
            self._died(folder, exits.DEVICE)
        else:
            folder.change(deaths=0)
            self._failed(folder)

    def _failed(self, folder: StackFolder) -> None:
        record = folder.record
        if len(record.variants) > 1:
            # Separate stacks show which variant fails.
            self._split(
                folder,
                [
                    replace(record, variant=name, config=config, members=members)
                    for name, config, members in record.variants
                ],
            )
            return
        reason = files.last_line(folder.path / "worker.log")
        self._end_runs(folder, states.FAILED, reason)

    def _split(self, folder: StackFolder, records: Sequence[StackRecord]) -> None:
        """Replace a stack by several stacks, unless another process trains it."""
        try:
            with Lease(*(run.path for run in folder.runs())) as lease:
                self.next_round += _replace_stack(folder, records, lease)
        except Busy:
            self._restart(folder)

    def _restart(self, folder: StackFolder) -> None:
        """Add the stack to the next round."""
        if folder not in self.next_round:
            self.next_round.append(folder)

    def _died(self, folder: StackFolder, code: int) -> None:
        deaths = folder.record.deaths + 1
        folder.change(deaths=deaths)
        self._end_runs(folder, states.KILLED, f"the process died ({exits.exit_name(code)})", ENDING_SECONDS)
        if deaths < MAX_DEATHS:
            self._restart(folder)

    def _end_runs(self, folder: StackFolder, state: str, reason: str, wait_seconds: float = 0.0) -> None:
        """Write the state of runs without a final state.

        A stack with runs that another process trains is added to the next round.

        Args:
            folder: The stack.
            state: The new state.
            reason: Reason of the state.
            wait_seconds: How long to wait for the leases of a dying process.
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
                        self._restart(folder)
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

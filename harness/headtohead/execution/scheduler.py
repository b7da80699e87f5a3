"""Carrying out a plan: directories, stacks, workers, and what to do when one of them ends.

Nothing here trains. The parent may die at any moment; the same command then finds in the run
directories what is done and what is left.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headtohead import files
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.execution.stack_sizes import stack_sizes
from headtohead.planning.plan import Plan, PlannedRun
from headtohead.planning.stacking import arrange
from headtohead.plugins.launcher import Exit, Job, Launcher
from headtohead.plugins.registry import current
from headtohead.schema.run_config import STEPWISE
from headtohead.storage import exits, states
from headtohead.storage.leases import Busy, Lease, layout_lock
from headtohead.storage.objects import worker_plugins
from headtohead.storage.paths import inside, run_folder
from headtohead.storage.records import EXPERIMENT, RUN, ExecutionRecord, ProbeSentence
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased, now
from headtohead.storage.stack import RECORD, STACKS, StackFolder, StackMember, StackRecord, stack_folders

MOST_DEATHS = 3
"""A stack whose process dies this often without finishing is left KILLED."""

ENDING_SECONDS = 10.0
"""How long a process that was killed may still hold its leases: its memory is freed before it is gone."""

EQUAL_FAILURES = 3
"""So many stacks that fail in the same way stop new ones from starting."""

LARGEST_NUM_MICROBATCHES = 64
BUSY_SECONDS = 1.0


class Watcher(Protocol):
    """Told what happens, for progress on a terminal."""

    def start(self, folders: Sequence[StackFolder]) -> None:
        """Stacks are about to start."""

    def tick(self) -> None:
        """Some time has passed."""

    def ended(self, folder: StackFolder, code: int) -> None:
        """A stack's process has ended."""

    def close(self) -> None:
        """Nothing more will come, however it ended."""


@dataclass(frozen=True)
class Machine:
    """How to run: launcher, processes at once, CPU threads of each, device and time limit."""

    launcher: Launcher
    device: str = "cpu"
    workers: int | None = None
    threads: int | None = None
    timeout_seconds: float | None = None


@dataclass
class Outcome:
    """How an execution ended: final states, and why it stopped early if it did."""

    states: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None


def pending(plan: Plan) -> list[PlannedRun]:
    """Return the runs that are no result yet and that the same command may start.

    Runs that another process trains are among them: a worker waits until their leases are free.
    """
    return [run for run in plan.runs if not run.reused_from and run.state not in states.FINAL]


def execute(plan: Plan, machine: Machine, cache: Path, watcher: Watcher, command: str) -> Outcome:
    """Train every pending run of a plan.

    Raises:
        HeadToHeadError: If the runs folder cannot be written or the disk is full; what was done
            until then is kept, and the same command goes on from there.
    """
    experiment = plan.directory
    with _disk_errors(experiment):
        experiment.mkdir(parents=True, exist_ok=True)
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
    """Train stacks to their ends; return why it stopped early, or None."""
    watcher.start(folders)
    try:
        return _Execution(machine, watcher, experiment).run(folders)
    finally:
        watcher.close()


def final_states(plan: Plan) -> Counter[str]:
    """Count the states of a plan's runs as they are on disk now."""
    found: Counter[str] = Counter()
    for run in plan.runs:
        path = run_folder(plan.directory, run.directory, run.reused_from)
        found[RunDirectory(path).observed_state] += 1
    return found


def archive_runs(plan: Plan) -> None:
    """Move a plan's directories into ``.superseded``, so that ``--fresh`` trains anew and loses nothing.

    Raises:
        HeadToHeadError: If another process trains one of the runs; nothing is moved then.
    """
    found = [path for run in plan.runs if (path := inside(plan.directory, run.directory)).exists()]
    if not found:
        return
    aside = inside(plan.directory, ".superseded", now().replace(":", ""))
    with layout_lock(plan.directory), _refuse_busy(), Lease(*found):
        aside.mkdir(parents=True)
        for path in found:
            path.rename(aside / path.name)
        if (plan.directory / STACKS).exists():
            (plan.directory / STACKS).rename(aside / STACKS)


def reset_failed(plan: Plan, runs: Sequence[PlannedRun]) -> None:
    """Return runs to PLANNED and remove the resume points of their stacks, for ``--retry``.

    Raises:
        HeadToHeadError: If another process trains one of the runs; nothing is changed then.
    """
    if not runs:
        return
    paths = [inside(plan.directory, run.directory, tree=True) for run in runs]
    with layout_lock(plan.directory), _refuse_busy(), Lease(*paths) as lease:
        for path in paths:
            RunWriter(path, lease).set_state(states.PLANNED)
        # The resume points record them as failed.
        for folder in stacks_of(plan.directory, {run.key for run in runs}):
            folder.resume_path.unlink(missing_ok=True)


def stacks_of(experiment: Path, keys: Set[str]) -> list[StackFolder]:
    """Return the stacks of an experiment that train any of the runs with these keys."""
    return [
        folder for folder in stack_folders(experiment) if any(member.key in keys for member in folder.record.members)
    ]


@contextmanager
def _refuse_busy() -> Iterator[None]:
    try:
        yield
    except Busy as error:
        raise HeadToHeadError(f"run {error}; wait for it or end it, then run the same command") from error


def _unfinished(plan: Plan) -> list[PlannedRun]:
    """Return the pending runs, without those that were finished since the plan was made."""
    return [
        run for run in pending(plan) if RunDirectory(inside(plan.directory, run.directory)).state not in states.FINAL
    ]


def _lay_out_study(plan: Plan, machine: Machine, cache: Path, runs: Sequence[PlannedRun]) -> list[StackFolder]:
    """Create what is missing of run directories and stacks; return the stacks to train.

    Stacks that were begun keep their members, also those of another process: it then depends on the
    leases which process trains them. The caller holds the layout lock.
    """
    folders, waiting = _begun_stacks(plan, runs, machine, cache)
    paths = {run.key: inside(plan.directory, run.directory) for run in runs}
    missing = [run for run in runs if not (paths[run.key] / RUN).exists()]
    workers, _ = share_machine(machine, len(folders) + len(waiting))
    sizes = stack_sizes(plan, waiting, machine.device, cache)
    memory = machine.launcher.memory(machine.device, workers)
    fresh = arrange(plan, waiting, workers, machine.device, sizes, memory)
    _, threads = share_machine(machine, len(folders) + len(fresh))
    records = [_stack_record(plan, members, machine, cache, threads) for members in fresh]
    with _refuse_busy(), Lease(*{paths[run.key] for run in [*missing, *waiting]}) as lease:
        _plan_directories(plan, missing, lease)
        return folders + [_lay_out(plan.directory, record, lease) for record in records]


def _plan_directories(plan: Plan, runs: Sequence[PlannedRun], lease: Lease) -> None:
    for run in runs:
        RunWriter(inside(plan.directory, run.directory, tree=True), lease).plan(plan.run_record(run))


def _begun_stacks(
    plan: Plan, runs: Sequence[PlannedRun], machine: Machine, cache: Path
) -> tuple[list[StackFolder], list[PlannedRun]]:
    """Return the stacks that hold any of the runs, and the runs that are in no stack."""
    open_keys = {run.key for run in runs}
    folders: list[StackFolder] = []
    for folder in stack_folders(plan.directory):
        keys = {member.key for member in folder.record.members}
        if keys & open_keys:
            folder.change(cache=str(cache), timeout_seconds=machine.timeout_seconds, deaths=0)
            folders.append(folder)
            open_keys -= keys
    return folders, [run for run in runs if run.key in open_keys]


def share_machine(machine: Machine, stacks: int) -> tuple[int, int]:
    """Return how many processes run at once and how many threads each has."""
    return machine.launcher.share(machine.device, stacks, machine.workers, machine.threads)


def _stack_record(plan: Plan, runs: Sequence[PlannedRun], machine: Machine, cache: Path, threads: int) -> StackRecord:
    slug = runs[0].variant
    variant = plan.by_slug[slug]
    variants = list(dict.fromkeys(run.variant for run in runs))
    return StackRecord(
        variant=slug if len(variants) == 1 else f"{slug} and {len(variants) - 1} more",
        config=variant.config.model_dump(mode="json"),
        members=[
            StackMember(
                run.key,
                run.seed,
                run.directory,
                None if run.variant == slug else plan.by_slug[run.variant].config.model_dump(mode="json"),
            )
            for run in runs
        ],
        probes=[given for probe in plan.probes if (given := _with_target(plan, slug, probe))],
        threads=threads,
        device=machine.device,
        num_microbatches=variant.config.train.num_microbatches,
        cache=str(cache),
        timeout_seconds=machine.timeout_seconds,
    )


def _lay_out(experiment: Path, record: StackRecord, lease: Lease) -> StackFolder:
    """Write a stack's folder, and into its runs' records how they are trained."""
    folder = StackFolder(experiment / STACKS / record.id)
    folder.write(record)
    for index, directory in enumerate(folder.runs()):
        execution = ExecutionRecord(
            stack=tuple(member.key for member in record.members),
            member=index,
            threads=record.threads,
            device=record.device,
            dtype=record.config["train"]["precision"],
        )
        run = directory.record.model_copy(update={"execution": execution})
        RunWriter(directory.path, lease).write_json(RUN, run.to_json())
    return folder


def _divide(folder: StackFolder, parts: Sequence[StackRecord], lease: Lease) -> list[StackFolder]:
    """Turn a stack into stacks of its members, which go on from its resume point.

    ``stack.json`` makes a folder a stack: at no moment is a run in two of them.
    """
    if folder.resume_path.exists():
        for part in parts:
            resume = StackFolder(folder.path.parent / part.id).resume_path
            resume.parent.mkdir(exist_ok=True)
            files.replace(resume, lambda temporary: shutil.copyfile(folder.resume_path, temporary))
    (folder.path / RECORD).unlink()
    apart = [_lay_out(folder.experiment, part, lease) for part in parts]
    shutil.rmtree(folder.path)
    return apart


def _with_target(plan: Plan, slug: str, probe: ProbeSentence) -> dict[str, Any] | None:
    """Give a probe its reference from the corpus, where it has none of its own.

    None where the variant cannot read it: a word that its vocabulary refuses, no word at all, or no
    reference and no translation of its own either.
    """
    data, decode = plan.data_of(slug), plan.by_slug[slug].config.evaluate.decode
    try:
        wanted = data.tokenise(probe.source, "source")
        if probe.target is not None:
            read = data.tokenise(probe.target, "target")
            return probe.to_json() | {"target_from": "file"} if wanted and read else None
    except UndefinedError:
        return None
    if not wanted:
        return None
    for name in ("test", "valid", "train"):
        split = data.splits[name]
        for ids, target in zip(split.source, split.target_text, strict=True):
            if len(ids) == len(wanted) and list(ids) == wanted:
                return probe.to_json() | {"target": target, "target_from": "reference"}
    if decode not in {*STEPWISE, "non-autoregressive"}:
        return None
    return probe.to_json() | {"target_from": "translation"}


class _Execution:
    """The workers of one execution."""

    def __init__(self, machine: Machine, watcher: Watcher, experiment: Path) -> None:
        self.machine = machine
        self.watcher = watcher
        self.experiment = experiment
        self.failures: defaultdict[str, set[str]] = defaultdict(set)
        """Names of the stacks that failed, by signature."""
        self.again: list[StackFolder] = []
        self.records: dict[Path, StackRecord] = {}
        """Records of the stacks, which another process may split or archive."""
        self.waiting: set[Path] = set()
        """Stacks that another process trains, which the watcher was told."""

    def run(self, folders: Sequence[StackFolder]) -> str | None:
        """Run stacks, and again those that can go on, until none is left; say why if it stops."""
        while folders := self._current(folders):
            self.again = []
            stopped = self._round(folders)
            if stopped:
                return stopped
            folders = self.again
            if folders:
                time.sleep(BUSY_SECONDS)
        return None

    def _current(self, folders: Sequence[StackFolder]) -> list[StackFolder]:
        """Return the stacks, and in place of replaced ones the stacks that now hold their runs."""
        with layout_lock(self.experiment):
            found = {folder.path: folder for folder in folders if folder.exists}
            gone = {
                member.key
                for folder in folders
                if folder.path not in found and folder.path in self.records
                for member in self.records[folder.path].members
            }
            if gone:
                found |= {folder.path: folder for folder in stacks_of(self.experiment, gone)}
            self.records |= {path: folder.record for path, folder in found.items()}
            return list(found.values())

    def _round(self, folders: Sequence[StackFolder]) -> str | None:
        workers, _ = share_machine(self.machine, len(folders))
        sent = worker_plugins()
        jobs = [Job(folder.path, self.machine.device, self.records[folder.path].threads, sent) for folder in folders]
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
        with layout_lock(self.experiment):
            if not folder.exists:
                self.again.append(folder)
                return None
            self._handle(folder, ended.code)
            if not folder.exists:
                return None
            busy, known = ended.code == exits.BUSY, folder.path in self.waiting
            if not (busy and known):
                self.watcher.ended(folder, ended.code)
            (self.waiting.add if busy else self.waiting.discard)(folder.path)
            return None if busy else self._count_failure(folder)

    def _handle(self, folder: StackFolder, code: int) -> None:
        handle: Callable[[], None] = {
            exits.OK: lambda: None,
            exits.BUSY: lambda: self.again.append(folder),
            exits.DISK: lambda: self._disk(folder),
            exits.INPUT: lambda: self._input(folder),
            exits.OOM: lambda: self._out_of_memory(folder),
            exits.TIMEOUT: lambda: self._leave(folder, states.TIMEOUT, f"over {self.machine.timeout_seconds:g} s"),
            exits.FAILED: lambda: self._failed(folder),
        }.get(code, lambda: self._died(folder, code))
        handle()

    def _count_failure(self, folder: StackFolder) -> str | None:
        """Return why to stop, if so many stacks failed as a whole with the same signature."""
        found = [run.status for run in folder.runs()]
        if any(status.state != states.FAILED for status in found):
            return None
        for signature in {str(status.signature) for status in found}:
            self.failures[signature].add(folder.path.name)
            if len(self.failures[signature]) >= EQUAL_FAILURES:
                return f"stopped after {EQUAL_FAILURES} stacks failed in the same way: {signature}"
        return None

    def _disk(self, folder: StackFolder) -> None:
        # On a full disk the log may lack the reason, or end in the middle of it.
        last = _last_line(folder.path / "worker.log")
        known = re.search(r"\[Errno \d+\]|\(os error \d+\)", last)
        raise unwritable(self.experiment, last if known else "the disk is full")

    @staticmethod
    def _input(folder: StackFolder) -> None:
        raise HeadToHeadError(_last_line(folder.path / "worker.log"))

    def _out_of_memory(self, folder: StackFolder) -> None:
        """Halve the stack; a single run accumulates its gradients over smaller pieces instead.

        The batch stays what it is, so both give what an undisturbed stack would have given.
        """
        record, left = folder.record, folder.open_runs()
        if not left:
            return
        num_microbatches = record.num_microbatches * 2
        if len(left) == 1 and num_microbatches > LARGEST_NUM_MICROBATCHES:
            self._leave(folder, states.OOM, "out of memory even in the smallest pieces")
            return
        self._leave(folder, states.KILLED, f"out of memory in a stack of {len(left)}")
        if len(left) == 1:
            folder.change(num_microbatches=num_microbatches)
            self._repeat(folder)
            return
        self.watcher.ended(folder, exits.OOM)
        edge = len(record.members) // 2
        halves = [record.part(part) for part in (record.members[:edge], record.members[edge:])]
        self._split(folder, halves)

    def _failed(self, folder: StackFolder) -> None:
        record = folder.record
        if len(record.variants) > 1:
            # Whose fault it is shows where every variant is by itself.
            self._split(
                folder,
                [
                    replace(record, variant=name, config=config, members=members)
                    for name, config, members in record.variants
                ],
            )
            return
        reason = _last_line(folder.path / "worker.log")
        self._leave(folder, states.FAILED, reason)

    def _split(self, folder: StackFolder, records: Sequence[StackRecord]) -> None:
        """Replace a stack by stacks of its members; not while another process trains it."""
        try:
            with Lease(*(run.path for run in folder.runs())) as lease:
                self.again += _divide(folder, records, lease)
        except Busy:
            self._repeat(folder)

    def _repeat(self, folder: StackFolder) -> None:
        """Start the stack again in the next round."""
        if folder not in self.again:
            self.again.append(folder)

    def _died(self, folder: StackFolder, code: int) -> None:
        deaths = folder.record.deaths + 1
        folder.change(deaths=deaths)
        self._leave(folder, states.KILLED, f"the process died ({exits.exit_name(code)})", ENDING_SECONDS)
        if deaths < MOST_DEATHS:
            self._repeat(folder)

    def _leave(self, folder: StackFolder, state: str, reason: str, wait_seconds: float = 0.0) -> None:
        """Write the state of unfinished runs; a stack with runs that another process trains is started again later.

        Args:
            folder: The stack.
            state: The new state.
            reason: Why the runs have it.
            wait_seconds: How long to wait for a process that holds a lease and is ending.
        """
        last = time.monotonic() + wait_seconds
        for run in folder.runs():
            while True:
                try:
                    with leased(run.path) as writer:
                        if writer.state not in states.FINAL:
                            writer.set_state(state, reason=reason, signature=reason[:200])
                    break
                except Busy:
                    if time.monotonic() >= last:
                        self._repeat(folder)
                        break
                    time.sleep(0.05)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].strip() if lines else "no message"


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(folder, error.strerror or str(error)) from error


def unwritable(folder: Path, reason: str) -> HeadToHeadError:
    """Return the error for a runs folder on a full or unwritable disk."""
    return HeadToHeadError(
        f"cannot write to '{folder}' ({reason}); free space or name another folder with --runs, "
        "then run the same command: what is done is kept"
    )

"""Carrying out a plan: directories, stacks, workers, and what to do when one of them ends.

Nothing here trains. The parent may die at any moment; the same command then finds in the run
directories what is done and what is left.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headtohead import plugins
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.experiment.planned import Plan, PlannedRun
from headtohead.experiment.schema import STEPWISE
from headtohead.experiment.stacking import arrange
from headtohead.experiment.versions import plugins_record, versions
from headtohead.families.launcher import Exit, Job, Launcher
from headtohead.runs import exits, files, states
from headtohead.runs.directory import RunDirectory, now
from headtohead.runs.objects import store_objects
from headtohead.runs.sizes import stack_sizes
from headtohead.runs.stack import STACKS, StackFolder, StackMember, StackRecord, stack_folders

MOST_DEATHS = 3
"""A stack whose process dies this often without finishing is left KILLED."""

EQUAL_FAILURES = 3
"""So many stacks that fail in the same way stop new ones from starting."""

LARGEST_MICRO_BATCH = 64
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

    Runs that another process seems to hold are among them: the claim of their stack decides.
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
        files.write_json(experiment / "experiment.json", plan.to_experiment_json(command))
        store_objects(experiment, plugins.current().objects)
        runs = pending(plan)
        _plan_directories(plan, runs)
        folders = _stacks(plan, runs, machine, cache)
    outcome = Outcome()
    if folders:
        hooks = plugins.current().manager.hook
        hooks.on_experiment_start(experiment=experiment)
        with _disk_errors(experiment):
            outcome.stopped = run_stacks(folders, machine, watcher, experiment)
        hooks.on_experiment_end(experiment=experiment)
    outcome.states = final_states(plan)
    return outcome


def run_stacks(
    folders: Sequence[StackFolder], machine: Machine, watcher: Watcher, experiment: Path
) -> str | None:
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
        own = plan.directory / run.directory
        path = plan.runs_root / run.reused_from if run.reused_from else own
        found[RunDirectory(path).state] += 1
    return found


def supersede(plan: Plan) -> None:
    """Move a plan's directories aside, so that ``--fresh`` trains anew and loses nothing."""
    aside = plan.directory / ".superseded" / now().replace(":", "")
    for run in plan.runs:
        path = plan.directory / run.directory
        if path.exists():
            aside.mkdir(parents=True, exist_ok=True)
            path.rename(aside / run.directory)
    if (plan.directory / STACKS).exists() and aside.exists():
        (plan.directory / STACKS).rename(aside / STACKS)


def _plan_directories(plan: Plan, runs: Sequence[PlannedRun]) -> None:
    registry = plugins.current()
    for run in runs:
        directory = RunDirectory(plan.directory / run.directory)
        if not (directory.path / "run.json").exists():
            variant = plan.by_slug[run.variant]
            directory.plan({
                "format": 1,
                "key": run.key,
                "experiment": plan.name,
                "variant": run.variant,
                "seed": run.seed,
                **{name: value for name, value in variant.to_json().items()
                   if name not in {"slug", "equal_to", "equal_reason"}},
                "plugins": plugins_record(variant.config, registry),
                "data": plan.data_of(run.variant).record,
                "versions": versions(),
                "created": now(),
            })  # fmt: skip


def _stacks(
    plan: Plan, runs: Sequence[PlannedRun], machine: Machine, cache: Path
) -> list[StackFolder]:
    """Return the stacks to train: those that were begun with their members, and new ones."""
    open_keys = {run.key for run in runs}
    folders: list[StackFolder] = []
    for folder in stack_folders(plan.directory):
        keys = {member.key for member in folder.record.members}
        if keys & open_keys:
            folder.change(
                cache=str(cache), timeout_seconds=machine.timeout_seconds, deaths=0,
                plugin_files=[str(path) for path in plugins.current().files],
            )  # fmt: skip
            folders.append(folder)
            open_keys -= keys
    waiting = [run for run in runs if run.key in open_keys]
    workers, _ = share_machine(machine, len(folders) + len(waiting))
    sizes = stack_sizes(plan, waiting, machine.device, cache)
    fresh = arrange(plan, waiting, workers, machine.device, sizes)
    _, threads = share_machine(machine, len(folders) + len(fresh))
    folders += [_new_stack(plan, members, machine, cache, threads) for members in fresh]
    return folders


def share_machine(machine: Machine, stacks: int) -> tuple[int, int]:
    """Return how many processes run at once and how many threads each has."""
    return machine.launcher.share(machine.device, stacks, machine.workers, machine.threads)


def _new_stack(
    plan: Plan, runs: Sequence[PlannedRun], machine: Machine, cache: Path, threads: int
) -> StackFolder:
    slug = runs[0].variant
    variant = plan.by_slug[slug]
    variants = list(dict.fromkeys(run.variant for run in runs))
    record = StackRecord(
        variant=slug if len(variants) == 1 else f"{slug} and {len(variants) - 1} more",
        config=variant.config.model_dump(mode="json"),
        members=[
            StackMember(
                run.key,
                run.seed,
                run.directory,
                None
                if run.variant == slug
                else plan.by_slug[run.variant].config.model_dump(mode="json"),
            )
            for run in runs
        ],
        probes=[given for probe in plan.probes if (given := _with_target(plan, slug, probe))],
        threads=threads,
        device=machine.device,
        micro_batch=variant.config.train.micro_batch,
        cache=str(cache),
        plugin_files=[str(path) for path in plugins.current().files],
        timeout_seconds=machine.timeout_seconds,
    )
    return _lay_out(plan.directory, record)


def _lay_out(experiment: Path, record: StackRecord) -> StackFolder:
    """Write a stack's folder, and into its runs' records how they are trained."""
    folder = StackFolder(experiment / STACKS / record.id)
    folder.write(record)
    for index, directory in enumerate(folder.runs()):
        execution = {
            "stack": [member.key for member in record.members],
            "member": index,
            "threads": record.threads,
            "device": record.device,
            "dtype": record.config["train"]["precision"],
        }
        files.write_json(directory.path / "run.json", directory.record | {"execution": execution})
    return folder


def _with_target(plan: Plan, slug: str, probe: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Give a probe its reference from the corpus, where it has none of its own.

    None where the variant cannot read it: a word that its vocabulary refuses, no word at all, or no
    reference and no translation of its own either.
    """
    data, decode = plan.data_of(slug), plan.by_slug[slug].config.evaluate.decode
    try:
        wanted = data.tokenise(probe["source"] or "", "source")
        if probe["target"] is not None:
            read = data.tokenise(probe["target"], "target")
            return dict(probe) | {"target_from": "file"} if wanted and read else None
    except UndefinedError:
        return None
    if not wanted:
        return None
    for name in ("test", "valid", "train"):
        split = data.splits[name]
        for ids, target in zip(split.source, split.target_text, strict=True):
            if len(ids) == len(wanted) and list(ids) == wanted:
                return dict(probe) | {"target": target, "target_from": "reference"}
    if decode not in {*STEPWISE, "zeros"}:
        return None
    return dict(probe) | {"target_from": "translation"}


class _Execution:
    """The workers of one execution."""

    def __init__(self, machine: Machine, watcher: Watcher, experiment: Path) -> None:
        self.machine = machine
        self.watcher = watcher
        self.experiment = experiment
        self.signatures: Counter[str] = Counter()
        self.again: list[StackFolder] = []

    def run(self, folders: Sequence[StackFolder]) -> str | None:
        """Run stacks, and again those that can go on, until none is left; say why if it stops."""
        while folders:
            self.again = []
            stopped = self._round(folders)
            if stopped:
                return stopped
            folders = self.again
            if folders:
                time.sleep(BUSY_SECONDS)
        return None

    def _round(self, folders: Sequence[StackFolder]) -> str | None:
        workers, _ = share_machine(self.machine, len(folders))
        jobs = [Job(folder.path, self.machine.device, folder.record.threads) for folder in folders]
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
        handle: Callable[[], None] = {
            exits.OK: lambda: None,
            exits.BUSY: lambda: self.again.append(folder),
            exits.DISK: lambda: self._disk(folder),
            exits.INPUT: lambda: self._input(folder),
            exits.OOM: lambda: self._out_of_memory(folder),
            exits.TIMEOUT: lambda: self._leave(
                folder, states.TIMEOUT, f"over {self.machine.timeout_seconds:g} s"
            ),
            exits.FAILED: lambda: self._failed(folder),
        }.get(ended.code, lambda: self._died(folder, ended.code))
        handle()
        if not folder.path.exists():
            return None
        self.watcher.ended(folder, ended.code)
        for run in folder.runs():
            status = run.status
            if status["state"] == states.FAILED:
                self.signatures[str(status["signature"])] += 1
        worst = self.signatures.most_common(1)
        if worst and worst[0][1] >= EQUAL_FAILURES * len(folder.record.members):
            return f"stopped after {EQUAL_FAILURES} stacks failed in the same way: {worst[0][0]}"
        return None

    def _disk(self, folder: StackFolder) -> None:
        last = _last_line(folder.path / "worker.log")
        raise HeadToHeadError(
            f"cannot write to '{self.experiment}' ({last}); free space or name another folder with "
            "--runs, then run the same command: what is done is kept"
        )

    @staticmethod
    def _input(folder: StackFolder) -> None:
        raise HeadToHeadError(_last_line(folder.path / "worker.log"))

    def _out_of_memory(self, folder: StackFolder) -> None:
        micro_batch = folder.record.micro_batch * 2
        if micro_batch > LARGEST_MICRO_BATCH:
            self._leave(folder, states.OOM, "out of memory even in the smallest pieces")
            return
        # The batch stays what it is; only the pieces it is accumulated over become smaller.
        folder.change(micro_batch=micro_batch)
        self.again.append(folder)

    def _failed(self, folder: StackFolder) -> None:
        if len(folder.record.variants) > 1:
            # Whose fault it is shows where every variant is by itself.
            self.again += self._apart(folder)
            return
        reason = _last_line(folder.path / "worker.log")
        self._leave(folder, states.FAILED, reason)

    def _apart(self, folder: StackFolder) -> list[StackFolder]:
        """Turn a stack of several variants into a stack of each, which begins anew."""
        record = folder.record
        apart = [
            _lay_out(
                folder.experiment, replace(record, variant=name, config=config, members=members)
            )
            for name, config, members in record.variants
        ]
        shutil.rmtree(folder.path)
        return apart

    def _died(self, folder: StackFolder, code: int) -> None:
        deaths = folder.record.deaths + 1
        folder.change(deaths=deaths)
        reason = f"the process died ({_exit_name(code)})"
        for run in folder.runs():
            if run.state not in states.FINAL:
                run.set_state(states.KILLED, reason=reason)
        if deaths < MOST_DEATHS:
            self.again.append(folder)

    @staticmethod
    def _leave(folder: StackFolder, state: str, reason: str) -> None:
        for run in folder.runs():
            if run.state not in states.FINAL:
                run.set_state(state, reason=reason, signature=reason[:200])


def _exit_name(code: int) -> str:
    import signal

    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].strip() if lines else "no message"


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HeadToHeadError(
            f"cannot write to '{folder}' ({error.strerror}); free space or name another folder "
            "with --runs, then run the same command: what is done is kept"
        ) from error

"""The Python interface: the same steps as the commands, as functions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead.config.loading import MAX_RUNS, load_file, read_override
from headtohead.config.project import next_command, readable, reports_folder, runs_folder
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.execution.failures import failure_lines, next_step
from headtohead.execution.import_checkpoint import read_checkpoint
from headtohead.execution.imported_run import check_name, refuse_existing, write_imported
from headtohead.execution.launching import make_launcher
from headtohead.execution.loaded import LoadedRun, load
from headtohead.execution.scheduler import Machine, Outcome, Watcher, archive_runs, execute, reset_failed
from headtohead.execution.shipper import QUIET_SECONDS, ShipperProcess, shipping_seconds, start_shipper
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.planning.plan import Plan
from headtohead.planning.planner import make_plan
from headtohead.planning.replacing import refuse_replacing
from headtohead.plugins.registry import current
from headtohead.report.notebook import register
from headtohead.storage import states
from headtohead.storage.progress import find_experiment
from headtohead.training.maps import SentenceMaps

if TYPE_CHECKING:
    from headtohead.analysis.results import RunsTable
    from headtohead.plugins.launcher import Launcher
    from headtohead.report import ReportPaths

__all__ = ["LoadedRun", "Result", "import_checkpoint", "load", "plan", "results", "run", "write_report"]


register(Plan, LoadedRun, SentenceMaps)


@dataclass(frozen=True)
class Result:
    """What a study came to: its folder, the states of its runs, and its report."""

    experiment: Path
    states: Counter[str]
    report: ReportPaths | None
    answer: str | None

    @property
    def complete(self) -> bool:
        """Whether every run has a result."""
        return set(self.states) <= states.RESULTS

    def _repr_html_(self) -> str:
        from headtohead.report.notebook.results import result_html

        return result_html(self.experiment, self.states, self.report)


def plan(
    experiment: Path | str,
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    name: str | None = None,
    max_runs: int = MAX_RUNS,
    runs: Path | None = None,
    fresh: bool = False,
) -> Plan:
    """Check an experiment file and plan it against the runs folder; nothing is trained.

    Raises:
        HeadToHeadError: For every fault of file, data or plugins, in one line.
    """
    loaded = load_file(experiment, overrides, seeds, max_runs, name)
    return make_plan(loaded, current(), runs_folder(experiment, runs), fresh=fresh)


def run(
    experiment: Path | str,
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    name: str | None = None,
    max_runs: int = MAX_RUNS,
    runs: Path | None = None,
    reports: Path | None = None,
    device: str = "auto",
    workers: int | None = None,
    threads: int | None = None,
    launcher: str = "local",
    launcher_options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    fresh: bool = False,
    retry: bool = False,
    tracking: bool = True,
    allow_partial: bool = False,
    watcher: Watcher | None = None,
    command: str | None = None,
    log: Callable[[str], object] = lambda line: None,
) -> Result:
    """Train what an experiment file asks for, ship it to MLflow and write its report.

    Args:
        experiment: The file.
        overrides: ``"model.d_model=64"``, applied to the file's base.
        seeds: Number of replicates, instead of the file's.
        name: Label of an experiment of its own, ``<file>-<name>``, for these overrides and seeds.
        max_runs: Refuse an experiment with more runs.
        runs: Folder of run directories; default: ``runs`` in the project root of the file.
        reports: Folder of reports; default: ``reports`` beside it.
        device: auto, cpu or cuda.
        workers: Stacks trained at the same time.
        threads: CPU threads of each.
        launcher: Name of a registered launcher.
        launcher_options: Its options by name, such as the address of a cluster.
        timeout: Longest time for one stack, in seconds.
        fresh: Train anew; earlier runs are moved aside.
        retry: Start runs again that failed.
        tracking: Ship to MLflow while training.
        allow_partial: Report although runs are missing.
        watcher: Told of progress.
        command: Recorded as the way to repeat the study.
        say: Receives the lines that a reader should see.

    Raises:
        HeadToHeadError: For bad input, an unwritable folder or a full disk, and where overrides or
            seeds would replace the results of the experiment.
    """
    starter, patience = make_launcher(launcher, launcher_options or {}), shipping_seconds()
    loaded = load_file(experiment, overrides, seeds, max_runs, name)
    kind = find_device(device, starter)
    registry, root = current(), runs_folder(experiment, runs)
    planned = make_plan(loaded, registry, root, fresh=fresh, ready=starter.warm)
    refuse_precision(planned, kind)
    refuse_replacing(planned, registry)
    machine = Machine(starter, kind, workers, threads, timeout)
    tuning = planned.tuning
    if fresh:
        archive_runs(planned)
        if tuning is not None:
            archive_runs(tuning.plan)
    # With --fresh it would train anew.
    same = "the same command without --fresh" if fresh else "the same command"
    # The file alone does not name an experiment with a label.
    found_by = planned.name if name else experiment
    shippers: dict[str, ShipperProcess] = {}

    def train(plan: Plan) -> Outcome:
        if tracking and (shipper := start_shipper(plan.directory, root)) is not None:
            shippers[plan.name] = shipper
        try:
            return execute(plan, machine, cache_root(), watcher or _Silent(), command or "")
        except KeyboardInterrupt:
            log(f"interrupted; what is done is kept, and {same} goes on")
            raise
        finally:
            if plan.name in shippers:
                shippers[plan.name].close()

    def ended(plan: Plan, name: Path | str, outcome: Outcome) -> None:
        """Say why runs of a plan have no result, and how to go on."""
        if outcome.stopped:
            log(outcome.stopped)
        for line in failure_lines(plan.directory, [run.directory for run in plan.runs if not run.reused_from]):
            log(line)
        if not set(outcome.states) <= states.RESULTS:
            counts = ", ".join(f"{n} {state}" for state, n in sorted(outcome.states.items()))
            log(
                f"not complete: {counts}; {next_command('status', name, root)} shows each; "
                f"{next_step(outcome.states, same)}"
            )

    if tuning is not None and not tuning.is_done:
        sweep = with_failed_reset(tuning.plan) if retry else tuning.plan
        log(f"tuning first: {len(sweep.remaining)} runs of {sweep.name}")
        found = train(sweep)
        planned = make_plan(loaded, registry, root)
        if planned.tuning is None or not planned.tuning.is_done:
            ended(sweep, sweep.name, found)
            _finish_shipping(shippers, planned.name, found_by, root, patience, log)
            return Result(planned.directory, found.states, None, None)
    if retry:
        planned = with_failed_reset(planned)
    for note in (*planned.notes, *(family.words for family in planned.power)):
        log(f"note: {note}")
    outcome = train(planned)
    written = None
    if set(outcome.states) <= states.RESULTS or allow_partial:
        written = write_report(planned.directory, reports=reports, allow_partial=allow_partial)
        log(written.answer)
        log(f"report: {written.html}")
    ended(planned, found_by, outcome)
    _finish_shipping(shippers, planned.name, found_by, root, patience, log)
    answer = written.answer if written is not None else None
    return Result(planned.directory, outcome.states, written, answer)


def _finish_shipping(
    shippers: dict[str, ShipperProcess],
    name: str,
    experiment: Path | str,
    root: Path,
    seconds: float,
    log: Callable[[str], object],
) -> None:
    """Wait a limited time for MLflow, and say where the runs are or how to ship the rest."""
    until = time.monotonic() + QUIET_SECONDS + seconds
    for of, shipper in reversed(shippers.items()):
        sync = next_command("sync", experiment if of == name else of, root)
        missing = shipper.finish(sync, until, log)
        if missing is not None:
            log(missing)
        elif of == name:
            ui = next_command("ui", None, root)
            log(f"mlflow: {readable(shipper.uri)} ({ui} opens it, on a page that shows this study's charts)")


def write_report(
    experiment: Path | str, *, runs: Path | None = None, reports: Path | None = None, allow_partial: bool = False
) -> ReportPaths:
    """Write the report of an experiment, given as its file, its name or its folder of runs.

    A study with missing runs gets a report that says so on its face and ranks no incomplete
    variant, unless ``allow_partial`` is set.
    """
    from headtohead.report import writing

    folder = find_experiment(Path(experiment), runs_folder(experiment, runs))
    return writing.write_report(folder, reports_folder(folder.parent, reports), allow_partial=allow_partial)


def import_checkpoint(
    file: Path | str,
    *,
    recipe: str,
    name: str,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    runs: Path | None = None,
    force: bool = False,
    log: Callable[[str], object] = lambda line: None,
) -> Path:
    """Write the run directory of a state dict that a notebook saved, and return its path.

    Args:
        file: Written by ``torch.save(model.state_dict(), file)``.
        recipe: Of the notebook whose classes it is.
        name: Of the run, in ``runs/imported``.
        data: The sentence pairs that the notebook read, where it read a file.
        overrides: ``"model.heads=2"``: what neither checkpoint nor recipe tells.
        runs: Folder of run directories.
        force: Replace a run of that name.
        say: Receives the lines that a reader should see.

    Raises:
        HeadToHeadError: If the file is no state dict or does not fit, in one line.
    """
    root = runs_folder(given=runs)
    check_name(name)
    if not force:
        refuse_existing(name, root)
    registry = current()
    settings = [read_override(text) for text in overrides]
    found = read_checkpoint(Path(file), recipe, registry, Path(data) if data else None, settings)
    log(found.summary())
    pitfalls = [pitfall.name for pitfall in find_pitfalls(found.config, registry)]
    if pitfalls:
        log(f"pitfalls: {', '.join(pitfalls)}")
    for note in found.words.notes:
        log(f"note: {note}")
    return write_imported(found, name, root, registry)


def with_failed_reset(planned: Plan) -> Plan:
    """Reset the failed runs of a plan, and return the plan in which they are PLANNED."""
    chosen = [run for run in planned.runs if run.state in states.RETRYABLE and not run.reused_from]
    reset_failed(planned, chosen)
    runs = tuple(replace(r, state=states.PLANNED) if r in chosen else r for r in planned.runs)
    return replace(planned, runs=runs)


def find_device(asked: str, launcher: Launcher) -> str:
    """Return cpu or cuda.

    Raises:
        HeadToHeadError: If cuda is asked for and there is none where the stacks run.
    """
    if asked == "cpu":
        return asked
    gpus = launcher.gpus()
    if asked == "cuda" and not gpus:
        raise HeadToHeadError("device 'cuda' is not available here; use --device cpu")
    return "cuda" if gpus else "cpu"


def refuse_precision(planned: Plan, device: str) -> None:
    """Refuse bfloat16 where there is no GPU: on a CPU it would be slower and other.

    Raises:
        HeadToHeadError: Naming the first variant that asks for it.
    """
    for one in planned.variants:
        if device == "cpu" and one.config.train.precision == "bfloat16":
            raise HeadToHeadError(
                f"{one.slug}: train.precision 'bfloat16' needs a GPU, and the device is cpu; "
                "type --set train.precision=float32"
            )


class _Silent:
    def start(self, folders: object) -> None:
        pass

    def tick(self) -> None:
        pass

    def ended(self, folder: object, code: int) -> None:
        pass

    def close(self) -> None:
        pass


def results(experiment: Path | str, runs: Path | str | None = None) -> RunsTable:
    """Return one row per run of an experiment: axes, seed, state, costs and final metrics.

    Args:
        experiment: Its file, its name or its folder.
        runs: The runs folder; default: H2H_RUNS, else ``runs`` in the project root.

    Raises:
        HeadToHeadError: If nothing of the experiment has been run there.
    """
    from headtohead.analysis.results import RunsTable
    from headtohead.storage.frames import load_frames

    register(RunsTable)
    folder = find_experiment(Path(experiment), runs_folder(experiment, runs))
    return RunsTable.of(load_frames(folder))

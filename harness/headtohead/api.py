"""Python interface: the steps of the commands as functions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead.analysis.study import Analysis
from headtohead.config.entries import outside_entries
from headtohead.config.loading import MAX_RUNS, LoadedExperiment, load_file, load_text
from headtohead.config.project import next_command, reports_folder, runs_folder
from headtohead.config.yaml_text import dump
from headtohead.data import cache_root, prepare
from headtohead.errors import DiskError, HeadToHeadError, Interrupted
from headtohead.execution.exported import check_target, write_exported
from headtohead.execution.launching import find_device, make_launcher, refuse_precision
from headtohead.execution.loaded import LoadedRun, load
from headtohead.execution.progress import failure_lines, next_step
from headtohead.execution.repair import archive_runs, move_damaged_runs, move_stale_runs, with_reset
from headtohead.execution.scheduler import Machine, Outcome, execute, final_states, pending
from headtohead.planning.plan import Plan
from headtohead.planning.planner import make_plan
from headtohead.planning.replacing import dropped_note, find_replaced
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.paths import inside
from headtohead.storage.progress import experiment_file, find_experiment
from headtohead.storage.run_directory import RunDirectory, find_run
from headtohead.tracking import shipper
from headtohead.tracking.shipping import DEFAULT_LOGGERS, logger_entry
from headtohead.training.reference_points import save_reference_points

if TYPE_CHECKING:
    import pandas as pd

    from headtohead.analysis.results import RunsTable
    from headtohead.plugins.logger import Answer
    from headtohead.plugins.registry import Registry
    from headtohead.report.writing import ReportPaths
    from headtohead.storage.frames import Frames

__all__ = [
    "LoadedRun",
    "Result",
    "curves",
    "export",
    "load",
    "plan",
    "results",
    "run",
    "write_report",
]


_REST = "the same command without --only trains them, --allow-partial writes a report without them"


@dataclass(frozen=True)
class Result:
    """The outcome of `run`: the experiment's folder, the number of runs by state, the report and its answer."""

    experiment: Path
    states: Counter[str]
    report: ReportPaths | None
    answer: str | None

    @property
    def complete(self) -> bool:
        """Whether every run has a result."""
        return set(self.states) <= states.RESULTS

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import result_html

        return result_html(self.experiment, self.states, self.report)


def plan(
    experiment: Path | str | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    name: str | None = None,
    max_runs: int = MAX_RUNS,
    runs: Path | str | None = None,
    fresh: bool = False,
) -> Plan:
    """Return the plan of an experiment file against the runs folder, without training.

    Args:
        experiment: The experiment file, or its content as a dict.
        overrides: Overrides of the file's base, for example ``"model.d_model=64"``.
        seeds: Number of seeds; default: the file's.
        name: Label of a separate experiment named ``<file>-<name>``; the name of an experiment given as a dict.
        max_runs: Maximum number of runs.
        runs: Folder of run directories; default: ``runs`` in the project root of the file.
        fresh: Ignore existing runs.

    Raises:
        HeadToHeadError: If the file, the data or a plugin is invalid.
    """
    loaded, root = _load(experiment, overrides, seeds, max_runs, name, runs)
    return make_plan(loaded, loaded.load_plugins(), root, fresh=fresh)


def _load(
    experiment: Path | str | Mapping[str, Any],
    overrides: Sequence[str],
    seeds: int | None,
    max_runs: int,
    name: str | None,
    runs: Path | str | None,
) -> tuple[LoadedExperiment, Path]:
    """Return an experiment and its runs folder."""
    if not isinstance(experiment, Mapping):
        return load_file(experiment, overrides, seeds, max_runs, name), runs_folder(
            experiment, runs
        )
    if not name or "/" in name:
        raise HeadToHeadError(
            f"an experiment given as a dict needs a name, got {name!r}; type name='my-study'"
        )
    return load_text(
        dump(experiment), Path(f"{name}.yaml"), overrides, seeds, max_runs
    ), runs_folder(None, runs)


def run(
    experiment: Path | str | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    name: str | None = None,
    max_runs: int = MAX_RUNS,
    runs: Path | str | None = None,
    reports: Path | str | None = None,
    device: str = "auto",
    workers: int | None = None,
    threads: int | None = None,
    launcher: str = "local",
    launcher_options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    fresh: bool = False,
    retry: bool = False,
    repair: bool = False,
    stale: bool = False,
    only: Sequence[str] = (),
    tracking: bool = True,
    report: bool = True,
    loggers: Sequence[str] = (),
    allow_partial: bool = False,
    command: str | None = None,
    log: Callable[[str], object] = print,
) -> Result:
    """Train the runs of an experiment file, log them to MLflow and write the report.

    Args:
        experiment: The experiment file, or its content as a dict.
        overrides: Overrides of the file's base, for example ``"model.d_model=64"``.
        seeds: Number of seeds; default: the file's.
        name: Label of a separate experiment named ``<file>-<name>``; the name of an experiment given as a dict.
        max_runs: Maximum number of runs.
        runs: Folder of run directories; default: ``runs`` in the project root of the file.
        reports: Folder of reports; default: ``reports`` beside the runs folder.
        device: auto, cpu or cuda.
        workers: Number of stacks trained at the same time.
        threads: CPU threads per stack.
        launcher: Name of a registered launcher.
        launcher_options: Options of the launcher by name, such as the address of a cluster.
        timeout: Time limit per stack in seconds.
        fresh: Train anew; existing runs are moved to ``.archived``.
        retry: Retrain failed runs.
        repair: Verify the files of all finished runs and retrain damaged runs.
        stale: Retrain STALE runs: finished runs with changed code or plugins.
        only: Slugs of the variants to train; default: all. The report is written when all variants have results.
        report: Write the report.
        tracking: Log to MLflow while training.
        loggers: Names of registered loggers that log too, for example ``tensorboard``.
        allow_partial: Write the report even if runs are missing.
        command: Command line that is recorded in the experiment's record.
        log: Receives lines of text for the user.

    Raises:
        HeadToHeadError: If the input is invalid, a folder cannot be written, the disk is full, the overrides or
            seeds would replace results of the experiment, a plugin of finished runs has changed, or the report would
            replace a file that headtohead did not write.
    """
    loaded, root = _load(experiment, overrides, seeds, max_runs, name, runs)
    registry = loaded.load_plugins()
    for logger in loggers:
        if logger in DEFAULT_LOGGERS and not tracking:
            raise HeadToHeadError(
                f"--no-tracking and --logger {logger} (tracking and loggers in Python) exclude each other"
            )
    if tracking:
        loggers = (*DEFAULT_LOGGERS, *loggers)
    loggers = list(dict.fromkeys(loggers))
    for logger in loggers:
        logger_entry(logger).require()
    seconds_to_ship = shipper.shipping_seconds()
    chosen_launcher = make_launcher(launcher, launcher_options or {})
    kind = find_device(device, chosen_launcher)
    for option, given in (("--repair", repair), ("--stale", stale), ("--only", only)):
        if fresh and given:
            raise HeadToHeadError(f"--fresh trains every run anew; leave out {option}")
    ignored: set[str] = set()
    if repair:
        ignored |= {
            run for name in loaded.experiments for run in move_damaged_runs(inside(root, name), log)
        }
    planned = make_plan(
        loaded, registry, root, fresh=fresh, ignored=ignored, ready=chosen_launcher.warm
    )
    planned = planned.limited_to(only)
    look = len(planned.design.seeds) if planned.looks else None
    refuse_precision(planned, kind)
    if report:
        from headtohead.report.folder import report_folder

        report_folder(reports_folder(root, reports), planned.name)  # before anything is trained
    if reason := find_replaced(planned, stale=stale):
        raise HeadToHeadError(reason)
    tuning = planned.tuning
    parts = (planned,) if tuning is None or tuning.is_done else (tuning.plan, planned)
    machine = Machine(chosen_launcher, kind, workers, threads, timeout)
    _check_plugins(parts, machine, retrain=retry or stale, log=log)
    if dropped := dropped_note(planned):
        log(f"note: {dropped}")

    def plan_again(look: int | None) -> Plan:
        return make_plan(
            loaded, registry, root, ignored=ignored, reuse=not fresh, look=look
        ).limited_to(only)

    if stale:
        for part in (planned.tuning.plan, planned) if planned.tuning else (planned,):
            ignored |= move_stale_runs(part, log)
        planned = plan_again(look)
    if fresh:
        for experiment_name in loaded.experiments:
            archive_runs(inside(root, experiment_name))
    session = _Session(
        root=root,
        # The file does not identify an experiment with a label.
        target=planned.name if name or isinstance(experiment, Mapping) else experiment,
        reports=reports_folder(root, reports),
        loggers=loggers,
        seconds_to_ship=seconds_to_ship,
        # The same command with --fresh would train anew.
        same_command="the same command without --fresh" if fresh else "the same command",
        log=log,
    )
    tuning = planned.tuning
    if tuning is not None and not tuning.is_done:
        with session.shipped(tuning.plan):
            while tuning is not None and not tuning.is_done:  # again if the sweep is widened
                sweep = with_reset(tuning.plan, log, retry=retry)
                log(f"tuning first: {len(sweep.remaining)} runs of {sweep.name}")
                outcome = execute(sweep, machine, cache_root(), command or "")
                planned = plan_again(look)
                tuning = planned.tuning
                if not outcome.complete:
                    break
        if not outcome.complete:
            session.log_end(sweep, sweep.name, outcome)
            session.finish_shipping(planned.name)
            return Result(planned.directory, outcome.states, None, None)
    planned = with_reset(planned, log, retry=retry)
    for note in planned.notes:
        log(f"note: {note}")
    written = None
    # The shipper's last pass logs the report, so the report is written before the shipper is closed.
    with session.shipped(planned):
        outcome = execute(planned, machine, cache_root(), command or "")
        while (look := _next_look(planned, outcome, log)) is not None:
            planned = plan_again(look)
            outcome = execute(planned, machine, cache_root(), command or "")
        if report and (outcome.complete or allow_partial):
            _save_reference_points(planned, registry, log)
            from headtohead.report.trackers import tracked_answer
            from headtohead.report.writing import read_report, write_files

            file = planned.loaded.path  # which may have changed since it was read
            answered = read_report(planned.directory, allow_partial=allow_partial, file=file)
            written = write_files(answered, session.reports)
            session.answer = tracked_answer(answered, session.reports)
            for line in written.lines:
                log(line)
            log(f"report: {written.html}")
        elif not report:
            log(f"no report was written; {next_command('report', session.target, root)} writes it")
    if only and not outcome.complete:
        outcome.states = final_states(planned, planned.selected)
        log(f"{len(planned.variants) - len(set(only))} variants are left out by --only; {_REST}")
    session.log_end(planned, session.target, outcome)
    session.finish_shipping(planned.name)
    return Result(planned.directory, outcome.states, written, written.answer if written else None)


def _check_plugins(
    plans: Sequence[Plan], machine: Machine, *, retrain: bool, log: Callable[[str], object]
) -> None:
    """Check the variants with outside plugins that will train.

    Args:
        plans: The sweep, if there is one, and the comparison.
        machine: Determines the stacks.
        retrain: Whether runs with a final state train again.
        log: Receives lines of text for the user.
    """
    configs = [variant.config for plan in plans for variant in plan.variants]
    if not any(outside_entries(config) for config in configs):
        return
    from headtohead.testing.checks.as_trained import PlannedStack
    from headtohead.testing.checks.before_training import check_before_training

    stacks = []
    for plan in plans:
        runs = plan.selected if retrain else pending(plan)
        stacks += [PlannedStack.of(plan, members) for members in machine.stacks(plan, runs)]
    check_before_training(stacks, cache_root(), log)


def _save_reference_points(plan: Plan, registry: Registry, log: Callable[[str], object]) -> None:
    """Compute the reference points that an experiment lacks; a folder that cannot be written has none."""
    try:
        save_reference_points(
            plan.directory, lambda config: prepare(config, cache_root(), registry=registry)
        )
    except DiskError as error:
        log(
            f"note: the report has no reference points; cannot write to '{plan.directory}' ({error.strerror})"
        )


@dataclass
class _Session:
    """Logs the runs of a command to trackers and prints how to continue.

    ``target`` names the experiment in printed commands. After the report, the command waits for the loggers at most
    about ``seconds_to_ship``.
    """

    root: Path
    target: Path | str
    reports: Path
    loggers: Sequence[str]
    seconds_to_ship: float
    same_command: str
    log: Callable[[str], object]
    answer: Answer | None = None
    """The answer for the loggers, once the report is written."""
    shippers: list[tuple[str, shipper.ShipperProcess]] = field(default_factory=list)

    @contextmanager
    def shipped(self, plan: Plan) -> Iterator[None]:
        """Log the runs of an experiment to the loggers while they train."""
        started = (shipper.start_shipper(plan.directory, name) for name in self.loggers)
        processes = [process for process in started if process is not None]
        self.shippers = [(plan.name, process) for process in processes] + self.shippers
        try:
            yield
        except KeyboardInterrupt:
            self.log(f"interrupted; finished runs are kept, and {self.same_command} resumes")
            raise Interrupted from None
        finally:
            for process in processes:
                process.close(self.answer)

    def log_end(self, plan: Plan, name: Path | str, outcome: Outcome) -> None:
        """Print why runs of a plan have no result, and how to continue."""
        if outcome.stopped:
            self.log(outcome.stopped)
        for line in failure_lines(
            plan.directory, [run.directory for run in plan.runs if not run.reused_from]
        ):
            self.log(line)
        if not outcome.complete:
            counts = ", ".join(f"{n} {state}" for state, n in sorted(outcome.states.items()))
            self.log(
                f"not complete: {counts}; {next_command('status', name, self.root)} shows each; "
                f"{next_step(outcome.states, self.same_command)}"
            )

    def finish_shipping(self, name: str) -> None:
        """Wait a limited time for the shippers, and print where the runs are or how to log the rest."""
        until = time.monotonic() + shipper.QUIET_SECONDS + self.seconds_to_ship
        for shipped_name, process in self.shippers:
            target = self.target if shipped_name == name else shipped_name
            missing = process.finish(process.sync_command(target, self.root), until, self.log)
            if missing is not None:
                self.log(missing)
            elif shipped_name == name:
                self.log(process.logged_line(self.root))


def _next_look(planned: Plan, outcome: Outcome, log: Callable[[str], object]) -> int | None:
    """Return the number of seeds of the next look, or None if there is none or runs have no result."""
    if planned.looks is None or not outcome.complete:
        return None
    from headtohead.analysis.findings.design import looks_line
    from headtohead.storage.frames import load_frames

    status = Analysis(load_frames(planned.directory)).looks
    assert status is not None
    log(looks_line(status))
    return status.next


def write_report(
    experiment: Path | str,
    *,
    runs: Path | str | None = None,
    reports: Path | str | None = None,
    allow_partial: bool = False,
) -> ReportPaths:
    """Write the report of an experiment, given as its file, its name or its folder.

    If runs are missing, the report states this and does not rank incomplete variants, unless ``allow_partial``
    is set.
    """
    from headtohead.report import writing

    folder = find_experiment(Path(experiment), runs_folder(experiment, runs))
    return writing.write_report(
        folder,
        reports_folder(folder.parent, reports),
        allow_partial=allow_partial,
        file=experiment_file(experiment),
    )


def export(
    run: Path | str, folder: Path | str, *, runs: Path | str | None = None, force: bool = False
) -> list[Path]:
    """Write a finished run as a model folder that `load` reads without the study and the data; return its files.

    Args:
        run: The run's directory, its name, or an unambiguous prefix of its name.
        folder: The folder of ``model.safetensors``, ``config.json``, the vocabularies and the model card.
        runs: Folder of run directories.
        force: Replace the model in a folder that is not empty; other files stay.

    Raises:
        HeadToHeadError: If the run is not DONE or damaged, or the folder is not empty or cannot be written.
    """
    target = Path(folder)
    check_target(target, force=force)
    loaded = load(find_run(run, runs_folder(given=runs)))
    weights = {name: values[0] for name, values in loaded.model.state_dict().items()}
    return write_exported(target, loaded.record, weights, loaded.words, _model_card(loaded))


def model_card(run: Path | str, *, runs: Path | str | None = None) -> str:
    """Return the model card of a finished run in Markdown, as `export` writes it.

    Args:
        run: The run's directory, its name, or an unambiguous prefix of its name.
        runs: Folder of run directories.

    Raises:
        HeadToHeadError: If the run is not DONE or damaged.
    """
    return _model_card(load(find_run(run, runs_folder(given=runs))))


def _model_card(loaded: LoadedRun) -> str:
    from headtohead.report.model_card import model_card
    from headtohead.storage.frames import load_frames

    results, study = RunDirectory(loaded.path).results, loaded.path.parent
    assert results is not None
    frames = load_frames(study) if (study / EXPERIMENT).is_file() else None
    return model_card(loaded.record, results, frames, translates=loaded.can_translate)


def results(experiment: Path | str, *, runs: Path | str | None = None) -> RunsTable:
    """Return a table with a row per run of an experiment: axes, seed, state, costs and final metrics.

    Args:
        experiment: The experiment's file, name or folder.
        runs: The runs folder; default: H2H_RUNS, else ``runs`` in the project root.

    Raises:
        HeadToHeadError: If the runs folder has no runs of the experiment.
    """
    from headtohead.analysis.results import RunsTable

    table = RunsTable((frames := _frames(experiment, runs)).runs)
    table.frames = frames
    return table


def curves(experiment: Path | str, *, runs: Path | str | None = None) -> pd.DataFrame:
    """Return the training curves of an experiment in long format: a row per run, step and metric.

    The columns are run, variant, the axes, seed, step, epoch, metric and value. Curves of running and failed runs are
    included. A variant that equals another by construction has no runs of its own.

    Args:
        experiment: The experiment's file, name or folder.
        runs: The runs folder; default: H2H_RUNS, else ``runs`` in the project root.

    Raises:
        HeadToHeadError: If the runs folder has no runs of the experiment.
    """
    frames = _frames(experiment, runs)
    described = frames.runs[["variant", *frames.record.axes, "seed"]]
    table = frames.histories.astype({"run": object, "metric": object}).join(described, on="run")
    return table[["run", *described.columns, "step", "epoch", "metric", "value"]]


def _frames(experiment: Path | str, runs: Path | str | None) -> Frames:
    from headtohead.storage.frames import load_frames

    return load_frames(find_experiment(Path(experiment), runs_folder(experiment, runs)))

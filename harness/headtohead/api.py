"""Python interface: the steps of the commands as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead.config.loading import MAX_RUNS, LoadedExperiment, load_file, load_text
from headtohead.config.project import reports_folder, runs_folder
from headtohead.config.yaml_text import dump
from headtohead.errors import HeadToHeadError
from headtohead.execution.exported import check_target, write_exported
from headtohead.execution.launching import find_device, make_launcher
from headtohead.execution.loaded import LoadedRun, load
from headtohead.execution.scheduler import Machine
from headtohead.planning.plan import Plan
from headtohead.planning.planner import make_plan
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.progress import experiment_file, find_experiment
from headtohead.storage.run_directory import RunDirectory, find_run
from headtohead.study import ReportRequest, Result, Retraining, Study
from headtohead.tracking.command import CommandLoggers

if TYPE_CHECKING:
    import pandas as pd

    from headtohead.analysis.results import RunsTable
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
    loaded.load_plugins()
    return make_plan(loaded, root, fresh=fresh)


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
        loaded = load_file(experiment, overrides, seeds, max_runs, name)
        return loaded, runs_folder(experiment, runs)
    if not name or "/" in name:
        raise HeadToHeadError(
            f"an experiment given as a dict needs a name, got {name!r}; type name='my-study'"
        )
    loaded = load_text(dump(experiment), Path(f"{name}.yaml"), overrides, seeds, max_runs)
    return loaded, runs_folder(None, runs)


def run(  # noqa: PLR0913 - keyword-only options of the Python API
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
    loaded.load_plugins()
    chosen_launcher = make_launcher(launcher, launcher_options or {})
    chosen_device = find_device(device, chosen_launcher)
    reports_root = reports_folder(root, reports)
    study = Study(
        loaded=loaded,
        root=root,
        # The file does not identify an experiment with a label.
        target=loaded.name if name or isinstance(experiment, Mapping) else experiment,
        machine=Machine(chosen_launcher, chosen_device, workers, threads, timeout),
        retraining=Retraining(
            fresh=fresh, retry=retry, repair=repair, stale=stale, only=tuple(only)
        ),
        report=ReportRequest(reports_root, wanted=report, allow_partial=allow_partial),
        loggers=CommandLoggers.chosen(loggers, root, log, tracking=tracking),
        command=command or "",
        log=log,
    )
    study.validate()
    while step := study.next_step():
        study.run(step)
    return study.end()


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
    weights = {name: values[0].numpy() for name, values in loaded.model.state_dict().items()}
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

    results = RunDirectory(loaded.path).results
    assert results is not None
    experiment = loaded.path.parent
    frames = load_frames(experiment) if (experiment / EXPERIMENT).is_file() else None
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

    frames = _frames(experiment, runs)
    table = RunsTable(frames.runs)
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

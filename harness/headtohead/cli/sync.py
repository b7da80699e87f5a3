"""``h2h sync``: log missing runs to MLflow or to loggers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import (
    load_plugins,
    logger_option,
    plugin_option,
    reports_option,
    runs_option,
)
from headtohead_judge.output import echo

if TYPE_CHECKING:
    from headtohead.plugins.logger import Answer, Logger


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@runs_option
@reports_option
@click.option(
    "--uri",
    help="MLflow store; default: MLFLOW_TRACKING_URI, else a database beside the runs folder.",
)
@logger_option("Log to this tracker instead of MLflow")
@plugin_option
@click.option(
    "--allow-partial",
    is_flag=True,
    help="Rank variants with missing seeds in the logged answer, as h2h report does.",
)
def command(
    experiments: tuple[str, ...],
    runs: Path,
    reports: Path | None,
    uri: str | None,
    loggers: tuple[str, ...],
    allow_partial: bool,
) -> None:
    """Log missing runs to MLflow, of each EXPERIMENT or of all experiments in the runs folder.

    EXPERIMENT is a file, a name or a folder.
    Runs that the tracker already has are skipped; a retrained run is logged again.
    """
    from headtohead.config.project import reports_folder
    from headtohead.tracking.shipping import DEFAULT_LOGGERS, ship

    if loggers or click.get_current_context().meta.get("plugin_files"):
        load_plugins()
    entries = _entries(loggers or DEFAULT_LOGGERS, uri)
    reports_root = reports_folder(runs, reports)
    is_complete = True
    for folder in _folders(runs, experiments):
        answer = _answer(folder, reports_root, allow_partial=allow_partial)
        for name in entries:
            report = ship(folder, uri, logger=name, answer=answer, log=echo)
            line = report.line()
            if name not in DEFAULT_LOGGERS:
                line += f" ({name})"
            echo(line)
            for problem in (*report.failures, *report.notes):
                echo(f"  {problem}", err=True)
            if report.link is not None:
                echo(f"  {report.link}")
            is_complete &= report.complete
    for entry in entries.values():
        closing_line = entry.closing_line(runs, uri)
        if closing_line is not None:
            echo(closing_line)
    if not is_complete:
        raise SystemExit(1)


def _entries(names: tuple[str, ...], uri: str | None) -> dict[str, type[Logger]]:
    """Return the chosen loggers by name.

    Raises:
        HeadToHeadError: If a logger is unknown or lacks a package, or no logger accepts the address.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.tracking.shipping import DEFAULT_LOGGERS, logger_entry

    entries = {name: logger_entry(name) for name in dict.fromkeys(names)}
    for entry in entries.values():
        entry.require()
    if uri and not any(entry.accepts_uri for entry in entries.values()):
        default = DEFAULT_LOGGERS[0]
        raise HeadToHeadError(
            f"--uri is the address of {default}; leave it out, or add --logger {default}"
        )
    return entries


def _answer(folder: Path, reports_root: Path, *, allow_partial: bool) -> Answer | None:
    """Return the answer of an experiment; None and a note if its runs cannot be analysed.

    Raises:
        HeadToHeadError: If the record of the experiment is damaged, or the report's folder has a symbolic link.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.report.trackers import tracked_answer
    from headtohead.report.writing import read_report
    from headtohead.storage.experiment import ExperimentDirectory
    from headtohead.storage.paths import checked_path

    experiment = ExperimentDirectory.read(folder)
    checked_path(reports_root, experiment.name, tree=True)
    try:
        report = read_report(folder, allow_partial=allow_partial)
        return tracked_answer(report, reports_root)
    except HeadToHeadError as error:
        echo(f"  no answer: {error}", err=True)
        return None


def _folders(runs: Path, experiments: tuple[str, ...]) -> list[Path]:
    """Return the folders of experiments given by file, name or folder; without any, those of the runs folder."""
    from headtohead.errors import HeadToHeadError
    from headtohead.storage.experiment import experiment_folders
    from headtohead.storage.paths import checked_path
    from headtohead.storage.progress import find_experiment

    if experiments:
        return [find_experiment(Path(name), runs) for name in experiments]
    folders = [checked_path(runs, folder.name) for folder in experiment_folders(runs)]
    if not folders:
        raise HeadToHeadError(f"no experiments in '{runs}'; run h2h run EXPERIMENT first")
    return folders

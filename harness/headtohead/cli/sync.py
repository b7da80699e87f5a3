"""``h2h sync``: log missing runs to MLflow or to loggers."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import (
    load_plugins,
    logger_option,
    plugin_option,
    reports_option,
    runs_option,
)
from headtohead_judge.output import echo


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
def command(
    experiments: tuple[str, ...],
    runs: Path,
    reports: Path | None,
    uri: str | None,
    loggers: tuple[str, ...],
) -> None:
    """Log missing runs to MLflow, of each EXPERIMENT or of all experiments in the runs folder.

    EXPERIMENT is a file, a name or a folder.
    Runs that the tracker already has are skipped; a retrained run is logged again.
    """
    from headtohead.config.project import default_uri, next_command, readable
    from headtohead.errors import HeadToHeadError
    from headtohead.tracking.shipping import MLFLOW, require, ship

    if loggers:
        load_plugins()
    chosen = dict.fromkeys(loggers or (MLFLOW,))
    for logger in chosen:
        require(logger)
    if uri and MLFLOW not in chosen:
        raise HeadToHeadError("--uri is the store of MLflow; leave it out, or add --logger mlflow")
    is_complete = True
    for folder in _folders(runs, experiments):
        for logger in chosen:
            report = ship(folder, uri, logger=logger, reports=reports)
            echo(report.line() + (f" ({logger})" if logger != MLFLOW else ""))
            for line in (*report.failures, *report.notes):
                echo(f"  {line}", err=True)
            if report.link is not None:
                echo(f"  {report.link}")
            is_complete &= report.complete
    uri = uri or default_uri(runs)
    if MLFLOW in chosen and not uri.startswith("http"):
        ui = next_command("ui", None, runs)
        echo(f"store: {readable(uri)}; the links require a running {ui}")
    if not is_complete:
        raise SystemExit(1)


def _folders(runs: Path, experiments: tuple[str, ...]) -> list[Path]:
    """Return the folders of experiments given by file, name or folder; without any, those of the runs folder."""
    from headtohead.errors import HeadToHeadError
    from headtohead.storage.experiment import experiment_folders
    from headtohead.storage.paths import inside
    from headtohead.storage.progress import find_experiment

    if experiments:
        return [find_experiment(Path(name), runs) for name in experiments]
    known = [inside(runs, folder.name) for folder in experiment_folders(runs)]
    if not known:
        raise HeadToHeadError(f"no experiments in '{runs}'; run h2h run EXPERIMENT first")
    return known

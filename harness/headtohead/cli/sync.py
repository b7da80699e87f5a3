"""``h2h sync``: log missing runs to MLflow or to loggers."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import logger_option, plugin_option, reports_option, runs_option
from headtohead.cli.output import echo


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@runs_option
@reports_option
@click.option("--uri", help="MLflow store; default: MLFLOW_TRACKING_URI, else a database beside the runs folder.")
@logger_option
@plugin_option
def command(
    experiments: tuple[str, ...],
    runs_root: Path,
    reports_root: Path | None,
    uri: str | None,
    loggers: tuple[str, ...],
    plugin_files: tuple[Path, ...],
) -> None:
    """Log missing runs to MLflow, of each EXPERIMENT or of all experiments in the runs folder.

    EXPERIMENT is a file, a name or a folder.
    With --logger, log to these loggers instead. The command is idempotent: a run is never logged twice.
    """
    if loggers:
        _send_to_loggers(_folders(runs_root, experiments), loggers, plugin_files)
        return
    from headtohead.config.project import next_command
    from headtohead.tracking import environment
    from headtohead.tracking.serving import server_of
    from headtohead.tracking.shipping import ship
    from headtohead.tracking.store import default_uri, readable

    environment.require(str(runs_root))
    uri = uri or default_uri(runs_root)
    incomplete = False
    for folder in _folders(runs_root, experiments):
        report = ship(folder, uri, reports_root=reports_root)
        echo(report.line())
        for line in (*report.failures, *report.notes):
            echo(f"  {line}", err=True)
        echo(f"  {report.link(server_of(uri))}")
        incomplete |= not report.complete
    if not uri.startswith("http"):
        ui = next_command("ui", None, runs_root)
        echo(f"store: {readable(uri)}; the links require a running {ui}")
    if incomplete:
        raise SystemExit(1)


def _send_to_loggers(folders: list[Path], loggers: tuple[str, ...], plugin_files: tuple[Path, ...]) -> None:
    """Log the missing runs of experiments to loggers; exit with 1 if a run cannot be logged."""
    from headtohead.plugins.registry import use_files
    from headtohead.tracking.loggers import send_all

    registry = use_files(plugin_files)
    for logger in loggers:
        registry.logger(logger).require()
    incomplete = False
    for folder in folders:
        for logger in dict.fromkeys(loggers):
            sent = send_all(folder, logger)
            failed = f", {len(sent.failures)} failed" if sent.failures else ""
            echo(f"{folder.name}: {sent.shipped} logged to {logger}{failed}")
            for line in sent.failures:
                echo(f"  {line}", err=True)
            incomplete |= bool(sent.failures)
    if incomplete:
        raise SystemExit(1)


def _folders(runs_root: Path, experiments: tuple[str, ...]) -> list[Path]:
    """Return the folders of experiments given by file, name or folder; without any, those of the runs folder."""
    from headtohead.errors import HeadToHeadError
    from headtohead.storage.experiment import EXPERIMENT
    from headtohead.storage.paths import inside
    from headtohead.storage.progress import find_experiment

    if experiments:
        return [find_experiment(Path(name), runs_root) for name in experiments]
    known = sorted(path.parent.name for path in runs_root.glob(f"*/{EXPERIMENT}"))
    if not known:
        raise HeadToHeadError(f"no experiments in '{runs_root}'; run h2h run EXPERIMENT first")
    return [inside(runs_root, name) for name in known]

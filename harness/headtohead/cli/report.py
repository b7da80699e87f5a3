"""``h2h report``: analyse run directories and write the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import experiment_argument, reports_option, runs_option
from headtohead.cli.output import echo

if TYPE_CHECKING:
    from headtohead.report.writing import ReportPaths


@click.command()
@experiment_argument
@runs_option
@reports_option
@click.option("--allow-partial", is_flag=True, help="Rank variants with missing seeds; the report marks them.")
@click.option(
    "--from-mlflow", "store", metavar="URI", help="Read the runs from an MLflow store instead of the runs folder."
)
def command(
    experiment: Path, runs_root: Path, reports_root: Path | None, allow_partial: bool, store: str | None
) -> None:
    """Write the report of EXPERIMENT, a file, a name or a folder."""
    from headtohead.config.project import reports_folder

    root = reports_folder(runs_root, reports_root)
    if store is None:
        from headtohead.report.writing import write_report
        from headtohead.storage.progress import find_experiment

        folder = find_experiment(experiment, runs_root)
        paths = write_report(folder, root, allow_partial=allow_partial)
    else:
        paths = _from_store(experiment, store, root, allow_partial)
    echo(paths.answer, *paths.cautions)
    echo(f"report:   {paths.html}")
    echo(f"markdown: {paths.markdown}")
    echo(f"table:    {paths.csv}")


def _from_store(experiment: Path, store: str, reports_root: Path, allow_partial: bool) -> ReportPaths:
    """Rebuild the run directories in a temporary folder and write the report from them."""
    from headtohead import files
    from headtohead.report.writing import write_report
    from headtohead.tracking import materialise
    from headtohead.tracking.store import readable

    with files.scratch_folder() as scratch:
        folder = materialise(store, _name(experiment), scratch)
        return write_report(folder, reports_root, allow_partial=allow_partial, source=f"MLflow, {readable(store)}")


def _name(experiment: Path) -> str:
    """Return the name of an experiment that is given as its file, name or folder."""
    if experiment.suffix in (".yaml", ".yml"):
        from headtohead.config.loading import experiment_name

        return experiment_name(experiment)
    return experiment.name

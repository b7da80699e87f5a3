"""``h2h report``: analyse run directories and write the report."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import (
    experiment_argument,
    format_option,
    load_plugins,
    plugin_option,
    reports_option,
    runs_option,
)
from headtohead_judge.output import echo, echo_text


@click.command()
@experiment_argument
@runs_option
@reports_option
@plugin_option
@click.option(
    "--allow-partial", is_flag=True, help="Rank variants with missing seeds; the report marks them."
)
@format_option(
    "Print instead of writing the report; json: the answer, as in answer.json; latex: the table of variants.",
    "json",
    "latex",
)
@click.option(
    "--figures",
    "figure_formats",
    type=click.Choice(["svg", "pdf", "png"]),
    multiple=True,
    help="Format of the figures in the report's folder; SVG is always written. Repeatable.",
)
def command(
    experiment: Path,
    runs: Path,
    reports: Path | None,
    allow_partial: bool,
    form: str,
    figure_formats: tuple[str, ...],
) -> None:
    """Write the report of EXPERIMENT, a file, a name or a folder."""
    from headtohead.config.project import reports_folder
    from headtohead.errors import HeadToHeadError
    from headtohead.report.answer_file import answer_file
    from headtohead.report.score_table import score_table
    from headtohead.report.writing import read_report, write_files
    from headtohead.storage.progress import experiment_file, find_experiment

    if form != "text" and figure_formats:
        raise HeadToHeadError(f"--figures writes the report; leave out --format {form}")
    if click.get_current_context().meta.get("plugin_files"):
        load_plugins()  # for the metrics of its datasets
    folder = find_experiment(experiment, runs)
    file = experiment_file(experiment)
    report = read_report(folder, allow_partial=allow_partial, file=file)
    if form == "json":
        echo_text(answer_file(report))
        return
    if form == "latex":
        echo_text(score_table(report))
        return
    further = [name for name in figure_formats if name != "svg"]
    paths = write_files(report, reports_folder(runs, reports), further)
    echo(*paths.lines)
    echo(f"report:   {paths.html}", f"markdown: {paths.markdown}", f"table:    {paths.csv}")
    if figure_formats:
        echo(f"figures:  {paths.folder / 'figures'}")

"""``h2h export``: write a run as a model folder for other people."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option, runs_option
from headtohead_judge.output import echo


@click.command("export")
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--force",
    is_flag=True,
    help="Replace the model in a folder that is not empty; other files stay.",
)
@runs_option
@plugin_option
def command(run: str, folder: Path, force: bool, runs: Path) -> None:
    """Write RUN, a run's directory or a prefix of its name, to FOLDER: weights, configuration, words, model card.

    headtohead.load(FOLDER) loads it without the study and the data.
    """
    from headtohead import api

    load_plugins()
    for file in api.export(run, folder, runs=runs, force=force):
        echo(file)
    echo("", f'load: headtohead.load("{folder}") in Python')

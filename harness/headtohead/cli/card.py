"""``h2h card``: the model card of a run."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option, run_argument, runs_option
from headtohead.cli.output import echo_text


@click.command("card")
@run_argument
@runs_option
@plugin_option
def command(run: str, runs: Path) -> None:
    """Print the model card of RUN, a run's directory or a prefix of its name, in Markdown."""
    from headtohead import api

    load_plugins()
    echo_text(api.card(run, runs=runs))

"""``h2h reproduce``: retrain a finished run and compare weights and scores."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option, run_argument, runs_option
from headtohead_judge.output import echo


@click.command("reproduce")
@run_argument
@runs_option
@plugin_option
def command(run: str, runs: Path) -> None:
    """Retrain the stack of RUN with the same members, threads and device, and compare the results.

    RUN is a run's directory or a prefix of its name. Exit code 0 if every weight and score is bit-for-bit equal,
    else 1.
    """
    from headtohead.execution.reproduce import reproduce

    load_plugins()
    is_equal, summary = reproduce(run, runs)
    echo(summary)
    sys.exit(0 if is_equal else 1)

"""``h2h rerun``: train a finished run again in the same way, and compare."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headtohead.cli.options import plugin_option, runs_option


@click.command("rerun")
@click.argument("run")
@runs_option
@plugin_option
def command(run: str, runs_root: Path, plugin_files: tuple[Path, ...]) -> None:
    """Train the stack of RUN again, with the same members, threads and device, and compare.

    Exit code 0 if every weight and score is equal to the last bit, 1 if not.
    """
    from headtohead.cli.progress import make_watcher
    from headtohead.execution.reproduce import repeat
    from headtohead.plugins.registry import use_files

    use_files(plugin_files)
    comparison = repeat(run, runs_root, make_watcher())
    click.echo(comparison.words)
    sys.exit(0 if comparison.equal else 1)

"""``h2h show``: a run's state, configuration, scores and files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headtohead.cli.options import (
    format_option,
    load_plugins,
    plugin_option,
    run_argument,
    runs_option,
)
from headtohead_judge.output import echo, echo_json, echo_text


@click.command("show")
@run_argument
@runs_option
@plugin_option
@format_option(
    "json: the run's records; markdown: the model card, as h2h export writes it.",
    "json",
    "markdown",
)
def command(run: str, runs: Path, form: str) -> None:
    """Show RUN, a run's directory or a prefix of its name: state, scores, files, configuration, how to load it.

    STALE: a plugin, a file or variable that it reads, or a data file has changed since the run was planned.
    """
    if form == "markdown":
        from headtohead import api

        load_plugins()
        echo_text(api.model_card(run, runs=runs))
        return
    from headtohead.storage.leases import observe
    from headtohead.storage.run_directory import RunDirectory, find_run
    from headtohead.storage.run_files import disk_usage
    from headtohead.storage.staleness import stale_run

    path = find_run(run, runs)
    status = observe(path)
    directory = RunDirectory(path, known=status)
    record = directory.record
    results = directory.results
    metrics = dict(results.metrics) if results else {}
    sizes: dict[str, int] = {}
    for file in sorted(directory.path.iterdir()):
        if not file.name.startswith("."):
            sizes[file.name], _ = disk_usage(file)
    shown = {
        "run": record.model_dump(mode="json"),
        "state": status.state,
        "stale": stale_run(directory),
        "status": status.model_dump(mode="json"),
        "metrics": metrics,
        "files": sizes,
    }
    if form == "json":
        echo_json(shown)
        return
    echo(
        f"{record.title}, seed {record.seed}: {status.state} at step {status.step} of {record.steps}"
    )
    if status.reason:
        echo(f"reason: {status.reason}")
    _print_details(directory.path, shown)
    if results:
        name = directory.path.name
        echo("", f'load: headtohead.load("{name}") in Python, or h2h generate {name} "a sentence"')


def _print_details(folder: Path, shown: Mapping[str, Any]) -> None:
    """Print what ``--format json`` prints, as text: staleness, origin, scores, files and configuration."""
    import yaml

    from headtohead.storage.metrics import show
    from headtohead.storage.run_files import show_size

    run = shown["run"]
    metrics = shown["metrics"]
    if shown["stale"]:
        echo(f"STALE: {'; '.join(shown['stale'])}")
    echo(
        f"experiment: {run['experiment']}",
        f"run hash: {run['run_hash']}",
        f"directory: {folder}",
        "",
        "scores",
    )
    for name, value in sorted(metrics.items()):
        echo(f"  {name}: {show(value, name)}")
    if not metrics:
        echo("  none: only runs that are DONE have scores")
    echo("", "files")
    for name, size in shown["files"].items():
        echo(f"  {name}: {show_size(size)}")
    echo("", "configuration")
    written = yaml.safe_dump(run["config"], sort_keys=False)
    echo_text("".join(f"  {line}\n" for line in written.splitlines()))

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
from headtohead_judge.output import echo, echo_json, echo_text, print_table


@click.command("show")
@run_argument
@runs_option
@plugin_option
@click.option("--config", "only_config", is_flag=True, help="Print the configuration as YAML.")
@format_option(
    "json: the run's records; markdown: the model card, as h2h export writes it.",
    "json",
    "markdown",
)
def command(run: str, runs: Path, only_config: bool, form: str) -> None:
    """Show RUN, a run's directory or a prefix of its name: state, files, how to load it, scores.

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
    directory = RunDirectory(path, observed_status=status)
    record = directory.record
    if only_config:
        from headtohead.config.yaml_text import dump

        echo_text(dump(record.config.model_dump(mode="json")))
        return
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


def _print_details(folder: Path, shown: Mapping[str, Any]) -> None:
    """Print what ``--format json`` prints, as text, except for the configuration; the scores last."""
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
    )
    files = [f"{name} ({show_size(size)})" for name, size in shown["files"].items()]
    echo(f"files: {', '.join(files)}", f"configuration: h2h show {folder.name} --config")
    if not metrics:
        echo("scores: none; only runs that are DONE have scores")
        return
    echo(
        f'load: headtohead.load("{folder.name}") in Python, or h2h generate {folder.name} "a sentence"'
    )
    echo("")
    rows = [[name, show(value, name)] for name, value in sorted(metrics.items())]
    print_table(["score", "value"], rows, right=(1,))

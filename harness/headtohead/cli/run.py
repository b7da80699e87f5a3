"""``h2h run``: plan, train, ship, report, answer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from headtohead.cli.options import (
    experiment_argument,
    launcher_options,
    max_runs_option,
    name_option,
    plugin_option,
    read_launcher_options,
    reports_option,
    runs_option,
    seeds_option,
    set_option,
)


@click.command("run")
@experiment_argument
@set_option
@seeds_option
@name_option
@max_runs_option
@runs_option
@reports_option
@plugin_option
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="auto: cuda where there is one.",
)
@click.option("--workers", type=click.IntRange(1), help="Stacks trained at the same time.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads of each.")
@click.option(
    "--launcher", default="local", show_default=True, help="Where stacks run: local, ray, slurm, or a plugin's."
)
@click.option("--address", metavar="HOST:PORT", help="The cluster, for launchers that have one.")
@launcher_options
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Longest time for one stack."
)
@click.option("--fresh", is_flag=True, help="Train anew; earlier runs are moved aside.")
@click.option("--retry", is_flag=True, help="Start runs again that failed.")
@click.option("--no-tracking", is_flag=True, help="Ship nothing to MLflow now; h2h sync does.")
@click.option("--allow-partial", is_flag=True, help="Report although runs are missing.")
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    seeds: int | None,
    label: str | None,
    max_runs: int,
    runs_root: Path,
    reports_root: Path | None,
    plugin_files: tuple[Path, ...],
    device: str,
    workers: int | None,
    threads: int | None,
    launcher: str,
    address: str | None,
    launcher_options: tuple[str, ...],
    timeout: float | None,
    fresh: bool,
    retry: bool,
    no_tracking: bool,
    allow_partial: bool,
) -> None:
    """Train what EXPERIMENT asks for, and answer its question.

    Runs that are done are not trained again; an interrupted study goes on where it was.
    """
    from headtohead import api
    from headtohead.cli.progress import make_watcher
    from headtohead.plugins.registry import use_files

    use_files(plugin_files)
    result = api.run(
        experiment,
        overrides=overrides,
        seeds=seeds,
        name=label,
        max_runs=max_runs,
        runs=runs_root,
        reports=reports_root,
        device=device,
        workers=workers,
        threads=threads,
        launcher=launcher,
        launcher_options=read_launcher_options(launcher_options, address),
        timeout=timeout,
        fresh=fresh,
        retry=retry,
        tracking=not no_tracking,
        allow_partial=allow_partial,
        watcher=make_watcher(),
        command=_command(experiment, runs_root),
        log=click.echo,
    )
    sys.exit(0 if result.complete else 1)


def _command(experiment: Path, runs_root: Path) -> str:
    """Return the command as it is typed in the project root."""
    from headtohead.config.project import in_project

    words = [in_project(experiment, runs_root) if word == str(experiment) else word for word in sys.argv[1:]]
    return shlex.join(["h2h", *words])

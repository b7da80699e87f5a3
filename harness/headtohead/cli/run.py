"""``h2h run``: plan and train an experiment, log it to MLflow and write its report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from headtohead.cli.options import (
    FiniteRange,
    load_plugins,
    logger_option,
    plan_options,
    plugin_option,
    reports_option,
)
from headtohead_judge.output import echo, echo_on_terminal

LOCAL = "local"
"""The launcher with a server."""

FOLDER_OPTIONS = ("--runs", "--reports")


def _launcher_options(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Any]:
    """Return the launcher's options by name."""
    options: dict[str, Any] = {}
    for text in texts:
        from headtohead.config.yaml_text import parse_assignment

        name, value = parse_assignment(
            text, "--launcher-option", "NAME=VALUE, such as partition=gpu"
        )
        options[name] = value
    return options


@click.command("run")
@plan_options
@reports_option
@plugin_option
@click.option(
    "--device",
    metavar="[auto|cpu|cuda]",
    default="auto",
    show_default=True,
    help="auto: cuda if available, else cpu.",
)
@click.option(
    "--workers", type=click.IntRange(1), help="Number of stacks trained at the same time."
)
@click.option("--threads", type=click.IntRange(1), help="CPU threads per stack.")
@click.option(
    "--launcher",
    default=LOCAL,
    show_default=True,
    help="Launcher of the stacks: local, inline, ray, slurm, or a plugin's.",
)
@click.option(
    "--launcher-option",
    "launcher_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_launcher_options,
    help="Launcher option; `h2h plugins NAME` lists the options of a launcher.",
)
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit per stack.",
)
@click.option("--fresh", is_flag=True, help="Train anew; existing runs are moved to .archived.")
@click.option("--retry", is_flag=True, help="Retrain failed runs.")
@click.option(
    "--repair", is_flag=True, help="Verify the files of finished runs and retrain damaged runs."
)
@click.option("--stale", is_flag=True, help="Retrain finished runs with changed plugin code.")
@click.option(
    "--only",
    multiple=True,
    metavar="VARIANT",
    help="Train only this variant; h2h plan prints its name below --only. Repeatable. A sweep (tune) has all variants.",
)
@click.option("--no-tracking", is_flag=True, help="Do not log to MLflow; h2h sync can do it later.")
@click.option("--no-report", is_flag=True, help="Do not write the report; h2h report writes it.")
@logger_option("Also log to this tracker")
@click.option("--allow-partial", is_flag=True, help="Write the report even if runs are missing.")
def command(experiment: Path, no_tracking: bool, no_report: bool, **options: Any) -> None:
    """Train the runs of EXPERIMENT, write the report and print the answer.

    Finished runs are not retrained. After an interruption, the same command resumes. With --only, the report is
    written when the other variants have results too.

    --launcher inline trains in this process, where a debugger works in plugins.
    """
    from headtohead.config.loading import load_file
    from headtohead.errors import HeadToHeadError

    if no_report and options["allow_partial"]:
        raise HeadToHeadError("--no-report writes no report; leave out --allow-partial")
    plan = {name: options[name] for name in ("overrides", "seeds", "max_runs")}
    # The line is printed, and errors of the file are raised, before torch is loaded, which takes seconds.
    loaded = load_file(experiment, label=options["name"], **plan)
    echo_on_terminal(loaded.heading)
    start_server(loaded.name, options)
    from headtohead import api

    load_plugins()
    result = api.run(
        experiment,
        tracking=not no_tracking,
        report=not no_report,
        command=recorded_command(experiment, options["runs"]),
        log=echo,
        **options,
    )
    sys.exit(0 if result.complete else 1)


def start_server(name: str, options: Mapping[str, Any]) -> None:
    """Start the server of the local launcher, unless the study is finished.

    The server and this process then import torch at the same time.

    Args:
        name: The name of the experiment.
        options: The options of the command by name.

    Raises:
        HeadToHeadError: If the folder of the runs is or contains a symbolic link.
    """
    from headtohead.execution.local import LocalLauncher
    from headtohead.storage.paths import checked_path
    from headtohead.storage.progress import has_all_results

    if options["launcher"] != LOCAL:
        return
    retrains = options["fresh"] or options["stale"] or options["repair"]
    if retrains or not has_all_results(checked_path(options["runs"], name)):
        LocalLauncher().warm()


def recorded_command(experiment: Path, runs: Path) -> str:
    """Return the command line without folders of this machine, and with the experiment's path in the project."""
    from headtohead.config.project import in_project

    kept = ["h2h"]
    for before, word in pairwise(sys.argv):
        option, _, _ = word.partition("=")
        if before in FOLDER_OPTIONS or option in FOLDER_OPTIONS:
            continue
        if word == str(experiment):
            word = in_project(experiment, runs)
        kept.append(word)
    return shlex.join(kept)

"""``h2h run``: plan and train an experiment, log it to MLflow and write its report."""

from __future__ import annotations

import shlex
import sys
from itertools import pairwise
from pathlib import Path

import click
from click.core import ParameterSource

from headtohead.cli.options import (
    launcher_options,
    logger_option,
    plan_options,
    plugin_option,
    read_launcher_options,
    reports_option,
)
from headtohead.cli.output import echo

TRAINING_ONLY = (
    *("seeds", "reports_root", "workers", "launcher", "address", "launcher_options", "timeout"),
    *("fresh", "retry", "repair", "stale", "no_tracking", "no_report", "loggers", "allow_partial"),
)
"""Options that do not apply to --try."""


@click.command("run")
@plan_options
@reports_option
@plugin_option
@click.option(
    "--device", metavar="[auto|cpu|cuda]", default="auto", show_default=True, help="auto: cuda if available, else cpu."
)
@click.option("--workers", type=click.IntRange(1), help="Number of stacks trained at the same time.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads per stack.")
@click.option(
    "--launcher", default="local", show_default=True, help="Launcher of the stacks: local, ray, slurm, or a plugin's."
)
@click.option("--address", metavar="HOST:PORT", help="Address of the cluster, for launchers with this option.")
@launcher_options
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Time limit per stack.")
@click.option("--fresh", is_flag=True, help="Train anew; existing runs are moved to .archived.")
@click.option("--retry", is_flag=True, help="Retrain failed runs.")
@click.option("--repair", is_flag=True, help="Verify the files of finished runs and retrain damaged runs.")
@click.option("--stale", is_flag=True, help="Retrain finished runs with changed plugin code.")
@click.option("--only", multiple=True, metavar="VARIANT", help="Train only this variant of h2h plan; repeatable.")
@click.option("--try", "trial", is_flag=True, help="Train a few steps in this process, in a folder of its own.")
@click.option("--steps", type=click.IntRange(1), show_default="20", help="Steps of each variant with --try.")
@click.option("--no-tracking", is_flag=True, help="Do not log to MLflow; h2h sync can do it later.")
@click.option("--no-report", is_flag=True, help="Do not write the report; h2h report writes it.")
@logger_option
@click.option("--allow-partial", is_flag=True, help="Write the report even if runs are missing.")
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
    repair: bool,
    stale: bool,
    only: tuple[str, ...],
    trial: bool,
    steps: int | None,
    no_tracking: bool,
    no_report: bool,
    loggers: tuple[str, ...],
    allow_partial: bool,
) -> None:
    """Train the runs of EXPERIMENT, write the report and print the answer.

    Finished runs are not retrained. After an interruption, the same command resumes. With --only, the report is
    written when the other variants have results too.

    --try trains the first seed of each variant for a few steps in this process and prints loss and speed. A debugger
    works in plugins, and errors have a full traceback. Only the folder .try in the runs folder is changed.
    """
    from headtohead.cli.stored_answer import StoredAnswer
    from headtohead.errors import HeadToHeadError

    answer = StoredAnswer(runs_root)
    if not (trial or fresh or retry or repair or stale) and answer.print():
        return

    from headtohead import api
    from headtohead.cli.progress import make_watcher
    from headtohead.plugins.registry import use_files

    if trial:
        use_files(plugin_files)
        _refuse_beside_try()
        api.trial(
            experiment,
            only=only,
            steps=steps or 20,
            overrides=overrides,
            name=label,
            max_runs=max_runs,
            runs=runs_root,
            device=device,
            threads=threads,
            log=echo,
        )
        return
    if steps is not None:
        raise HeadToHeadError("--steps requires --try; set train.steps with --set train.steps=N")
    if no_report and allow_partial:
        raise HeadToHeadError("--no-report writes no report; leave out --allow-partial")
    with answer.recorded():
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
            repair=repair,
            stale=stale,
            only=only,
            tracking=not no_tracking,
            report=not no_report,
            loggers=loggers,
            allow_partial=allow_partial,
            watcher=make_watcher(),
            command=recorded_command(experiment, runs_root),
            log=echo,
        )
    if result.complete and result.shipped:
        answer.store()
    sys.exit(0 if result.complete else 1)


def _refuse_beside_try() -> None:
    """Raise an error for options that a trial does not have."""
    from headtohead.errors import HeadToHeadError

    context = click.get_current_context()
    for name in TRAINING_ONLY:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            raise HeadToHeadError(f"--try trains a few steps in this process; leave out {option}")


def recorded_command(experiment: Path, runs_root: Path) -> str:
    """Return the command line without folders of this machine, and with the experiment's path in the project."""
    from headtohead.config.project import in_project

    words = [in_project(experiment, runs_root) if word == str(experiment) else word for word in sys.argv[1:]]
    kept = [
        word
        for before, word in pairwise(["h2h", *words])
        if not {before, word.partition("=")[0]} & {"--runs", "--reports"}
    ]
    return shlex.join(["h2h", *kept])

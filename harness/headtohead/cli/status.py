"""``h2h status``: the state of every run of an experiment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import experiment_argument, format_option, runs_option
from headtohead.storage import states
from headtohead_judge.output import echo, echo_json, print_table

if TYPE_CHECKING:
    from headtohead.storage.progress import ExperimentProgress, RunProgress


@click.command()
@experiment_argument
@runs_option
@format_option("json: one record per run.", "json")
def command(experiment: Path, runs: Path, form: str) -> None:
    """Show the state of every run of EXPERIMENT, a file, a name or a folder."""
    from headtohead.storage.progress import experiment_file, find_experiment, read_progress

    folder = find_experiment(experiment, runs)
    progress = read_progress(folder, experiment_file(experiment))
    if form == "json":
        records = [run.__dict__ for run in progress.runs]
        echo_json({"name": progress.record.name, "stale": progress.stale, "runs": records})
    else:
        _print_text(progress, folder)


def _print_text(progress: ExperimentProgress, folder: Path) -> None:
    counts = Counter(run.state for run in progress.runs)
    shown = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    echo(f"{progress.record.name}: {progress.record.question}")
    echo(f"{len(progress.runs)} runs: {shown}")
    if progress.stale:
        echo(f"STALE: {'; '.join(progress.stale)}")
    seeds: dict[int, None] = {}  # in order
    variants: dict[str, dict[int, RunProgress]] = {}
    for run in progress.runs:
        seeds[run.seed] = None
        variants.setdefault(run.variant, {})[run.seed] = run
    rows = []
    for slug, runs in variants.items():
        cells = [_cell(runs.get(seed)) for seed in seeds]
        rows.append([slug, *cells])
    echo()
    print_table(["variant", *(f"seed {seed}" for seed in seeds)], rows)
    for variant in progress.record.variants:
        if variant.equal_to:
            echo(f"{variant.slug} = {variant.equal_to} by construction")
    _print_unfinished(progress, folder)


def _cell(run: RunProgress | None) -> str:
    """Return the state of a run, or how far it is if it runs."""
    from headtohead.storage.progress import duration

    if run is None:
        return "-"
    if run.state != states.RUNNING:
        return "reused" if run.reused_from else run.state
    text = str(run.step)
    if run.steps:
        text += f"/{run.steps}"
    if run.seconds_left is not None:
        text += f", {duration(run.seconds_left)} left"
    return text


def _print_unfinished(progress: ExperimentProgress, folder: Path) -> None:
    from headtohead.execution.progress import failure_lines, next_step

    stopped = [run for run in progress.runs if run.state in states.ABNORMAL]
    if stopped:
        echo("", "without a complete result:")
    for run in stopped:
        line = f"  {run.directory} {run.state} at step {run.step}"
        if run.reason:
            line += f": {run.reason}"
        echo(line)
    for line in failure_lines(folder, [run.directory for run in stopped]):
        echo(line)
    step = next_step(Counter(run.state for run in stopped), "the same h2h run")
    if step:
        echo(step)

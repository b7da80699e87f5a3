"""``h2h status``: the state of every run of an experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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
    counts = Counter(_state(run) for run in progress.runs)
    shown = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    echo(f"{progress.record.name}: {progress.record.question}")
    echo(f"{len(progress.runs)} runs: {shown}")
    if progress.stale:
        echo(f"STALE: {'; '.join(progress.stale)}")
    by_variant: dict[str, list[RunProgress]] = {}
    for run in progress.runs:
        by_variant.setdefault(run.variant, []).append(run)
    titles = {variant.slug: variant.title for variant in progress.record.variants}
    rows = []
    for slug, runs in by_variant.items():
        rows.append([titles[slug], *(_seeds(runs, column) for column in counts)])
    echo()
    print_table(["variant", *(f"seeds {column}" for column in counts)], rows)
    for variant in progress.record.variants:
        if variant.equal_to:
            echo(f"{variant.title} = {titles[variant.equal_to]} by construction")
    _print_not_done(progress, folder)


def _seeds(runs: Sequence[RunProgress], state: str) -> str:
    """Return the seeds of a variant's runs in a state, such as ``1 to 6, 9``; those that run with their progress."""
    seeds_by_progress: dict[str, list[int]] = {}
    for run in runs:
        if _state(run) == state:
            seeds_by_progress.setdefault(_progress(run), []).append(run.seed)
    return "; ".join(_ranges(seeds) + text for text, seeds in seeds_by_progress.items())


def _state(run: RunProgress) -> str:
    """Return the state of a run of this experiment; that of another one is ``reused``."""
    return "reused" if run.reused_from else run.state


def _progress(run: RunProgress) -> str:
    """Return how far a run is, in brackets; empty if it does not run."""
    from headtohead.storage.progress import duration

    if run.state != states.RUNNING:
        return ""
    text = f"step {run.step:,}"
    if run.steps:
        text += f" of {run.steps:,}"
    if run.seconds_left is not None:
        text += f", {duration(run.seconds_left)} left"
    return f" ({text})"


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text, three or more consecutive ones as a range.

    >>> _ranges([1, 2, 3, 4, 6, 8, 9])
    '1 to 4, 6, 8, 9'
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    texts = []
    for part in parts:
        if len(part) > 2:
            texts.append(f"{part[0]} to {part[-1]}")
        else:
            texts += [str(number) for number in part]
    return ", ".join(texts)


def _print_not_done(progress: ExperimentProgress, folder: Path) -> None:
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

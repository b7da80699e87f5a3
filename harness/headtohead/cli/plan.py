"""``h2h plan``: what an experiment would run, without running it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import (
    experiment_argument,
    max_runs_option,
    name_option,
    plugin_option,
    runs_option,
    seeds_option,
    set_option,
)

if TYPE_CHECKING:
    from headtohead.planning.plan import Plan


@click.command()
@experiment_argument
@set_option
@seeds_option
@name_option
@max_runs_option
@runs_option
@plugin_option
@click.option("--fresh", is_flag=True, help="Take no run that exists for done.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: the resolved experiment with states and estimates.",
)
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    seeds: int | None,
    label: str | None,
    max_runs: int,
    runs_root: Path,
    plugin_files: tuple[Path, ...],
    fresh: bool,
    form: str,
) -> None:
    """Show what EXPERIMENT would run, what is done, what is refused and why, and what it costs."""
    with _garbage_left_alone():
        from headtohead.config.loading import load_file

        # Errors of the file are raised before torch is loaded.
        loaded = load_file(experiment, overrides, seeds, max_runs, label)
        from headtohead.planning.planner import make_plan
        from headtohead.planning.replacing import replaced_results
        from headtohead.plugins.registry import use_files

        registry = use_files(plugin_files)
        plan = make_plan(loaded, registry, runs_root, fresh=fresh)
        refused = replaced_results(plan, registry)
    if form == "json":
        _print_json(plan)
    else:
        _print_text(plan)
        if refused:
            click.echo(f"\nh2h run refuses this: {refused}")


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """Collect no garbage meanwhile: a plan ends soon, and collections walk through all of torch."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _print_json(plan: Plan) -> None:
    import json

    content = plan.record().to_json()
    for record, run in zip(content["runs"], plan.runs, strict=True):
        record |= {"state": run.state, "reason": run.reason, "stale": list(run.stale)}
    content["estimate"] = {"seconds": plan.estimate.seconds, "basis": plan.estimate.basis}
    content["power"] = [
        {name: value if value == value else None for name, value in vars(family).items()} for family in plan.power
    ]  # JSON has no NaN
    content["stacks"] = [[run.directory for run in stack] for stack in plan.stacks]
    click.echo(json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False))


def _print_text(plan: Plan) -> None:
    from headtohead.cli.tables import print_table
    from headtohead.planning.overview import COLUMNS, NUMBERS, overview

    told = overview(plan)
    for line in (told.heading, *told.lines, ""):
        click.echo(line)
    print_table(COLUMNS, told.rows, right=NUMBERS)
    for heading, lines in told.sections.items():
        click.echo(f"\n{heading}:")
        for line in lines:
            click.echo(f"  {line}")

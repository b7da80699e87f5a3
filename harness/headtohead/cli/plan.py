"""``h2h plan``: the runs of an experiment, their states and their cost."""

from __future__ import annotations

import gc
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli.options import format_option, load_plugins, plan_options, plugin_option
from headtohead_judge.output import echo, echo_json, echo_on_terminal, print_table

if TYPE_CHECKING:
    from headtohead.planning.plan import Plan


@click.command()
@plan_options
@plugin_option
@click.option("--fresh", is_flag=True, help="Ignore existing runs.")
@format_option("json: the resolved experiment with states and estimates.", "json")
def command(experiment: Path, runs: Path, fresh: bool, form: str, **options: Any) -> None:
    """Show the runs of EXPERIMENT, their states, exclusions with reasons, and the estimated cost."""
    gc.disable()  # each collection would traverse all objects of torch
    click.get_current_context().call_on_close(gc.enable)
    from headtohead.config.loading import load_file

    # Errors of the file are raised before torch is loaded.
    loaded = load_file(experiment, label=options.pop("name"), **options)
    has_heading = form == "text" and echo_on_terminal(loaded.heading)  # torch takes seconds to load
    from headtohead.planning.notes import unused_plugin_files
    from headtohead.planning.planner import make_plan
    from headtohead.planning.replacing import dropped_note, find_replaced

    load_plugins()
    loaded.load_plugins()
    plan = make_plan(loaded, runs, fresh=fresh)
    refused, dropped = find_replaced(plan), dropped_note(plan)
    if form == "json":
        _print_json(plan)
    else:
        if not has_heading:
            echo(loaded.heading)
        _print_text(plan)
        for sentence in unused_plugin_files(plan):
            echo("", f"note: {sentence}")
        if refused:
            echo("", f"h2h run refuses this: {refused}")
        elif dropped:
            echo("", f"note: {dropped}")


POWER_FIELDS = (
    "family",
    "contrasts",
    "seeds",
    "metric",
    "sd",
    "effect",
    "effect_in_runs",
    "margin",
    "difference",
)


def _power_record(family: Any) -> dict[str, Any]:
    """Return the power of a family of contrasts as JSON values; JSON has no NaN."""
    record: dict[str, Any] = {}
    for name in POWER_FIELDS:
        value = getattr(family, name)
        is_nan = isinstance(value, float) and math.isnan(value)
        record[name] = None if is_nan else value
    return record


def _print_json(plan: Plan) -> None:
    from headtohead.planning.estimate import estimate_time
    from headtohead.planning.powers import powers_of
    from headtohead.planning.record import experiment_record
    from headtohead.planning.stacking import local_stacks

    content = experiment_record(plan).to_json()
    for record, run in zip(content["runs"], plan.runs, strict=True):
        record |= {"state": run.state, "reason": run.reason, "stale": list(run.stale)}
    content["estimate"] = asdict(estimate_time(plan))
    content["power"] = [_power_record(family) for family in powers_of(plan)]
    content["stacks"] = [[run.directory for run in stack] for stack in local_stacks(plan)]
    echo_json(content)


def _print_text(plan: Plan) -> None:
    from headtohead.planning.overview import overview

    text = overview(plan)
    echo(*text.lines, "")
    print_table(text.columns, text.rows, right=text.numbers)
    for heading, lines in text.sections.items():
        echo("", f"{heading}:")
        for line in lines:
            echo(f"  {line}")

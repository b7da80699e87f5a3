"""``h2h plan``: what an experiment would run, without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli.options import (
    experiment_argument,
    plugin_option,
    runs_option,
    seeds_option,
    set_option,
)

if TYPE_CHECKING:
    from headtohead.experiment.plan import Plan, PlannedVariant

COLUMNS = ("variant", "runs", "parameters", "non-embedding", "attention", "FLOPs/token", "d_ff",
           "width", "path")  # fmt: skip


@click.command()
@experiment_argument
@set_option
@seeds_option
@runs_option
@plugin_option
@click.option("--fresh", is_flag=True, help="Take no run that exists for done.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="json: the resolved experiment with states and estimates.",
)  # fmt: skip
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    seeds: int | None,
    runs_root: Path,
    plugin_files: tuple[Path, ...],
    fresh: bool,
    form: str,
) -> None:
    """Show what EXPERIMENT would run, what is done, what is refused and why, and what it costs."""
    from headtohead import plugins
    from headtohead.experiment.loading import load_file
    from headtohead.experiment.plan import make_plan

    registry = plugins.use_files(plugin_files)
    loaded = load_file(experiment, overrides, seeds)
    plan = make_plan(loaded, registry, runs_root, fresh=fresh)
    if form == "json":
        _print_json(plan)
    else:
        _print_text(plan)


def _print_json(plan: Plan) -> None:
    import json

    content = plan.to_experiment_json()
    for record, run in zip(content["runs"], plan.runs, strict=True):
        record |= {"state": run.state, "reason": run.reason, "stale": list(run.stale)}
    content["estimate"] = {"seconds": plan.estimate.seconds, "basis": plan.estimate.basis}
    content["power"] = [
        {name: value if value == value else None for name, value in vars(family).items()}
        for family in plan.power
    ]  # JSON has no NaN
    content["stacks"] = [[run.directory for run in stack] for stack in plan.stacks]
    click.echo(json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False))


def _print_text(plan: Plan) -> None:
    from headtohead.cli.tables import print_table

    click.echo(f"{plan.name}: {plan.loaded.file.question}")
    click.echo(_data_line(plan))
    click.echo(_runs_line(plan))
    if plan.remaining:
        click.echo(f"time: {plan.estimate.words}")
    click.echo()
    print_table(COLUMNS, [_row(plan, one) for one in plan.variants], right=range(2, 8))
    _section("the same by construction, trained once", [
        f"{one.slug} = {one.equal.to}: {one.equal.reason}" for one in plan.variants if one.equal
    ])  # fmt: skip
    _section("left out", [
        f"{one.slug}: {one.reason} ({one.source})" for one in plan.design.excluded
    ])  # fmt: skip
    _section("not finished well", [
        f"{run.directory}: {run.state}{f', {run.reason}' if run.reason else ''}"
        for run in plan.runs
        if run.state in ("FAILED", "OOM", "TIMEOUT", "KILLED", "INTERRUPTED", "DIVERGED")
    ])  # fmt: skip
    _section("notes", plan.notes)


def _data_line(plan: Plan) -> str:
    record = plan.data.record
    counts = " / ".join(f"{count:,}" for count in record["counts"].values())
    words = " / ".join(f"{count:,}" for count in record["vocabulary"].values())
    return (
        f"data: {record['dataset']}, split {record['split']}, {counts} pairs "
        f"(train / valid / test), {words} words, fingerprint {record['fingerprint'][:8]}"
    )


def _runs_line(plan: Plan) -> str:
    trained = [one for one in plan.variants if one.equal is None]
    states = Counter(_word(run.state, run.reused_from) for run in plan.runs)
    shown = ", ".join(f"{count} {state}" for state, count in states.items())
    return (
        f"runs: {len(trained)} variants × {len(plan.design.seeds)} seeds = {len(plan.runs)}: "
        f"{shown or 'none'}; {_left(plan)}"
    )


def _left(plan: Plan) -> str:
    if not plan.remaining:
        return "nothing to run"
    return f"{len(plan.remaining)} to run in {len(plan.stacks)} stacks"


def _word(state: str, reused_from: str | None) -> str:
    return "reused" if reused_from else state.lower()


def _row(plan: Plan, one: PlannedVariant) -> list[str]:
    config, counts = one.config, one.counts
    paths = sorted(set(counts.path.values()))
    d_ff = config.model.d_ff
    return [
        one.slug + (" (baseline)" if one.slug == plan.design.baseline else ""),
        _progress(plan, one),
        f"{counts.total:,}",
        f"{counts.non_embedding:,}",
        f"{counts.attention:,}",
        f"{counts.flops_per_token:,.0f}",
        f"{d_ff:,}" if d_ff == one.d_ff_asked else f"{one.d_ff_asked:,} → {d_ff:,}",
        f"{counts.inner_width:,}",
        " and ".join(paths) if len(paths) == 1 else _by_role(counts.path),
    ]


def _by_role(path: dict[str, str]) -> str:
    return ", ".join(f"{role} {kind}" for role, kind in path.items())


def _progress(plan: Plan, one: PlannedVariant) -> str:
    if one.equal:
        return "equal"
    runs = plan.runs_of(one.slug)
    done = sum(run.is_done for run in runs)
    stale = " STALE" if any(run.stale for run in runs) else ""
    return f"{done}/{len(runs)} done{stale}"


def _section(title: str, lines: Sequence[Any]) -> None:
    if lines:
        click.echo(f"\n{title}:")
        for line in lines:
            click.echo(f"  {line}")

"""A plan in words: the lines and the table that a command prints and a cell shows."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headtohead.config.labels import text
from headtohead.planning.pitfalls import Pitfall
from headtohead.planning.plan import Plan, PlannedVariant
from headtohead.storage import states

COLUMNS = ("variant", "runs", "parameters", "non-embedding", "attention", "FLOPs/token", "d_ff", "width", "path")
NUMBERS = range(2, 8)
"""Which of the columns hold numbers."""

MOST_NAMES = 12
"""Variants that a line names one by one."""


@dataclass(frozen=True)
class Overview:
    """What there is to say of a plan, in the order in which it is said.

    ``sections`` holds lines by heading; a heading without lines is not there.
    """

    heading: str
    lines: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: Mapping[str, tuple[str, ...]]


def overview(plan: Plan) -> Overview:
    """Return what a plan would run, what is done, what is refused and why, and what it costs."""
    lines = [_project_line(plan), _data_line(plan), *_path_lines(plan), *_tuning_lines(plan), _runs_line(plan)]
    if plan.remaining:
        lines.append(f"time: {plan.estimate.words}")
    sections = {
        "choices": _choices(plan),
        "the same by construction, trained once": _equal(plan),
        "tuned": _tuned(plan),
        "left out": tuple(f"{one.slug}: {one.reason} ({one.source})" for one in plan.design.excluded),
        "not finished well": tuple(
            f"{run.directory}: {run.state}{f', {run.reason}' if run.reason else ''}"
            for run in plan.runs
            if run.state in states.ABNORMAL
        ),
        "pitfalls, shown with every result": _pitfalls(plan),
        "notes": (*plan.notes, *(family.words for family in plan.power)),
    }
    return Overview(
        heading=f"{plan.name}: {plan.loaded.file.question}",
        lines=tuple(lines),
        rows=tuple(_row(plan, one) for one in _listed(plan)),
        sections={heading: told for heading, told in sections.items() if told},
    )


def _project_line(plan: Plan) -> str:
    """Return the project root, with the folder in which runs are looked for."""
    runs = plan.runs_root.resolve()
    return f"project: {runs.parent} (runs in {runs})"


def _listed(plan: Plan) -> tuple[PlannedVariant, ...]:
    """Return the variants that have a row: all, or a path's ends and single differences."""
    path = plan.design.path
    inside = {point.slug for point in path.inside()} if path else set()
    return tuple(one for one in plan.variants if one.slug not in inside)


def _path_lines(plan: Plan) -> list[str]:
    """Return how many points a path has, and of what kind."""
    path = plan.design.path
    if path is None:
        return []
    points = [point for point in path.points.values() if not point.refusal]
    inside = len(path.inside())
    command = shlex.join(["h2h", "plan", str(plan.loaded.path), "--format", "json"])
    return [
        f"path: {' to '.join(path.names)}, {len(path.choices)} choices, {len(path.walks)} orders; "
        f"{len(points)} points: 2 ends, {len(points) - 2 - inside} single differences, {inside} "
        f"inside walks ({command} lists them)"
    ]


def _tuning_lines(plan: Plan) -> list[str]:
    """Return what is swept before the experiment, and whether it has been."""
    tuning = plan.tuning
    if tuning is None:
        return []
    seeds = len(tuning.plan.design.seeds)
    tried = "; ".join(one.name for one in tuning.settings)
    done = "done" if tuning.is_done else f"{len(tuning.plan.remaining)} runs to go first"
    runs = len(tuning.plan.runs)
    return [f"tune: every variant with {tried}; {seeds} seeds each, {runs} runs: {done}"]


def _tuned(plan: Plan) -> tuple[str, ...]:
    """Return the setting of each variant, and what it was chosen among."""
    tuning = plan.tuning
    if tuning is None or not tuning.is_done:
        return ()
    lines = []
    for slug, tried in tuning.tried.items():
        chosen = tuning.chosen(slug)
        losses = ", ".join(f"{one.setting.name}: {one.mean:.4g}" for one in tried)
        edge = "; the best is at the edge" if tuning.at_the_edge(slug) else ""
        lines.append(f"{slug}: {chosen.name} ({losses}{edge})")
    return tuple(lines)


def _choices(plan: Plan) -> tuple[str, ...]:
    path = plan.design.path
    return tuple(f"{one.name}: {text(one.before)} → {text(one.after)}" for one in (path.choices if path else ()))


def _equal(plan: Plan) -> tuple[str, ...]:
    lines = tuple(f"{one.slug} = {one.equal.to}: {one.equal.reason}" for one in plan.variants if one.equal)
    more = len(lines) - MOST_NAMES
    return lines if more <= 1 else (*lines[:MOST_NAMES], f"and {more} more")


def _pitfalls(plan: Plan) -> tuple[str, ...]:
    """Return each pitfall of the design once, with the variants that have it."""
    having: dict[Pitfall, list[str]] = {}
    for one in plan.variants:
        for pitfall in one.pitfalls:
            having.setdefault(pitfall, []).append(one.slug)
    return tuple(
        f"{pitfall.name} ({pitfall.field}) in "
        f"{'every variant' if len(slugs) == len(plan.variants) else _some(slugs)}: {pitfall.consequence}"
        for pitfall, slugs in having.items()
    )


def _some(slugs: Sequence[str]) -> str:
    """Name variants, of very many the first ones."""
    more = len(slugs) - MOST_NAMES
    return ", ".join(slugs) if more <= 1 else f"{', '.join(slugs[:MOST_NAMES])} and {more} more"


def _data_line(plan: Plan) -> str:
    record = plan.data.record
    counts = " / ".join(f"{count:,}" for count in record["counts"].values())
    words = " / ".join(f"{count:,}" for count in record["vocabulary"].values())
    return (
        f"data: {record['dataset']}, split {record['split']}, {counts} pairs "
        f"(train / valid / test), {words} words, data_hash {record['data_hash'][:8]}"
    )


def _runs_line(plan: Plan) -> str:
    trained = [one for one in plan.variants if one.equal is None]
    counts = Counter("reused" if run.reused_from else run.state.lower() for run in plan.runs)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items())
    return (
        f"runs: {len(trained)} variants × {len(plan.design.seeds)} seeds = {len(plan.runs)}: "
        f"{shown or 'none'}; {_left(plan)}"
    )


def _left(plan: Plan) -> str:
    if not plan.remaining:
        failed = any(run.state in states.RETRYABLE for run in plan.runs)
        return "nothing to run without --retry" if failed else "nothing to run"
    return f"{len(plan.remaining)} to run in {len(plan.stacks)} stacks"


def _row(plan: Plan, one: PlannedVariant) -> tuple[str, ...]:
    config, counts = one.config, one.counts
    paths = sorted(set(counts.path.values()))
    d_ff = config.model.d_ff
    return (
        one.slug + (" (baseline)" if one.slug == plan.design.baseline else ""),
        _progress(plan, one),
        f"{counts.total:,}",
        f"{counts.non_embedding:,}",
        f"{counts.attention:,}",
        f"{counts.flops_per_token:,.0f}",
        f"{d_ff:,}" if d_ff == one.d_ff_asked else f"{one.d_ff_asked:,} → {d_ff:,}",
        f"{counts.inner_width:,}",
        " and ".join(paths) if len(paths) == 1 else _by_role(counts.path),
    )


def _by_role(path: Mapping[str, str]) -> str:
    return ", ".join(f"{role} {kind}" for role, kind in path.items())


def _progress(plan: Plan, one: PlannedVariant) -> str:
    if one.equal:
        return "equal"
    runs = plan.runs_of(one.slug)
    done = sum(run.is_done for run in runs)
    stale = " STALE" if any(run.stale for run in runs) else ""
    return f"{done}/{len(runs)} done{stale}"

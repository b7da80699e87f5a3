"""Summarise a plan as text lines and a table, for ``h2h plan`` and for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headtohead.config.labels import listed, shortened, text
from headtohead.model.precision import describe_bfloat16
from headtohead.planning.between import END, START
from headtohead.planning.plan import Plan, PlannedVariant
from headtohead.planning.schedule import mean_rate, warmup_steps
from headtohead.planning.stacking import local_stacks
from headtohead.statistics.paired_tests import ALPHA
from headtohead.storage import states
from headtohead.storage.experiment import Pitfall
from headtohead.storage.metrics import counted

COLUMNS = ("variant", "runs", "parameters", "non-embedding", "attention", "FLOPs/token", "d_ff", "width", "path")
NUMBERS = range(2, 8)
"""Indices of the numeric columns."""

LONG = 600.0
"""Estimated training seconds from which a plan measures which precision is faster here."""

LOW_RATE = 0.1
"""Mean learning rate, as a fraction of ``lr``, below which a plan has a note."""

MOST_NAMES = 12
"""Maximum number of variants that a line or a section names."""


@dataclass(frozen=True)
class Overview:
    """A plan's summary in print order.

    ``sections`` holds lines by heading, without empty sections.
    """

    heading: str
    lines: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: Mapping[str, tuple[str, ...]]


def overview(plan: Plan) -> Overview:
    """Return the runs of a plan, their states, the excluded combinations with reasons, and the costs."""
    lines = [_project_line(plan), _data_line(plan), *_tuning_lines(plan), *_looks_lines(plan)]
    lines += [_runs_line(plan), _steps_line(plan), *_rate_lines(plan)]
    if plan.remaining or (plan.tuning and not plan.tuning.is_done):
        lines.append(f"time: {plan.estimate.summary}")
        if plan.estimate.seconds > LONG:
            lines.append(f"precision: {describe_bfloat16()} on this processor")
    sections = {
        "changes": _changes(plan),
        "same by construction, trained once": _equal(plan),
        "tuned": _tuned(plan),
        "contrasts that the file declares": tuple(contrast.name for contrast in plan.design.declared),
        "excluded": tuple(
            f"{excluded.slug}: {excluded.reason} ({excluded.source})" for excluded in plan.design.excluded
        ),
        "failed, diverged or interrupted": tuple(
            f"{run.directory}: {run.state}{f', {run.reason}' if run.reason else ''}"
            for run in plan.runs
            if run.state in states.ABNORMAL
        ),
        "pitfalls, shown with every result": _pitfalls(plan),
        "data of the baseline": tuple(plan.data.record["notes"]),
        "notes": (*plan.notes, *(family.summary for family in plan.power)),
    }
    return Overview(
        heading=f"{plan.name}: {plan.loaded.file.question}",
        lines=tuple(lines),
        rows=tuple(_row(plan, variant) for variant in plan.variants),
        sections={heading: content for heading, content in sections.items() if content},
    )


def _project_line(plan: Plan) -> str:
    """Return the project root and the runs folder."""
    runs = plan.runs_root.resolve()
    return f"project: {runs.parent} (runs in {runs})"


def _tuning_lines(plan: Plan) -> list[str]:
    """Return the settings that are tuned before the experiment, and the progress of the tuning."""
    tuning = plan.tuning
    if tuning is None:
        return []
    seeds = len(tuning.plan.design.seeds)
    tried = "; ".join(setting.name for setting in tuning.settings)
    done = "done" if tuning.is_done else f"{len(tuning.plan.remaining)} runs remaining"
    runs = len(tuning.plan.runs)
    return [f"tune: every variant with {tried}; {counted(seeds, 'seed')} each, {runs} runs: {done}"]


def _looks_lines(plan: Plan) -> list[str]:
    """Return the looks of a plan with sequential seeds, their level, and the maximum number of runs."""
    if plan.looks is None:
        return []
    first, last = plan.looks.seeds[0], plan.looks.seeds[-1]
    seeds = listed([*map(str, plan.looks.seeds)])
    trained = sum(variant.record.equal_to is None for variant in plan.variants)
    level = 100 * plan.looks.level(ALPHA)
    return [
        f"seeds: {first}, then up to {last} until every main contrast is decided; judged at {seeds} seeds, "
        f"each look at a level of {level:.2g} % for {100 * ALPHA:.2g} % over all looks; at most {trained * last} runs"
    ]


def _tuned(plan: Plan) -> tuple[str, ...]:
    """Return each variant's chosen setting, and the loss of every setting."""
    tuning = plan.tuning
    if tuning is None or not tuning.is_done:
        return ()
    lines = []
    for slug, tuned in tuning.variants.items():
        means = ", ".join(
            f"{setting.name}: {'diverged' if trial.mean is None else f'{trial.mean:.4g}'}"
            for setting, trial in zip(tuning.settings, tuned.tried, strict=True)
        )
        edge = "; the best value is at the edge of the sweep" if tuned.at_the_edge else ""
        lines.append(f"{slug}: {tuning.chosen(slug).name} ({means}{edge})")
    return tuple(lines)


def _changes(plan: Plan) -> tuple[str, ...]:
    """Return the changes between two configurations with their values in both."""
    if not plan.design.changes:
        return ()
    before, after = plan.design.variant(START).axes, plan.design.variant(END).axes
    return tuple(f"{name}: {text(before[name])} → {text(after[name])}" for name in plan.design.axes)


def _equal(plan: Plan) -> tuple[str, ...]:
    variants = [variant.record for variant in plan.variants]
    lines = tuple(
        f"{variant.slug} = {variant.equal_to}: {variant.equal_reason}" for variant in variants if variant.equal_to
    )
    more = len(lines) - MOST_NAMES
    return lines if more <= 1 else (*lines[:MOST_NAMES], f"and {more} more")


def _pitfalls(plan: Plan) -> tuple[str, ...]:
    """Return each pitfall of the design once, with the variants that have it."""
    slugs_by_pitfall: dict[Pitfall, list[str]] = {}
    for variant in plan.variants:
        for pitfall in variant.record.pitfalls:
            slugs_by_pitfall.setdefault(pitfall, []).append(variant.slug)
    return tuple(
        f"{pitfall.name} ({pitfall.field}) in "
        f"{'every variant' if len(slugs) == len(plan.variants) else shortened(slugs, MOST_NAMES)}: "
        f"{pitfall.consequence}"
        for pitfall, slugs in slugs_by_pitfall.items()
    )


def _data_line(plan: Plan) -> str:
    record = plan.data.record
    counts = " / ".join(f"{count:,}" for count in record["counts"].values())
    tokens = " / ".join(f"{count:,}" for count in record["vocabulary"].values())
    return (
        f"data: {record['dataset']}, split {record['split']}, {counts} pairs "
        f"(train / valid / test), {tokens} vocabulary tokens, data_hash {record['data_hash'][:8]}"
    )


def _runs_line(plan: Plan) -> str:
    trained = [variant for variant in plan.variants if variant.record.equal_to is None]
    counts = Counter("reused" if run.reused_from else run.state.lower() for run in plan.runs)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items())
    return (
        f"runs: {counted(len(trained), 'variant')} × {counted(len(plan.design.seeds), 'seed')} = {len(plan.runs)}: "
        f"{shown or 'none'}; {_remaining(plan)}"
    )


def _steps_line(plan: Plan) -> str:
    """Return the steps of a run, of all variants if they differ, and the variants with a longer warm-up."""
    steps = _ends([variant.record.steps for variant in plan.variants])
    per_epoch = _ends([variant.steps_per_epoch for variant in plan.variants])
    warmups = [
        (variant.record.steps, warmup_steps(variant.config.train, variant.record.steps)) for variant in plan.variants
    ]
    longer = [warmup for of_variant, warmup in warmups if 0 < of_variant < warmup]
    warning = f"; the warm-up of {longer[0]:,} steps is longer than training" if longer else ""
    return f"steps: {steps} per run, {per_epoch} per epoch{warning}"


def _rate_lines(plan: Plan) -> list[str]:
    """Return a line if schedule and warm-up make the mean learning rate of a variant much lower than ``lr``."""
    means = {
        variant.slug: mean_rate(variant.config.train, variant.record.steps)
        for variant in plan.variants
        if variant.record.steps
    }
    low = sorted((mean, slug) for slug, mean in means.items() if mean < LOW_RATE)
    if not low:
        return []
    mean, slug = low[0]
    return [
        f"learning rate: its mean over the steps of {slug} is {mean:.1%} of train.lr; set "
        "train.warmup_steps to a few percent of the steps, or train.schedule to cosine"
    ]


def _ends(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest number, once if they are equal."""
    return " to ".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


def _remaining(plan: Plan) -> str:
    if plan.tuning and not plan.tuning.is_done:
        return "the tuning chooses their settings"
    if not plan.remaining:
        if any(run.state in states.RETRYABLE for run in plan.runs):
            return "nothing to run without --retry"
        return "nothing to run without --stale" if any(run.stale for run in plan.runs) else "nothing to run"
    return f"{len(plan.remaining)} to run in {counted(len(local_stacks(plan)), 'stack')}"


def _row(plan: Plan, variant: PlannedVariant) -> tuple[str, ...]:
    record, counts = variant.record, variant.record.counts
    paths = sorted(set(counts.path.values()))
    return (
        variant.slug + (" (baseline)" if variant.slug == plan.design.baseline else ""),
        _progress(plan, variant),
        f"{counts.total:,}",
        f"{counts.non_embedding:,}",
        f"{counts.attention:,}",
        f"{counts.flops_per_token:,.0f}",
        f"{record.d_ff:,}" if record.d_ff == record.d_ff_asked else f"{record.d_ff_asked:,} → {record.d_ff:,}",
        f"{counts.inner_width:,}",
        paths[0] if len(paths) == 1 else ", ".join(f"{role} {kind}" for role, kind in counts.path.items()),
    )


def _progress(plan: Plan, variant: PlannedVariant) -> str:
    if variant.record.equal_to:
        return "equal"
    runs = plan.runs_of(variant.slug)
    diverged = sum(run.state == states.DIVERGED for run in runs)
    done = sum(run.is_done for run in runs) - diverged
    notes = f", {diverged} diverged" * bool(diverged) + " STALE" * any(run.stale for run in runs)
    return f"{done}/{len(runs)} done{notes}"

"""Summarise a plan as text lines and a table, for ``h2h plan`` and for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headtohead.config.labels import listed, text
from headtohead.planning.between import END, START
from headtohead.planning.plan import Plan, PlannedVariant, Tuning
from headtohead.planning.schedule import warmup_steps
from headtohead.planning.stacking import local_stacks
from headtohead.schema.run_config import NOTHING_HELD_OUT
from headtohead.storage import states
from headtohead.storage.experiment import Pitfall, examples_of, leaked_part, leaked_validation
from headtohead.storage.metrics import counted
from headtohead.storage.progress import duration
from headtohead_judge.paired_tests import ALPHA

_COUNTS = ("parameters", "non-embedding", "attention", "FLOPs/token", "d_ff", "attention width")
COLUMNS = ("variant", "runs", *_COUNTS, "path")
NUMBERS = range(2, 8)
"""Indices of the numeric columns."""

MAX_NAMES = 12
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
    records = [variant.record for variant in plan.variants]
    equal = [
        f"{record.slug} = {record.equal_to}: {record.equal_reason}"
        for record in records
        if record.equal_to
    ]
    if len(equal) > MAX_NAMES + 1:
        equal = [*equal[:MAX_NAMES], f"and {len(equal) - MAX_NAMES} more"]
    ends = [plan.design.variant(slug).axes for slug in (START, END)] if plan.design.changes else []
    data = plan.data.record
    leaks = []
    if data["leak"] and data["split"] != NOTHING_HELD_OUT:
        label = "leaky split" if data["leaky"] else "split"
        leaks.append(f"{label} '{data['split']}': {leaked_part(data)}")
    for leak in leaked_validation(data):
        label = "leaky split" if leak.is_serious else "split"
        leaks.append(f"{label} '{data['split']}': {leak.clause}")
    sections = {
        "changes": [
            f"{name}: {' → '.join(text(axes[name]) for axes in ends)}"
            for name in plan.design.axes
            if ends
        ],
        "same by construction, trained once": equal,
        "tuned": _tuned(plan),
        "excluded": (
            f"{excluded.slug}: {excluded.reason} ({excluded.source})"
            for excluded in plan.design.excluded
        ),
        "failed, diverged or interrupted": (
            f"{run.directory}: {run.state}{f', {run.reason}' if run.reason else ''}"
            for run in plan.runs
            if run.state in states.ABNORMAL
        ),
        "pitfalls, shown with every result": _pitfalls(plan),
        "data of the baseline": [*leaks, *data["notes"]],
        "notes": plan.notes,
    }
    if plan.power:
        sections[plan.power[0].heading] = [family.summary for family in plan.power]
    return Overview(
        heading=f"{plan.name}: {plan.loaded.file.question}",
        lines=tuple(_lines(plan)),
        rows=tuple(_row(plan, variant) for variant in plan.variants),
        sections={
            heading: lines for heading, content in sections.items() if (lines := tuple(content))
        },
    )


def _lines(plan: Plan) -> Iterator[str]:
    """Yield the facts of the plan as a whole: project, data, tuning, looks, runs, steps and time."""
    data, looks, tuning, runs_root = (
        plan.data.record,
        plan.looks,
        plan.tuning,
        plan.runs_root.resolve(),
    )
    yield f"project: {runs_root.parent} (runs in {runs_root})"
    counts, tokens = (
        " / ".join(f"{size:,}" for size in data[name].values()) for name in ("counts", "vocabulary")
    )
    examples = examples_of(data)
    yield (
        f"data: {data['dataset']}, split {data['split']}, {counts} {examples} (train / valid / test), {tokens} "
        f"vocabulary tokens, data_hash {data['data_hash'][:8]}"
    )
    if tuning:
        listed_settings, *others = tuning.settings.values()
        tried = "; ".join(
            setting.name for setting in listed_settings if all(setting in own for own in others)
        )
        seeds = counted(len(tuning.plan.design.seeds), "seed")
        runs = f"{len(tuning.plan.runs)} runs: {_tuning_progress(tuning)}"
        yield f"tune: every variant with {tried}; {seeds} each, {runs}"
        if tuning.coarse:
            enough = "4 values (or auto), tune_seeds: 2 and no tune_epochs are enough"
            yield f"tune may miss the best setting: {tuning.coarse}; {enough}"
    trained = [variant for variant in plan.variants if variant.record.equal_to is None]
    if looks:
        first, last = looks.seeds[0], looks.seeds[-1]
        yield (
            f"seeds: {first}, then up to {last} until every contrast of the answer is decided; judged at "
            f"{listed([*map(str, looks.seeds)])} seeds, each look at a level of {100 * looks.level(ALPHA):.2g} % for "
            f"{100 * ALPHA:.2g} % over all looks; at most {len(trained) * last} runs"
        )
    remaining = f"{len(plan.remaining)} to run in {counted(len(local_stacks(plan)), 'stack')}"
    if tuning and not tuning.is_chosen:
        remaining = "the tuning chooses their settings"
    elif not plan.remaining:
        option = (
            " without --retry" if any(run.state in states.FAILURES for run in plan.runs) else ""
        )
        option = option or " without --stale" * any(run.stale for run in plan.runs)
        remaining = f"nothing to run{option}"
    by_state = Counter("reused" if run.reused_from else run.state.lower() for run in plan.runs)
    shown = ", ".join(f"{count} {state}" for state, count in by_state.items())
    yield (
        f"runs: {counted(len(trained), 'variant')} × {counted(len(plan.design.seeds), 'seed')} = {len(plan.runs)}: "
        f"{shown or 'none'}; {remaining}"
    )
    schedules = [(variant.config.train, variant.record.steps) for variant in plan.variants]
    longer = [
        warmup for train, steps in schedules if 0 < steps < (warmup := warmup_steps(train, steps))
    ]
    warning = f"; the warm-up of {longer[0]:,} steps is longer than training" if longer else ""
    per_epoch = _ends(variant.steps_per_epoch for variant in plan.variants)
    yield f"steps: {_ends(steps for _, steps in schedules)} per run, {per_epoch} per epoch{warning}"
    if plan.remaining or (tuning and not tuning.is_done):
        seconds, most = plan.estimate.seconds, plan.estimate.most_seconds
        later = f" for this look, {duration(most)} for all looks" if most > seconds else ""
        yield f"time: {duration(seconds)}{later} ({plan.estimate.basis})"


def _tuning_progress(tuning: Tuning) -> str:
    """Return how many runs of a sweep remain, and whether its settings are known without them."""
    if tuning.is_done:
        return "done"
    if tuning.is_chosen:
        number = counted(len(tuning.without_result), "run")
        return f"{number} missing, chosen by the losses of the last plan; h2h run trains the missing runs first"
    return f"{counted(len(tuning.plan.remaining), 'run')} remaining, more if a best value is at the edge"


def _tuned(plan: Plan) -> Iterator[str]:
    """Yield each variant's chosen setting, and the loss of every setting."""
    if (tuning := plan.tuning) is None:
        return
    for slug, tuned in tuning.variants.items():
        means = ", ".join(
            f"{setting.name}: {'diverged' if trial.mean is None else f'{trial.mean:.4g}'}"
            for setting, trial in zip(tuning.settings[slug], tuned.tried, strict=True)
        )
        edge = "; the best value is at the edge of the sweep" if tuned.at_the_edge else ""
        yield f"{slug}: {tuning.chosen(slug).name} ({means}{edge})"


def _pitfalls(plan: Plan) -> Iterator[str]:
    """Yield each pitfall of the design once, with the variants that have it."""
    slugs_by_pitfall: dict[Pitfall, list[str]] = {}
    for variant in plan.variants:
        for pitfall in variant.record.pitfalls:
            slugs_by_pitfall.setdefault(pitfall, []).append(variant.slug)
    for pitfall, slugs in slugs_by_pitfall.items():
        named = "every variant" if len(slugs) == len(plan.variants) else listed(slugs, MAX_NAMES)
        yield f"{pitfall.name} ({pitfall.field}) in {named}: {pitfall.consequence}"


def _ends(numbers: Iterable[int]) -> str:
    """Return the smallest and the largest number, once if they are equal."""
    ordered = sorted(set(numbers))
    return " to ".join(f"{number:,}" for number in dict.fromkeys((ordered[0], ordered[-1])))


def _row(plan: Plan, variant: PlannedVariant) -> tuple[str, ...]:
    record, counts = variant.record, variant.record.counts
    paths = sorted(set(counts.path.values()))
    runs = plan.runs_of(variant.slug)
    diverged = sum(run.state == states.DIVERGED for run in runs)
    progress = f"{sum(run.is_done for run in runs) - diverged}/{len(runs)} done"
    progress += f", {diverged} diverged" * bool(diverged) + " STALE" * any(
        run.stale for run in runs
    )
    return (
        variant.slug + (" (baseline)" if variant.slug == plan.design.baseline else ""),
        "equal" if record.equal_to else progress,
        f"{counts.total:,}",
        f"{counts.non_embedding:,}",
        f"{counts.attention:,}",
        f"{counts.flops_per_token:,.0f}",
        f"{record.d_ff:,}"
        if record.d_ff == record.d_ff_asked
        else f"{record.d_ff_asked:,} → {record.d_ff:,}",
        f"{counts.inner_width:,}",
        paths[0]
        if len(paths) == 1
        else ", ".join(f"{role} {kind}" for role, kind in counts.path.items()),
    )

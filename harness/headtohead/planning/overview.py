"""Summarise a plan as text lines and a table, for ``h2h plan`` and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headtohead.config.labels import listed, text
from headtohead.planning.between import END, START
from headtohead.planning.costs import PlannedVariant
from headtohead.planning.estimate import estimate_time
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.notes import notes_of
from headtohead.planning.plan import Plan, Stage, Tuning
from headtohead.planning.powers import powers_of
from headtohead.planning.schedule import warmup_steps
from headtohead.planning.stacking import local_stacks
from headtohead.schema.run_config import NOTHING_HELD_OUT
from headtohead.storage import states
from headtohead.storage.experiment import Pitfall, examples_of, leaked_part, leaked_validation
from headtohead.storage.metrics import counted
from headtohead.storage.progress import duration
from headtohead_judge.paired_tests import ALPHA, CONFIDENCE

_COUNTS = ("parameters", "non-embedding", "attention", "FLOPs/token", "d_ff", "attention width")
COLUMNS = ("variant", "runs", *_COUNTS, "path")
NUMBERS = range(2, 8)
"""Indices of the numeric columns."""

MAX_NAMES = 12
"""Maximum number of variants that a line or a section names."""

LOOKS = (
    "seeds: {first}, then up to {last} until every contrast of the answer is decided; judged at {seeds} seeds, with "
    "intervals at {level:.4g} % for {confidence:.4g} % over all looks; at most {runs} runs"
)


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
    """Return the summary of a plan: runs and their states, costs, excluded combinations, notes and power.

    Stacks and time are estimated for this machine. Nothing is written.
    """
    sections = {
        "changes": list(_changes(plan)),
        "same by construction, trained once": _equal(plan),
        "tuned": list(_tuned(plan)),
        "excluded": list(_excluded(plan)),
        "failed, diverged or interrupted": list(_abnormal_runs(plan)),
        "pitfalls, shown with every result": list(_pitfalls(plan)),
        "data of the baseline": [*_leaks(plan), *plan.data.record["notes"]],
        "notes": notes_of(plan),
    }
    powers = powers_of(plan)
    if powers:
        sections[powers[0].heading] = [power.summary for power in powers]
    return Overview(
        heading=f"{plan.name}: {plan.loaded.file.question}",
        lines=tuple(_lines(plan)),
        rows=tuple(_row(plan, variant) for variant in plan.variants),
        sections={heading: tuple(lines) for heading, lines in sections.items() if lines},
    )


def _changes(plan: Plan) -> Iterator[str]:
    """Yield each change of ``between`` with its two values."""
    if not plan.design.changes:
        return
    start = plan.design.variant(START).axes
    end = plan.design.variant(END).axes
    for name in plan.design.axes:
        yield f"{name}: {text(start[name])} → {text(end[name])}"


def _equal(plan: Plan) -> list[str]:
    """Return the variants that equal another one, with the reasons; of many, the first ones and their number."""
    lines = []
    for variant in plan.variants:
        record = variant.record
        if record.equal_to:
            lines.append(f"{record.slug} = {record.equal_to}: {record.equal_reason}")
    if len(lines) > MAX_NAMES + 1:
        return [*lines[:MAX_NAMES], f"and {len(lines) - MAX_NAMES} more"]
    return lines


def _excluded(plan: Plan) -> Iterator[str]:
    """Yield each excluded combination with its reason."""
    for excluded in plan.design.excluded:
        yield f"{excluded.slug}: {excluded.reason} ({excluded.source})"


def _abnormal_runs(plan: Plan) -> Iterator[str]:
    """Yield each run that ended without the result of a complete training."""
    for run in plan.runs:
        if run.state in states.ABNORMAL:
            reason = f", {run.reason}" if run.reason else ""
            yield f"{run.directory}: {run.state}{reason}"


def _leaks(plan: Plan) -> Iterator[str]:
    """Yield which parts of the test and validation sets are in the training set."""
    data = plan.data.record
    if data["leak"] and data["split"] != NOTHING_HELD_OUT:
        split = "leaky split" if data["leaky"] else "split"
        yield f"{split} '{data['split']}': {leaked_part(data)}"
    for leak in leaked_validation(data):
        split = "leaky split" if leak.is_serious else "split"
        yield f"{split} '{data['split']}': {leak.clause}"


def _lines(plan: Plan) -> Iterator[str]:
    """Yield the lines about the plan as a whole: project, data, tuning, looks, runs, steps and time.

    Tuning and looks have lines only if the plan has them. The time has a line if runs of the plan remain, or the sweep
    is not done: its settings are not chosen, or a run of it has no result, also a failed one that is not run again. A
    variant that equals another one has no runs and is not counted.
    """
    runs_root = plan.runs_root.resolve()
    yield f"project: {runs_root.parent} (runs in {runs_root})"
    yield _data_line(plan)
    if plan.tuning is not None:
        yield from _tuning_lines(plan.tuning)
    trained = sum(variant.record.equal_to is None for variant in plan.variants)
    if plan.looks is not None:
        yield LOOKS.format(
            first=plan.looks.seeds[0],
            last=plan.looks.seeds[-1],
            seeds=listed([str(number) for number in plan.looks.seeds]),
            level=100 * (1 - plan.looks.level(ALPHA)),
            confidence=100 * CONFIDENCE,
            runs=trained * plan.looks.seeds[-1],
        )
    variants = counted(trained, "variant")
    seeds = counted(len(plan.design.seeds), "seed")
    yield f"runs: {variants} × {seeds} = {len(plan.runs)}: {_run_states(plan)}; {_remaining(plan)}"
    yield _steps_line(plan)
    is_tuning = plan.tuning is not None and not plan.tuning.is_done
    if plan.remaining or is_tuning:
        yield _time_line(plan)


def _data_line(plan: Plan) -> str:
    """Return the dataset of the baseline with its numbers of examples and tokens."""
    data = plan.data.record
    counts = _numbers(data["counts"].values(), " / ")
    tokens = _numbers(data["vocabulary"].values(), " / ")
    return (
        f"data: {data['dataset']}, split {data['split']}, {counts} {examples_of(data)} (train / valid / test), "
        f"{tokens} vocabulary tokens, data_hash {data['data_hash'][:8]}"
    )


def _numbers(numbers: Iterable[int], separator: str) -> str:
    """Return numbers with separators of thousands."""
    return separator.join(f"{number:,}" for number in numbers)


MORE_RUNS = {
    Stage.VALUES: "more values if the best one may be outside, more seeds if no parabola holds",
    Stage.FURTHER_VALUES: "more values if the best one may be outside, more seeds if no parabola holds",
    Stage.FURTHER_SEEDS: "the last ones of the tuning",
}
"""Whether further tuning runs may follow those of a stage."""


def _tuning_lines(tuning: Tuning) -> Iterator[str]:
    """Yield a line about the sweep, and another one if its settings are too coarse to find the best one.

    The first line has the settings that the sweep tries for every variant, and the progress of the sweep. Further
    settings that only some variants try, beyond a best value at the edge, are left out. The sweep has at least one
    variant.
    """
    first, *others = tuning.settings.values()
    names = []
    for setting in first:
        if all(setting in settings for settings in others):
            names.append(setting.name)
    seeds = counted(len(tuning.plan.design.seeds), "seed")
    yield (
        f"tune: every variant with {'; '.join(names)}; {seeds} each, {len(tuning.plan.runs)} runs: "
        f"{_tuning_progress(tuning)}"
    )
    if tuning.weaknesses:
        yield (
            f"tune may miss the best setting: {tuning.weaknesses}; 4 values (or auto), tune_seeds: 2 and no "
            "tune_epochs are enough"
        )


def _tuning_progress(tuning: Tuning) -> str:
    """Return how many runs of a sweep remain, and whether its settings are chosen without them."""
    if tuning.is_done:
        return "done"
    if tuning.is_chosen:
        number = counted(len(tuning.without_result), "run")
        return f"{number} missing, chosen by the losses of the last plan; h2h run trains the missing runs first"
    remaining = counted(len(tuning.plan.remaining), "run")
    return f"{remaining} remaining, {MORE_RUNS[tuning.stage]}"


def _run_states(plan: Plan) -> str:
    """Return the number of runs by state; those of other experiments are "reused"."""
    numbers: dict[str, int] = {}
    for run in plan.runs:
        state = "reused" if run.reused_from else run.state.lower()
        numbers[state] = numbers.get(state, 0) + 1
    if not numbers:
        return "none"
    return ", ".join(f"{number} {state}" for state, number in numbers.items())


def _remaining(plan: Plan) -> str:
    """Return how many runs the next call trains and in how many stacks, or why it trains none.

    Before the tuning has chosen the settings, the number is not known.
    """
    if plan.tuning is not None and not plan.tuning.is_chosen:
        return "the tuning chooses their settings"
    if plan.remaining:
        stacks = counted(len(local_stacks(plan)), "stack")
        return f"{len(plan.remaining)} to run in {stacks}"
    if any(run.state in states.FAILURES for run in plan.runs):
        return "nothing to run without --retry"
    if any(run.stale for run in plan.runs):
        return "nothing to run without --stale"
    return "nothing to run"


def _steps_line(plan: Plan) -> str:
    """Return the numbers of steps of runs and epochs, with a warning about a warm-up that is longer than training."""
    steps = _ends(variant.record.steps for variant in plan.variants)
    per_epoch = _ends(variant.steps_per_epoch for variant in plan.variants)
    line = f"steps: {steps} per run, {per_epoch} per epoch"
    for variant in plan.variants:
        warmup = warmup_steps(variant.config.train, variant.record.steps)
        if 0 < variant.record.steps < warmup:
            return f"{line}; the warm-up of {warmup:,} steps is longer than training"
    return line


def _time_line(plan: Plan) -> str:
    """Return the estimated time of the remaining runs, and of all looks if further ones are possible."""
    estimate = estimate_time(plan)
    line = f"time: {duration(estimate.seconds)}"
    if estimate.most_seconds > estimate.seconds:
        line += f" for this look, {duration(estimate.most_seconds)} for all looks"
    return f"{line} ({estimate.basis})"


def _tuned(plan: Plan) -> Iterator[str]:
    """Yield a line for each variant: its chosen setting, the rule that chose it, and the loss of every setting.

    There is none without a choice. A variant with a choice has a trial for each of its settings (`ValueError`).
    """
    if plan.tuning is None:
        return
    for slug, tuned in plan.tuning.variants.items():
        losses = []
        for setting, trial in zip(plan.tuning.settings[slug], tuned.tried, strict=True):
            loss = "diverged" if trial.mean is None else f"{trial.mean:.4g}"
            losses.append(f"{setting.name}: {loss}")
        edge = "; the best value may be outside the sweep" if tuned.at_the_edge else ""
        name = plan.tuning.chosen(slug).name
        yield f"{slug}: {name}, {tuned.how} ({', '.join(losses)}{edge})"


def _pitfalls(plan: Plan) -> Iterator[str]:
    """Yield each pitfall of the design once, with the variants that have it."""
    slugs_by_pitfall: dict[Pitfall, list[str]] = {}
    for variant in plan.variants:
        for pitfall in variant.record.pitfalls:
            slugs_by_pitfall.setdefault(pitfall, []).append(variant.slug)
    for pitfall, slugs in slugs_by_pitfall.items():
        is_everywhere = len(slugs) == len(plan.variants)
        variants = "every variant" if is_everywhere else listed(slugs, MAX_NAMES)
        yield f"{pitfall.name} ({pitfall.field}) in {variants}: {pitfall.consequence}"


def _ends(numbers: Iterable[int]) -> str:
    """Return the smallest and the largest number as text, once if they are equal; without numbers, `IndexError`."""
    ordered = sorted(numbers)
    smallest = ordered[0]
    largest = ordered[-1]
    if smallest == largest:
        return f"{smallest:,}"
    return f"{smallest:,} to {largest:,}"


def _row(plan: Plan, variant: PlannedVariant) -> tuple[str, ...]:
    """Return the texts of a variant's cells, in the order of `COLUMNS`.

    A widened ``d_ff`` has the asked one before it. The path is one word if all roles have the same.
    """
    record = variant.record
    counts = record.counts
    name = variant.slug
    if variant.slug == plan.design.baseline:
        name += " (baseline)"
    d_ff = f"{record.d_ff:,}"
    if record.d_ff != record.d_ff_asked:
        d_ff = f"{record.d_ff_asked:,} → {d_ff}"
    path = ", ".join(f"{role} {kind}" for role, kind in counts.path.items())
    if len(set(counts.path.values())) == 1:
        path = next(iter(counts.path.values()))
    return (
        name,
        "equal" if record.equal_to else _progress(plan.runs_of(variant.slug)),
        f"{counts.total:,}",
        f"{counts.non_embedding:,}",
        f"{counts.attention:,}",
        f"{counts.flops_per_token:,.0f}",
        d_ff,
        f"{counts.inner_width:,}",
        path,
    )


def _progress(runs: Sequence[PlannedRun]) -> str:
    """Return how many runs of a variant are DONE and how many diverged, and whether some are STALE."""
    diverged = sum(run.state == states.DIVERGED for run in runs)
    done = sum(run.is_done for run in runs) - diverged
    progress = f"{done}/{len(runs)} done"
    if diverged:
        progress += f", {diverged} diverged"
    if any(run.stale for run in runs):
        progress += " STALE"
    return progress

"""Summarise a plan as text lines and a table, for ``h2h plan`` and for notebooks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from headtohead.config.labels import listed, text
from headtohead.model.precision import faster_precision
from headtohead.planning.between import END, START
from headtohead.planning.costs import PlannedVariant
from headtohead.planning.estimate import time_line
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
from headtohead_judge.paired_tests import ALPHA, CONFIDENCE

_COUNTS = ("parameters", "non-embedding", "attention", "FLOPs/token", "d_ff", "attention width")
ONLY = "--only"
COLUMNS = ("variant", "runs", *_COUNTS, "path", ONLY)
EQUAL_CELLS = "in every variant: {cells}"

MAX_NAMES = 12
"""Maximum number of variants that a line or a section names."""

LOOKS = (
    "seeds: {first}, then up to {last} until every contrast of the answer is decided; judged at {seeds} seeds, with "
    "intervals at {level:.4g} % for {confidence:.4g} % over all looks; at most {runs} runs"
)


@dataclass(frozen=True)
class Overview:
    """A plan's summary in print order.

    Attributes:
        heading: The name of the experiment and its question.
        lines: The plan as a whole, and the cells that are the same for every variant.
        columns: The headings of the cells in which variants differ; the first one is that of their names.
        rows: The cells of each variant.
        sections: Lines by heading, without empty sections.
    """

    heading: str
    lines: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: Mapping[str, tuple[str, ...]]

    @property
    def numbers(self) -> list[int]:
        """The indices of the numeric columns."""
        return [index for index, column in enumerate(self.columns) if column in _COUNTS]


def overview(plan: Plan) -> Overview:
    """Return the summary of a plan: runs and their states, costs, excluded combinations, notes and power.

    Cells in which no variant differs are in ``lines`` instead of ``rows``, unless there is only one variant. The names
    for ``h2h run --only`` are left out if they are the titles of all variants. Stacks and time are estimated for this
    machine. Nothing is written.
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
        lines_of_families = [power.lines for power in powers]
        sections[powers[0].heading] = list(itertools.chain.from_iterable(lines_of_families))
    rows = [_row(plan, variant) for variant in plan.variants]
    shown_columns = [0]  # that of the names
    equal_cells = []
    is_only_needed = any(variant.slug != variant.record.title for variant in plan.variants)
    for index, column in enumerate(COLUMNS):
        is_left_out = column == ONLY and not is_only_needed
        if index == 0 or is_left_out:
            continue
        different_cells = {row[index] for row in rows}
        if len(rows) > 1 and len(different_cells) == 1:
            equal_cells.append(f"{column} {rows[0][index]}")
        else:
            shown_columns.append(index)
    lines = [*_lines(plan)]
    if equal_cells:
        lines.append(EQUAL_CELLS.format(cells="; ".join(equal_cells)))
    return Overview(
        heading=plan.loaded.heading,
        lines=tuple(lines),
        columns=tuple(COLUMNS[index] for index in shown_columns),
        rows=tuple(tuple(row[index] for index in shown_columns) for row in rows),
        sections={heading: tuple(lines) for heading, lines in sections.items() if lines},
    )


def _changes(plan: Plan) -> Iterator[str]:
    """Yield each change of ``between`` with its two values."""
    if not plan.design.is_between:
        return
    start = plan.design.variant(START).axes
    end = plan.design.variant(END).axes
    for name in plan.design.axes:
        yield f"{name}: {text(start[name])} → {text(end[name])}"


def _equal(plan: Plan) -> list[str]:
    """Return a line for each variant that equals another variant, with the reason.

    Of more than `MAX_NAMES` + 1 lines, the first `MAX_NAMES` are returned, and a line with the number of the others.
    """
    lines = []
    for variant in plan.variants:
        record = variant.record
        if record.equal_to:
            other = plan.by_slug[record.equal_to].record.title
            lines.append(f"{record.title} = {other}: {record.equal_reason}")
    if len(lines) > MAX_NAMES + 1:
        return [*lines[:MAX_NAMES], f"and {len(lines) - MAX_NAMES} more"]
    return lines


def _excluded(plan: Plan) -> Iterator[str]:
    """Yield each excluded combination with its reason."""
    for excluded in plan.design.excluded:
        yield f"{excluded.title}: {excluded.reason} ({excluded.source})"


def _abnormal_runs(plan: Plan) -> Iterator[str]:
    """Yield a line for each run that failed, diverged, was killed or interrupted, with its reason if it has one."""
    for run in plan.runs:
        if run.state in states.ABNORMAL:
            reason = f", {run.reason}" if run.reason else ""
            yield f"{run.directory}: {run.state}{reason}"


def _leaks(plan: Plan) -> Iterator[str]:
    """Yield a line for the part of the test set that is in the training set, and for each leak of the validation set.

    The line for the test set is left out without a leak, and with a split that holds nothing out.
    """
    data = plan.data.record
    if data["leak"] and data["split"] != NOTHING_HELD_OUT:
        split = "leaky split" if data["leaky"] else "split"
        yield f"{split} '{data['split']}': {leaked_part(data)}"
    for leak in leaked_validation(data):
        split = "leaky split" if leak.is_serious else "split"
        yield f"{split} '{data['split']}': {leak.clause}"


def _lines(plan: Plan) -> Iterator[str]:
    """Yield the lines about the plan as a whole: project, data, tuning, looks, runs, steps, time and faster precision.

    Tuning and looks have lines only if the plan has them. Time and precision have lines if runs remain, or if the
    tuning is not done (`Tuning.is_done`). A variant that equals another one has no runs and is not counted.
    """
    runs_root = plan.runs_root.resolve()
    yield f"project: {runs_root.parent} (runs in {runs_root})"
    yield _data_line(plan)
    if plan.tuning is not None:
        yield from _tuning_lines(plan.tuning)
    num_trained_variants = len(plan.trained_variants)
    if plan.looks is not None:
        yield LOOKS.format(
            first=plan.looks.seeds[0],
            last=plan.looks.seeds[-1],
            seeds=listed([str(number) for number in plan.looks.seeds]),
            level=100 * (1 - plan.looks.level(ALPHA)),
            confidence=100 * CONFIDENCE,
            runs=num_trained_variants * plan.looks.seeds[-1],
        )
    variants = counted(num_trained_variants, "variant")
    seeds = counted(len(plan.design.seeds), "seed")
    yield f"runs: {variants} × {seeds} = {len(plan.runs)}: {_run_states(plan)}; {_remaining(plan)}"
    yield _steps_line(plan)
    is_tuning = plan.tuning is not None and not plan.tuning.is_done
    if plan.remaining or is_tuning:
        yield time_line(plan)
        yield from _faster_precision(plan)


def _faster_precision(plan: Plan) -> Iterator[str]:
    """Yield what bfloat16 gains on this processor, if all variants have float32 and there is no GPU."""
    configs = [variant.config for variant in plan.variants]
    if torch.cuda.is_available() or any(config.train.precision != "float32" for config in configs):
        return
    faster = faster_precision(configs[0].model.d_model)
    if faster:
        yield f"precision: {faster}"


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
    """Yield a line about the sweep, and a warning if it may miss the best setting (`Tuning.weaknesses`).

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
    """Return the number of runs by state; the state of a run of another experiment is "reused"."""
    numbers: dict[str, int] = {}
    for run in plan.runs:
        state = "reused" if run.reused_from else run.state.lower()
        numbers[state] = numbers.get(state, 0) + 1
    if not numbers:
        return "none"
    return ", ".join(f"{number} {state}" for state, number in numbers.items())


def _remaining(plan: Plan) -> str:
    """Return how many runs the next call trains and in how many stacks, or why it trains none.

    Before the tuning has chosen the settings, the text is without numbers: the runs are not known yet.
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


def _tuned(plan: Plan) -> Iterator[str]:
    """Yield a line for each variant: its chosen setting, the rule that chose it, and the loss of every setting.

    Nothing is yielded without ``tune``, or before the settings are chosen. A variant with a choice has a trial for each
    of its settings (`ValueError`).
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
        title = plan.by_slug[slug].record.title
        yield f"{title}: {name}, {tuned.how} ({', '.join(losses)}{edge})"


def _pitfalls(plan: Plan) -> Iterator[str]:
    """Yield each pitfall of the design once, with the variants that have it."""
    titles_by_pitfall: dict[Pitfall, list[str]] = {}
    for variant in plan.variants:
        for pitfall in variant.record.pitfalls:
            titles_by_pitfall.setdefault(pitfall, []).append(variant.record.title)
    for pitfall, titles in titles_by_pitfall.items():
        is_everywhere = len(titles) == len(plan.variants)
        variants = "every variant" if is_everywhere else listed(titles, MAX_NAMES)
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

    A ``d_ff`` that matching has changed follows the configured width and an arrow. The path is a single word if it is
    the same for all roles, else a word for each role. The last cell is the name for ``h2h run --only``.
    """
    record = variant.record
    counts = record.counts
    name = record.title
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
        variant.slug,
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

"""A Shapley path in a report: its answer in one sentence, and the section on its choices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headtohead.analysis.shapley import ChoiceGroup, PathAnalysis, ShapleyValue
from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.report.blocks import (
    Block,
    BulletList,
    CellNote,
    Column,
    DataTable,
    Heading,
    NamedFigure,
    Paragraph,
    TableCell,
    TableRow,
)
from headtohead.report.cells import paired_cell, verdict_cells, verdict_columns
from headtohead.statistics.paired_tests import Paired
from headtohead.statistics.shapley import SampledDifference
from headtohead.statistics.verdicts import EQUIVALENT, INCONCLUSIVE
from headtohead.storage.metrics import counted, readable, show, show_p

COUNTED_IN_TOKENS = ("token_accuracy", "loss", "perplexity")
"""Metrics that depend on the tokenisation."""

MOST_NAMES = 5
"""Maximum number of choices that a clause names; the table contains all."""

USEFUL = 0.1
"""Half of the largest useful width of an interval, as a fraction of the total difference."""

UNCERTAINTY = {False: "over seeds and permutations", True: "over seeds"}
"""What the interval of a Shapley value includes, by whether all permutations are evaluated."""

Part = ShapleyValue | ChoiceGroup
"""A part of the total difference that an answer names."""


def path_answer(path: PathAnalysis) -> str:
    """Return a sentence with the total difference and its main cause, then a sentence for each kind of result."""
    detected = _detected(path)
    grouped = {name for part in detected if isinstance(part, ChoiceGroup) for name in part.choices}
    single = [value for value in path.values if not set(value.choices) <= grouped]
    largest, *also = _largest(path, detected)
    sentences = ["; ".join(filter(None, (_total(path), largest))), *also]
    inconclusive = [value for value in single if value.inconclusive]
    mixed = [value for value in single if value.mixed]
    unknown = [value for value in path.values if not value.known]
    if inconclusive and not detected and not unknown and not mixed:
        sentences.append("No choice has a detected effect")
    elif len(inconclusive) + len(mixed) > MOST_NAMES:
        depends = f", {len(mixed)} of them with a detected change in single permutations" if mixed else ""
        sentences.append(f"{len(inconclusive) + len(mixed)} other choices are inconclusive{depends}")
    else:
        if inconclusive:
            sentences.append(f"Inconclusive: {_names(inconclusive)}")
        if mixed:
            sentences.append(f"Inconclusive on average, with a detected change in single permutations: {_names(mixed)}")
    unchanged = [value for value in single if value.equal_by_construction or (_identical(value) and not value.mixed)]
    if unchanged:
        sentences.append(f"Without any effect: {_names(unchanged)}")
    if unknown:
        sentences.append(f"Not tested: {_names(unknown)} ({unknown[0].contrast.reason})")
    return "".join(f"{sentence}. " for sentence in sentences).rstrip()


def _detected(path: PathAnalysis) -> list[Part]:
    """Return the detected groups and the detected choices outside of them, largest first."""
    groups = [group for group in path.groups if group.detected]
    grouped = {name for group in groups for name in group.choices}
    values = [value for value in path.values if value.contrast.detected and not set(value.choices) <= grouped]
    return sorted([*groups, *values], key=lambda part: -abs(part.sampled.mean) if part.sampled else 0.0)


def _total(path: PathAnalysis) -> str:
    start, end = path.names
    metric = readable(path.total.metric)
    total = path.total.paired
    if total is None:
        reason = (path.total.reason or "").removeprefix("not ranked: ")
        return f"the difference between {start} and {end} is not known ({reason})"
    if path.total.verdict in (INCONCLUSIVE, EQUIVALENT):
        amount = _amount(total, path.total.metric)
        return f"the difference between {start} and {end} in {metric} is {path.total.verdict_text}, {amount}"
    if total.mean == 0:
        return f"{start} and {end} have the same {metric}"
    return f"from {start} to {end} {metric} changes by {_amount(total, path.total.metric)}{_single_seed(total)}"


def _largest(path: PathAnalysis, detected: list[Part]) -> list[str]:
    """Return a clause on the largest part, which may be empty, and a sentence on the other detected parts."""
    if not detected:
        return [_largest_untested(path)]
    total, metric = path.total.paired, path.total.metric
    same_sign: list[Part] = []
    if total and path.total.detected:
        same_sign = [part for part in detected if part.sampled and part.sampled.mean * total.mean > 0]
    first = (same_sign or detected)[0]
    plural = isinstance(first, ChoiceGroup)
    if same_sign:
        part = "most" if path.exceeds(first, 0.5) else "the largest part"
        if path.exceeds(first, 1.0):  # other choices counteract it
            part = "more than all"
        verb = f"{'account' if plural else 'accounts'} for {part} of it"
    elif plural:
        verb = "have the largest detected joint effect"
    else:
        verb = "has the largest detected Shapley value"
    clause = f"{_described(path, first)} {verb}: {_part_amount(first, metric)}"
    others = [part for part in detected if part is not first]
    if not others:
        return [clause]
    others_listed = ", ".join(f"{part.name} {_part_amount(part, metric)}" for part in others[:MOST_NAMES])
    more = others[MOST_NAMES:]
    size = max((abs(part.sampled.mean) for part in more if part.sampled), default=0.0)
    rest = f" and {len(more)} more of at most {show(size, metric)} each" if more else ""
    return [clause, f"Also detected: {others_listed}{rest}"]


def _described(path: PathAnalysis, part: Part) -> str:
    """Return the choices of a part with their values at both ends."""
    if isinstance(part, ShapleyValue):
        return _with_values(part)
    by_choices = {value.choices: value for value in path.values}
    named = [by_choices.get((name,)) for name in part.choices]
    texts = [_with_values(value) if value else name for value, name in zip(named, part.choices, strict=True)]
    return f"{listed(texts)}, which work only together,"


def _part_amount(part: Part, metric: str) -> str:
    return _amount(part.sampled, metric) if part.sampled else "0"


def _largest_untested(path: PathAnalysis) -> str:
    known = [value for value in path.known if value.contrast.paired is not None]
    if not known or path.total.paired is None:
        return ""
    if path.total.paired.kind == "single":
        largest = known[0]
        return (
            f"{largest.name} has the largest Shapley value, {_part_amount(largest, path.total.metric)}, which a single "
            "seed cannot test"
        )
    return ""


def _with_values(value: ShapleyValue) -> str:
    return f"{value.name} ({value.before} → {value.after})"


def _amount(difference: Paired | SampledDifference, metric: str) -> str:
    size = show(difference.mean, metric, signed=True)
    if difference.kind == "constant":
        return f"{size} in every seed"
    if not math.isfinite(difference.low):
        return size
    low, high = (show(end, metric, signed=True) for end in (difference.low, difference.high))
    return f"{size} (95 % interval {low} to {high})"


def _single_seed(paired: Paired) -> str:
    return ", one seed" if paired.kind == "single" else ""


def _names(values: list[ShapleyValue]) -> str:
    return listed([value.name for value in values], most=MOST_NAMES)


def _identical(value: ShapleyValue) -> bool:
    return value.sampled is not None and value.sampled.kind == "identical"


def path_blocks(analysis: Analysis, figures: Sequence[str] = ()) -> list[Block]:
    """Return the section; empty without a Shapley path."""
    path = analysis.path
    if path is None:
        return []
    start, end = path.names
    blocks: list[Block] = [
        Heading(2, "Choice by choice", "path", "Choice by choice"),
        Paragraph(
            f"The change of {readable(path.total.metric)} that each choice causes between {start} and {end}, averaged "
            f"over the evaluated permutations, with its 95 % interval {UNCERTAINTY[path.complete]}. Alone: the change "
            "when only this choice is applied to the start. Last: the change when this choice is applied after all "
            "others. These two columns are described over seeds, not tested.",
            "note",
        ),
        choice_table(path),
    ]
    if inconclusive := inconclusive_choices(path):
        blocks.append(Paragraph(inconclusive))
    if together := joint_effects(path):
        blocks.append(BulletList(tuple(together)))
    blocks.append(BulletList((*permutation_facts(analysis, path), *inseparable_choices(path))))
    if "contrasts" in figures:
        caption = (
            "Every point is a seed, averaged over the evaluated permutations; the bar is the 95 % interval over these "
            "seeds, for these permutations. Grey: no detected effect."
        )
        blocks.append(NamedFigure("contrasts", "Shapley values, a point per seed", caption))
    return blocks


def waterfall(path: PathAnalysis) -> NamedFigure:
    """Return the waterfall figure from the score of the start to that of the end."""
    start, end = path.names
    caption = (
        f"From the score of {start} to that of {end}: the Shapley values of the choices, largest first. Black lines "
        f"are 95 % intervals {UNCERTAINTY[path.complete]}. Thin strokes are the changes in single permutations, "
        f"{path.num_permutations} of {path.possible:,}. Grey: no detected effect."
    )
    return NamedFigure("waterfall", "the total difference, choice by choice", caption)


def choice_table(path: PathAnalysis) -> DataTable:
    """Return the table of choices, largest value first, with the remainder and the total difference."""
    verdict, p, *tests = verdict_columns(path.family.tested, "choices")
    p = replace(p, tooltip=f"t-test {UNCERTAINTY[path.complete]}, Holm-adjusted over {path.family.tested} choices")
    permutations = (
        "smallest and largest change among the evaluated permutations; below it the standard error from sampling "
        "permutations"
    )
    columns = (
        Column("choice", align="left"),
        Column("Shapley\nvalue"),
        verdict,
        Column("over\npermutations", tooltip=permutations),
        Column("alone"),
        Column("last"),
        p,
        *tests,
    )
    metric = path.total.metric
    rows = [*map(_choice, path.values), *(_group_row(group, metric) for group in path.groups)]
    if path.remainder and not math.isnan(path.remainder):
        rows.append(TableRow((TableCell("not tested"), TableCell(show(path.remainder, metric, signed=True)))))
    total = TableCell("total difference"), paired_cell(path.total.paired, metric), TableCell(path.total.verdict_text)
    return DataTable(columns, (*rows, TableRow(total, emphasised=True)))


def _group_row(group: ChoiceGroup, metric: str) -> TableRow:
    """Return the row of a group, with its joint effect; it is a sum of rows above and not tested."""
    joint = paired_cell(group.sampled, metric)
    return TableRow((TableCell(group.name, (CellNote("together, sum of the rows above", "interval wrap"),)), joint))


def joint_effects(path: PathAnalysis) -> list[str]:
    """Return sentences on groups of choices and on pairs with an effect beyond the sum of their single effects."""
    metric = path.total.metric
    lines = []
    for group in path.groups:
        first, last = (
            " to ".join(show(end, metric, signed=True) for end in ends) for ends in (group.first, group.last)
        )
        others = "the first" if len(group.choices) == 2 else "all but the last"
        lines.append(
            f"{group.name} work only together: their joint effect is {_amount(group.sampled, metric)}. In single "
            f"permutations {others} of them changes {readable(metric)} by {first}, and the last by {last}."
        )
    count = math.comb(len(path.record.choices), 2)
    lines += [
        f"{effect.pair[0]} and {effect.pair[1]}: applied together they change {readable(metric)} by "
        f"{show(effect.mean, metric, signed=True)} (95 % interval {show(effect.low, metric, signed=True)} to "
        f"{show(effect.high, metric, signed=True)}) beyond the sum of their single effects, p {_p(effect.p)} "
        f"(Bonferroni over {counted(count, 'pair')})."
        for effect in path.effects
    ]
    if not lines and count and len(path.by_seed) > 1 and len(path.known) == len(path.values):
        lines.append("No pair of choices has a detected effect beyond the sum of their single effects.")
    return lines


def _p(p: float) -> str:
    return show_p(p) if p < 0.0005 else f"= {show_p(p)}"


def inconclusive_choices(path: PathAnalysis) -> str | None:
    """Return a sentence with the names of the choices without a detected effect, or None."""
    if not any(value.inconclusive or value.equal_by_construction for value in path.values):
        return None
    names = [value.name for value in path.values if value.known and not value.contrast.detected and not value.mixed]
    return f"No detected effect: {', '.join(names)}."


def permutation_facts(analysis: Analysis, path: PathAnalysis) -> list[str]:
    """Return sentences on the evaluated permutations, coalitions and tokenisations."""
    return [*_permutations(path), _coalitions(analysis, path), *_blocked(path), *_tokens(analysis, path)]


def inseparable_choices(path: PathAnalysis) -> list[str]:
    """Return sentences on the choices that require other choices."""
    return [*_incompatible_alone(path), *_groups(path)]


def _choice(value: ShapleyValue) -> TableRow:
    contrast, metric, sampled = value.contrast, value.contrast.metric, value.sampled
    spread = [show(end, metric, signed=True) for end in contrast.spread or ()]
    verdict, *tests = verdict_cells(contrast)
    return TableRow(
        (
            TableCell(value.name, (CellNote(f"{value.before} → {value.after}", "interval wrap"),)),
            TableCell("0", tooltip=contrast.reason or "")
            if value.equal_by_construction
            else paired_cell(sampled, metric, contrast.reason),
            verdict,
            TableCell(" to ".join(spread) or "–", (CellNote(f"± {show(_sampling_error(sampled), metric)}"),)),
            paired_cell(value.alone.paired, metric, value.alone.reason),
            paired_cell(value.without.paired, metric, value.without.reason),
            *tests,
        )
    )


def _sampling_error(sampled: SampledDifference | None) -> float:
    """Return the standard error of a value from sampling permutations."""
    return math.sqrt(max(0.0, sampled.sampling_variance)) if sampled else math.nan


def _permutations(path: PathAnalysis) -> list[str]:
    evaluated, possible = path.num_permutations, path.possible
    if path.complete:
        return [
            f"All {possible} permutations of the {len(path.record.choices)} choices were evaluated: "
            "the Shapley values of these runs are exact."
        ]
    return [
        f"{evaluated} of {possible:,} permutations were evaluated, sampled at random (seed "
        f"{path.record.orders.seed}), each with its reverse if both are compatible. A Shapley value is the average "
        "over these permutations. The range is over the evaluated permutations, and ± is the standard error from "
        "sampling permutations. The interval and the verdict include seeds and permutations.",
        *_more_permutations(path),
    ]


def _more_permutations(path: PathAnalysis) -> list[str]:
    """Return how many permutations wide intervals need, or that the evaluated permutations suffice."""
    total, metric = path.total.paired, path.total.metric
    if total is None or not path.total.detected or total.n < 2:
        return []
    width = USEFUL * abs(total.mean)
    grouped = {name for group in path.groups for name in group.choices}
    parts: list[Part] = [*path.groups, *(value for value in path.known if not set(value.choices) <= grouped)]
    parts += [value for value in path.known if set(value.choices) <= grouped]
    wide = [part for part in parts if part.sampled and (part.sampled.high - part.sampled.low) / 2 > width]
    target = f"± {show(width, metric)} ({100 * USEFUL:.0f} % of the total difference)"
    if not wide:
        return [f"All intervals are at most {target} wide; more permutations are not needed for this width."]
    needed = {part.name: path.permutations_needed(part.sampled, width) for part in wide if part.sampled}
    lines = []
    if counts := {name: count for name, count in needed.items() if count is not None}:
        by_choice = ", ".join(f"about {count:,} for {name}" for name, count in counts.items())
        lines.append(
            f"Intervals of at most {target} need more permutations than the {path.num_permutations} of this path: "
            f"{by_choice}."
        )
    if seeds := [name for name, count in needed.items() if count is None]:
        lines.append(f"Intervals of at most {target} need more seeds for {', '.join(seeds)}.")
    return lines


def _coalitions(analysis: Analysis, path: PathAnalysis) -> str:
    choices = len(path.record.choices)
    trained = len(analysis.frames.by_slug)
    return f"{choices} choices have {2**choices:,} coalitions; {trained} of them are part of this study."


def _blocked(path: PathAnalysis) -> list[str]:
    orders = path.record.orders
    number = sum(orders.blocked.values())
    if not number:
        return []
    reasons = "; ".join(f"{reason} ({times})" for reason, times in orders.blocked.items())
    return [
        f"{number} of the {orders.tried} sampled permutations contain an incompatible coalition: {reasons}. "
        "Permutations without incompatible coalitions were preferred, so that the Shapley values are averages over "
        "such permutations."
    ]


def _tokens(analysis: Analysis, path: PathAnalysis) -> list[str]:
    metric = path.total.metric
    counted = metric.rsplit("/", 1)[-1].removesuffix("_unpadded") in COUNTED_IN_TOKENS
    tokenisations = max(analysis.frames.runs.groupby("seed")["data_hash"].nunique(), default=0)
    if not counted or tokenisations < 2:
        return []
    return [
        f"The coalitions tokenise the sentences in {tokenisations} different ways. {readable(metric)} is computed on "
        "each coalition's own tokens, including boundary tokens, so a choice can change it by changing the tokens."
    ]


def _incompatible_alone(path: PathAnalysis) -> list[str]:
    lines = []
    start, end = path.names
    for inseparable in path.record.inseparable:
        position = f"applied alone to {start}" if inseparable.end == "from" else f"removed alone from {end}"
        partners = f"; it requires {' or '.join(inseparable.needs)}" if inseparable.needs else ""
        lines.append(f"{inseparable.choice} is incompatible when {position}: {inseparable.reason}{partners}.")
    return lines


def _groups(path: PathAnalysis) -> list[str]:
    steps = Counter(
        frozenset(step.choices)
        for permutation in path.record.permutations
        for step in permutation
        if len(step.choices) > 1
    )
    names = [choice.name for choice in path.record.choices]
    return [
        f"{listed([name for name in names if name in group])} were applied as a group in {times} of "
        f"{path.num_permutations} permutations, because they are incompatible separately there. The group's effect is "
        "a row of its own; the values of the single choices come from the other permutations."
        for group, times in steps.items()
    ]

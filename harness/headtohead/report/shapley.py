"""A Shapley path in a report: its answer in one sentence, and the section on its choices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.shapley import PathAnalysis, ShapleyValue
from headtohead.analysis.study import Analysis
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
from headtohead.statistics.verdicts import EQUIVALENT, INCONCLUSIVE
from headtohead.storage.metrics import readable, show

COUNTED_IN_TOKENS = ("token_accuracy", "loss", "perplexity")
"""Metrics that depend on the tokenisation."""

MOST_NAMES = 5
"""Maximum number of choices that a clause names; the table contains all."""


def path_answer(path: PathAnalysis) -> str:
    """Return the total difference and the choices that cause it, as a sentence."""
    detected = [value for value in path.values if value.contrast.detected]
    parts = [_total(path), *_largest(path, detected)]
    inconclusive = [value for value in path.values if value.inconclusive]
    mixed = [value for value in path.values if value.mixed]
    unknown = [value for value in path.values if not value.known]
    if inconclusive and not detected and not unknown and not mixed:
        parts.append("no choice has a detected effect")
    elif inconclusive:
        parts.append(f"inconclusive: {_names(inconclusive)}")
    if mixed:
        names = [value.name + _range(value) for value in mixed[:MOST_NAMES]]
        more = f" and {len(mixed) - MOST_NAMES} more" if len(mixed) > MOST_NAMES else ""
        parts.append(f"inconclusive on average: {' and '.join(names)}{more}")
    unchanged = [
        value for value in path.values if value.equal_by_construction or (_identical(value) and not value.mixed)
    ]
    if unchanged:
        parts.append(f"{_names(unchanged)} changed no score")
    if unknown:
        parts.append(f"not tested: {_names(unknown)} ({unknown[0].contrast.reason})")
    return "; ".join(parts) + "."


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


def _largest(path: PathAnalysis, detected: list[ShapleyValue]) -> list[str]:
    """Return a clause on the largest detected value, and a clause on the other detected values."""
    if not detected:
        return _largest_untested(path)
    total = path.total.paired
    same_sign = [value for value in detected if total and value.mean * total.mean > 0]
    first = (same_sign or detected)[0]
    metric = path.total.metric
    if same_sign and path.total.detected:
        part = "most" if path.is_most(first) else "the largest part"
        verb = f"accounts for {part} of it"
    else:
        verb = "has the largest Shapley value"
    clause = f"{_with_values(first)} {verb}, {_value_amount(first)}{_range(first)}"
    others = [value for value in detected if value is not first]
    if not others:
        return [clause]
    listed = ", ".join(f"{value.name} {_value_amount(value)}" for value in others[:MOST_NAMES])
    more = others[MOST_NAMES:]
    rest = f" and {len(more)} more of at most {show(abs(more[0].mean), metric)} each" if more else ""
    return [clause, f"also detected: {listed}{rest}"]


def _largest_untested(path: PathAnalysis) -> list[str]:
    known = [value for value in path.known if value.contrast.paired is not None]
    if not known or path.total.paired is None:
        return []
    if path.total.paired.kind == "single":
        largest = known[0]
        return [f"{largest.name} has the largest Shapley value, {_value_amount(largest)}; a single seed allows no test"]
    return []


def _with_values(value: ShapleyValue) -> str:
    return f"{value.name} ({value.before} → {value.after})"


def _value_amount(value: ShapleyValue) -> str:
    paired = value.contrast.paired
    return _amount(paired, value.contrast.metric) if paired else "0"


def _amount(paired: Paired, metric: str) -> str:
    size = show(paired.mean, metric, signed=True)
    if paired.kind == "constant":
        return f"{size} in every seed"
    if not math.isfinite(paired.low):
        return size
    low, high = (show(end, metric, signed=True) for end in (paired.low, paired.high))
    return f"{size} (95 % interval {low} to {high})"


def _single_seed(paired: Paired) -> str:
    return ", one seed" if paired.kind == "single" else ""


def _range(value: ShapleyValue) -> str:
    """Return the smallest and the largest change of a choice, if the permutations differ."""
    spread = value.contrast.spread
    if spread is None:
        return ""
    low, high = (show(end, value.contrast.metric, signed=True) for end in spread)
    return f", {low} to {high} in single permutations" if low != high else ""


def _names(values: list[ShapleyValue]) -> str:
    names = [value.name for value in values]
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _identical(value: ShapleyValue) -> bool:
    return value.contrast.paired is not None and value.contrast.paired.kind == "identical"


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
            "over the evaluated permutations, with its 95 % interval over seeds. Alone: the change when only this "
            "choice is applied to the start. Last: the change when this choice is applied after all others. These two "
            "columns are described, not tested.",
            "note",
        ),
        choice_table(path),
    ]
    if inconclusive := inconclusive_choices(path):
        blocks.append(Paragraph(inconclusive))
    blocks.append(BulletList((*permutation_facts(analysis, path), *inseparable_choices(path))))
    if "contrasts" in figures:
        caption = (
            "Every point is a seed, averaged over the evaluated permutations; the bar is the 95 % interval of the "
            "mean. Grey: no detected effect."
        )
        blocks.append(NamedFigure("contrasts", "Shapley values, a point per seed", caption))
    return blocks


def waterfall(path: PathAnalysis) -> NamedFigure:
    """Return the waterfall figure from the score of the start to that of the end."""
    start, end = path.names
    caption = (
        f"From the score of {start} to that of {end}: the Shapley values of the choices, largest first. Black lines "
        "are 95 % intervals over seeds. Thin strokes are the changes in single permutations, "
        f"{path.num_permutations} of {path.possible:,}. Grey: no detected effect."
    )
    return NamedFigure("waterfall", "the total difference, choice by choice", caption)


def choice_table(path: PathAnalysis) -> DataTable:
    """Return the table of choices, largest value first, with the remainder and the total difference."""
    verdict, *tests = verdict_columns(path.family.tested, "choices")
    permutations = (
        "smallest and largest change among the evaluated permutations; below it the standard error of the Shapley "
        "value as an estimate of the average over all permutations"
    )
    columns = (
        Column("choice", align="left"),
        Column("Shapley\nvalue"),
        verdict,
        Column("over\npermutations", tooltip=permutations),
        Column("alone"),
        Column("last"),
        *tests,
    )
    metric = path.total.metric
    rows = [_choice(value) for value in path.values]
    if path.remainder and not math.isnan(path.remainder):
        rows.append(TableRow((TableCell("not tested"), TableCell(show(path.remainder, metric, signed=True)))))
    total = TableCell("total difference"), paired_cell(path.total.paired, metric), TableCell(path.total.verdict_text)
    return DataTable(columns, (*rows, TableRow(total, emphasised=True)))


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
    contrast, metric = value.contrast, value.contrast.metric
    spread = [show(end, metric, signed=True) for end in contrast.spread or ()]
    verdict, *tests = verdict_cells(contrast)
    return TableRow(
        (
            TableCell(value.name, (CellNote(f"{value.before} → {value.after}", "interval wrap"),)),
            TableCell("0", tooltip=contrast.reason or "")
            if value.equal_by_construction
            else paired_cell(contrast.paired, metric, contrast.reason),
            verdict,
            TableCell(" to ".join(spread) or "–", (CellNote(f"± {show(value.permutation_error, metric)}"),)),
            paired_cell(value.alone.paired, metric, value.alone.reason),
            paired_cell(value.without.paired, metric, value.without.reason),
            *tests,
        )
    )


def _permutations(path: PathAnalysis) -> list[str]:
    evaluated, possible = path.num_permutations, path.possible
    if evaluated == possible:
        return [
            f"All {possible} permutations of the {len(path.record.choices)} choices were evaluated: "
            "the Shapley values of these runs are exact."
        ]
    return [
        f"{evaluated} of {possible:,} permutations were evaluated, sampled at random (seed "
        f"{path.record.orders.seed}), each with its reverse if both are compatible. A Shapley value is the average "
        "over these permutations. The range is over the evaluated permutations, and ± is the standard error of the "
        "average as an estimate of that over all permutations. The interval is over seeds and does not include the "
        "error from sampling permutations."
    ]


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
        f"{' and '.join(name for name in names if name in group)} were applied as a group in {times} of "
        f"{path.num_permutations} permutations, because they are incompatible separately there. The group's effect is "
        "a row of its own; the values of the single choices come from the other permutations."
        for group, times in steps.items()
    ]

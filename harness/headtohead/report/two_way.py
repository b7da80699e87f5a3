"""The section on two crossed axes: the best combinations, and a table of the scores of all pairs of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, Scope, TwoWayResult, TwoWayTable, VarianceShares
from headtohead.report.blocks import (
    Block,
    BulletList,
    CellNote,
    Column,
    DataTable,
    Details,
    Heading,
    Paragraph,
    Span,
    TableCell,
    TableRow,
)
from headtohead.report.cells import blank, score_cell
from headtohead.statistics.verdicts import EQUIVALENT, INCONCLUSIVE, NO_VERDICT, WORSE, Verdict
from headtohead.storage.metrics import higher_is_better, readable, show, show_p

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""

NAMED = 3
"""Number of combinations that the answer names."""

SCOPES: dict[Scope, str] = {
    "all": "all combinations",
    "values": "values with which at least half of the combinations work",
    "working": "combinations that work",
}
"""Names of the sets of combinations with a decomposition of variance."""

LISTED = 10
"""Number of combinations in the table of the best; the others are folded."""


def two_way_answer(analysis: Analysis) -> str | None:
    """Return the answer to the question of a two-way table as sentences, or None without such a table."""
    result = analysis.two_way
    if result is None:
        return None
    table = result.table
    sentences = [_best(analysis, table, result), _compared(analysis, result), _explained(analysis, table, result)]
    return " ".join(filter(None, sentences))


def two_way_blocks(analysis: Analysis) -> list[Block]:
    """Return the section; empty for an experiment without a two-way table."""
    result = analysis.two_way
    if result is None:
        return []
    table = result.table
    metric, (row_axis, column_axis) = readable(analysis.metric), table.axes
    blocks: list[Block] = [
        Heading(2, "Every pair", "pairs", "Every pair"),
        Paragraph(two_way_answer(analysis) or ""),
        *_ranking(analysis, result),
        *_shares(table, result),
        Paragraph(
            f"{metric[:1].upper()}{metric[1:]} of every {row_axis} with every {column_axis}: mean and half of the 95 % "
            "interval over seeds. Darker is better. Rows and columns are sorted by the median of their cells, best "
            "first.",
            "note",
        ),
        two_way_table(analysis, table),
    ]
    sentences = [*_rule(analysis, result), *_excluded(table)]
    return [*blocks, BulletList(tuple(sentences))] if sentences else blocks


def _best(analysis: Analysis, table: TwoWayTable, result: TwoWayResult) -> str:
    """Return the best combinations with their intervals."""
    row_axis, column_axis = table.axes
    names = [
        f"{combination.name}, {show(combination.summary.mean, analysis.metric)}{_interval(analysis, combination)}"
        for combination in result.ranking[:NAMED]
    ]
    level = "lowest" if not higher_is_better(analysis.metric) else "highest"
    unranked = [slug for slug in table.cells.values() if slug in analysis.withheld]
    note = f" (without {len(unranked)} that {'is' if len(unranked) == 1 else 'are'} not ranked)" if unranked else ""
    return (
        f"Of {len(result.ranking)} combinations of {row_axis} and {column_axis}{note}, these have the {level} "
        f"{readable(analysis.metric)}: {'; '.join(names)}."
    )


def _interval(analysis: Analysis, combination: Combination) -> str:
    summary = combination.summary
    if summary.n < 2:
        return ""
    return f" (95 % interval {show(summary.low, analysis.metric)} to {show(summary.high, analysis.metric)})"


def _compared(analysis: Analysis, result: TwoWayResult) -> str:
    """Return how many combinations are equivalent to the best, or without a margin not significantly worse."""
    best, *others = result.ranking
    verdicts = Counter(_verdict(combination) for combination in others)
    if best.comparison is None or not others:
        return ""
    if result.margin is None:
        return (
            f"Of the other {len(others)}, {_are(verdicts[WORSE])} significantly worse than at least one combination. "
            "Any of the rest may be the best; without a margin, this does not show equality."
        )
    late = " (margin set after results existed)" * result.late_margin
    return (
        f"Of the other {len(others)}, {_are(verdicts[EQUIVALENT])} equivalent to the best within "
        f"{show(result.margin, analysis.metric)}{late}, {_are(verdicts[WORSE])} worse and "
        f"{_are(verdicts[INCONCLUSIVE])} inconclusive."
    )


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _verdict(combination: Combination) -> Verdict:
    comparison = combination.comparison
    if comparison is None:
        return NO_VERDICT
    if comparison.is_equivalent:
        return EQUIVALENT
    return WORSE if comparison.is_worse else INCONCLUSIVE


def _explained(analysis: Analysis, table: TwoWayTable, result: TwoWayResult) -> str:
    """Return the fractions of variance among the combinations that work and among all."""
    every, working = result.shares.get("all"), next(reversed([*result.shares.values()]), None)
    if every is None:
        return ""
    if result.chance is None or result.working == len(result.ranking) or working is None:
        return f"Of the variance of the scores, {_fractions(table, every)}."
    return (
        f"{result.working} of the {len(result.ranking)} combinations work, with more than "
        f"{show(result.threshold, analysis.metric)}: of the variance among these, {_fractions(table, working)}. Among "
        f"all combinations, {_fractions(table, every)}."
    )


def _fractions(table: TwoWayTable, shares: VarianceShares) -> str:
    rows, columns = table.axes
    return (
        f"{columns} explains {_percent(shares.columns)}, {rows} {_percent(shares.rows)}, their interaction "
        f"{_percent(shares.interaction)} and the seed {_percent(shares.seeds)}"
    )


def _ranking(analysis: Analysis, result: TwoWayResult) -> list[Block]:
    """Return the table of the best combinations; those that follow are folded."""
    listed = result.ranking[:LISTED]
    folded = [combination for combination in result.ranking[LISTED:] if _verdict(combination) != WORSE]
    blocks: list[Block] = [_ranking_table(analysis, result, listed)]
    if folded:
        equal = "equivalent or " * (result.margin is not None)
        plural = "s that are" if len(folded) > 1 else " that is"
        summary = f"{len(folded)} more combination{plural} {equal}not significantly worse than any other"
        blocks.append(Details(summary, (_ranking_table(analysis, result, folded),)))
    return blocks


def _ranking_table(analysis: Analysis, result: TwoWayResult, listed: Sequence[Combination]) -> DataTable:
    count = len(result.ranking)
    columns = [
        Column("combination", align="left"),
        Column(readable(analysis.metric)),
        Column("verdict", align="left"),
        Column("worse: p", tooltip=f"one-sided paired t-tests against all others, Bonferroni over {count - 1}"),
    ]
    if result.margin is not None:
        tooltip = f"two one-sided paired t-tests against the best mean, Holm over {count - 1} combinations"
        columns.append(Column("equivalent: p", tooltip=tooltip))
    rows = []
    for combination in listed:
        comparison, is_best = combination.comparison, combination is result.ranking[0]
        cells = [
            TableCell(combination.name),
            score_cell(combination.summary, analysis.metric),
            TableCell("best" if is_best else _verdict(combination)),
            TableCell(show_p(comparison.worse_p if comparison and not is_best else None)),
        ]
        if result.margin is not None:
            cells.append(TableCell(show_p(comparison.equivalence_p if comparison and not is_best else None)))
        rows.append(TableRow(tuple(cells)))
    return DataTable(tuple(columns), tuple(rows))


def _shares(table: TwoWayTable, result: TwoWayResult) -> list[Block]:
    """Return the table of the fractions of variance."""
    rows, columns = table.axes
    headings = ("fraction of the variance over", "combinations", columns, rows, "interaction", "seed")
    lines = [
        TableRow(
            (
                TableCell(SCOPES[scope]),
                TableCell(str(shares.cells)),
                *map(TableCell, map(_percent, (shares.columns, shares.rows, shares.interaction, shares.seeds))),
            )
        )
        for scope, shares in result.shares.items()
    ]
    return [DataTable((Column(headings[0], align="left"), *map(Column, headings[1:])), tuple(lines))] if lines else []


def two_way_table(analysis: Analysis, table: TwoWayTable) -> DataTable:
    """Return the scores of all pairs; better scores have a darker background."""
    means = [summary.mean for summary in table.summaries.values()]
    span = (min(means), max(means)) if means else (0.0, 0.0)
    rows = (
        TableRow(
            (TableCell(Span(row, "strong")), *(_cell(analysis, table, row, column, span) for column in table.columns))
        )
        for row in table.rows
    )
    return DataTable((Column("", align="left"), *map(Column, table.columns)), tuple(rows), grid=True)


def _cell(analysis: Analysis, table: TwoWayTable, row: str, column: str, span: tuple[float, float]) -> TableCell:
    summary, metric = table.summary(row, column), analysis.metric
    if summary is None:
        slug = table.cells.get((row, column), "")
        return blank(table.reasons.get((row, column)) or analysis.withheld.get(slug, ""))
    low, high = span
    fraction = (summary.mean - low) / (high - low) if high > low else 0.0
    fraction = fraction if higher_is_better(metric) else 1 - fraction
    mean = show(summary.mean, metric)
    interval = f"± {show((summary.high - summary.low) / 2, metric)}" if summary.n > 1 else ""
    return TableCell(
        mean,
        (CellNote(interval),) if interval else (),
        tooltip=f"{row} · {column}: {mean} {interval}, {summary.n} seeds",
        shade=round(DARKEST * fraction),
    )


def _rule(analysis: Analysis, result: TwoWayResult) -> list[str]:
    """Return the definitions of the numbers of the section."""
    metric = analysis.metric
    lines = []
    if result.chance is not None:
        chance = "the bag-of-words upper bound" if result.chance else "the score of chance"
        lines.append(
            f"A combination works if its mean is more than {show(result.threshold, metric)}, halfway between {chance} "
            f"({show(result.chance, metric)}) and the best combination."
        )
    if result.ranking[0].comparison:
        lines.append(
            "The best combination is selected by these scores, so that its mean is likely too high. The test of a "
            "worse combination accounts for the selection: it compares the combination with all others, since each can "
            "be the best (Bonferroni). The test of equivalence compares with the best mean (Holm)."
        )
    return lines


def _excluded(table: TwoWayTable) -> list[str]:
    """Return the number of excluded pairs."""
    count = len(table.reasons)
    if not count:
        return []
    return [
        f"{count} pair{'s' * (count != 1)} of {len(table.rows)} × {len(table.columns)} "
        f"{'are' if count != 1 else 'is'} excluded; the section Runs lists the reasons."
    ]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "less than 1 %"

"""The section on two crossed axes: the best combinations, the variance explained, and the scores of all pairs."""

from __future__ import annotations

from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.report.answer import verdict_of
from headtohead.report.content import Report
from headtohead.report.section import Section, score, table
from headtohead.storage.metrics import higher_is_better, readable, show, show_p

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""


def two_way_section(report: Report) -> Section | None:
    """Return the table of all pairs with the ranking and the fractions of variance, or None without two such axes."""
    analysis = report.analysis
    result = analysis.two_way
    if result is None:
        return None
    metric, (rows, columns) = analysis.metric, result.axes
    means = [summary.mean for summary in result.cells.values()]
    low, high = min(means), max(means)

    def shade(row: str, column: str) -> int:
        summary = result.cells.get((row, column))
        if summary is None or high == low:
            return 0
        fraction = (summary.mean - low) / (high - low)
        return round(DARKEST * (fraction if higher_is_better(metric) else 1 - fraction))

    found = result.shares
    shares = found and {columns: found.columns, rows: found.rows, "interaction": found.interaction, "seed": found.seeds}
    parts = [{"source": name, "fraction of the variance": _percent(part)} for name, part in (shares or {}).items()]
    return Section(
        "Every pair",
        f"{readable(metric)} of every {rows} with every {columns}: mean and half of the 95 % interval over seeds, rows "
        "and columns by the median of their cells. Darker is better.",
        frame=table(
            {f"{rows} \\ {columns}": row, **{column: _cell(analysis, result, row, column) for column in result.columns}}
            for row in result.rows
        ),
        shade=[[0, *(shade(row, column) for column in result.columns)] for row in result.rows],
        parts=[
            Section(
                "Ranking",
                "The best mean is selected by these scores, so it is likely too high. Worse: one-sided paired "
                "t-tests against all others, Bonferroni. Equivalent: two one-sided tests against the best, Holm.",
                frame=table(_ranked(analysis, result, combination) for combination in result.ranking),
            ),
            *([Section("Variance", frame=table(parts))] if parts else []),
        ],
    )


def _ranked(analysis: Analysis, result: TwoWayResult, combination: Combination) -> dict[str, str]:
    comparison = None if combination is result.ranking[0] else combination.comparison
    row = {
        "combination": combination.name,
        readable(analysis.metric): score(combination.summary, analysis.metric),
        "verdict": "best" if combination is result.ranking[0] else verdict_of(combination),
        "worse: p": show_p(comparison.worse_p if comparison else None),
    }
    if result.margin is not None:
        row["equivalent: p"] = show_p(comparison.equivalence_p if comparison else None)
    return row


def _cell(analysis: Analysis, result: TwoWayResult, row: str, column: str) -> str:
    summary = result.cells.get((row, column))
    if summary is None:
        return "–"
    half = f"\n± {show((summary.high - summary.low) / 2, analysis.metric)}" if summary.n > 1 else ""
    return show(summary.mean, analysis.metric) + half


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "< 1 %"

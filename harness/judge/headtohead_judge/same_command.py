"""What ``judge --same`` does: check the options, compare, write the answer, print."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from headtohead_judge import files
from headtohead_judge.answer import interval_fields, plain
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.output import echo, echo_json, print_verdicts
from headtohead_judge.request import Request
from headtohead_judge.sameness import Comparison, Sameness, same
from headtohead_judge.text import Numbers

FORMAT = "headtohead-judge-same/1"

EXIT_LINES = {
    0: "exit code 0: every difference is inside the margin of {margin}",
    1: "exit code 1: a difference is larger than the margin of {margin}",
    3: "exit code 3: no difference is shown to be larger than the margin of {margin}, but not every one is inside it",
}
"""The last line of the output, by the exit code."""

SEEDS_LINE = (
    "{seeds} seeds of each side would show in 80 % of cases that equal runs are inside the margin"
)
NEAR_MARGIN_LINE = (
    "the observed difference is too near the margin: if the runs were equal, {seeds} seeds of each side would show it "
    "in 80 % of cases"
)
DECIMALS_LINE = (
    "the scores have too few decimals for this margin; write more, such as 0.8000 instead of 0.8"
)
EQUAL_DIFFERENCES_LINE = (
    "a difference that does not vary over seeds has no interval with so few seeds; train more seeds"
)
MANY_SEEDS_LINE = "equal runs need more than 1,000 seeds to be inside the margin in 80 % of cases"


def refuse_contradictions(request: Request) -> None:
    """Raise a `HeadToHeadError` if ``--same`` or ``--at`` contradicts other options."""
    if not request.same:
        if request.steps:
            raise HeadToHeadError("--at requires --same")
        return
    if request.margin is None:
        raise HeadToHeadError("--same requires --margin X, the smallest difference that matters")
    if request.ledger_file or request.looks or request.status or request.accept != ("better",):
        raise HeadToHeadError("--same does not accept --ledger, --status, --looks or --accept")
    for step in request.steps:
        if not math.isfinite(step):
            raise HeadToHeadError(f"--at must be a number such as 1000, got {step:g}")
    if len({*request.steps}) < len(request.steps):
        raise HeadToHeadError("--at names a step twice; remove one of them")


def run_same(request: Request, table: pd.DataFrame) -> int:
    """Compare the runs of a table, write and print the answer; return the exit code.

    Raises:
        HeadToHeadError: If the table does not permit the comparison, or the answer cannot be written.
    """
    assert request.margin is not None  # `refuse_contradictions`
    sameness = same(
        table,
        baseline=request.baseline,
        margin=request.margin,
        steps=request.steps,
        metric=request.metric,
        is_paired=not request.unpaired,
        variant_columns=request.variant_columns,
        seed_column=request.seed_column,
        step_column=request.step_column,
        candidates=request.candidates,
    )
    answer = answer_of(sameness)
    if request.answer is not None:
        _write(request, answer)
    for warning in sameness.warnings:
        echo(f"warning: {warning}", err=True)
    if request.form == "json":
        echo_json(answer)
    else:
        _print(sameness, is_markdown=request.form == "markdown")
    return sameness.exit_code


def answer_of(sameness: Sameness) -> dict[str, Any]:
    """Return the comparisons as JSON data."""
    comparisons = []
    for comparison in sameness.variants:
        judgement = comparison.judgement
        fields = {
            "variant": comparison.variant,
            "step": comparison.step,
            "seeds": comparison.seeds,
            "mean": comparison.mean,
            "baseline_mean": comparison.baseline_mean,
            "difference": comparison.difference.mean,
            "interval": interval_fields(judgement.interval),
            "verdict": judgement.verdict,
            "same": comparison.is_same,
        }
        comparisons.append(plain(fields))
    return {
        "format": FORMAT,
        "metric": sameness.metric,
        "margin": sameness.margin,
        "paired": sameness.is_paired,
        "baseline": sameness.baseline,
        "comparisons": comparisons,
        "seeds_needed": sameness.seeds_needed,
        "warnings": [*sameness.warnings],
        "exit_code": sameness.exit_code,
    }


def is_same_answer(content: bytes) -> bool:
    """Return whether a file is an answer of ``judge --same``."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("format") == FORMAT


def _write(request: Request, answer: dict[str, Any]) -> None:
    """Write the answer to the file of ``--answer``."""
    assert request.answer is not None
    advice = "choose another file with --answer"
    files.refuse_foreign(request.answer, is_same_answer, advice)
    with files.writing(request.answer, advice):
        text = json.dumps(answer, ensure_ascii=False, indent=1) + "\n"
        files.write_text(request.answer, text)


def _print(sameness: Sameness, *, is_markdown: bool) -> None:
    """Print the heading, a row per comparison, and the line on the exit code."""
    show = Numbers(sameness)
    pairing = "paired by seed" if sameness.is_paired else "unpaired"
    heading = f"{sameness.metric}: the same within {sameness.margin:g}? {pairing}; baseline {sameness.baseline}"
    rows = [_row(comparison, show) for comparison in sameness.variants]
    if all(comparison.step is None for comparison in sameness.variants):
        for row in rows:
            del row["step"]
    lines = [EXIT_LINES[sameness.exit_code].format(margin=f"{sameness.margin:g}")]
    if sameness.exit_code == 3:
        lines.insert(0, _seeds_line(sameness))
    print_verdicts(heading, rows, lines, is_markdown=is_markdown)


def _seeds_line(sameness: Sameness) -> str:
    """Return the line on what equal runs need: decimals, or a number of seeds, which the table can have already."""
    for comparison in sameness.variants:
        if comparison.judgement.interval is None:
            return EQUAL_DIFFERENCES_LINE
        if sameness.has_too_few_decimals(comparison):
            return DECIMALS_LINE
    needed = sameness.seeds_needed
    if needed is None:
        return MANY_SEEDS_LINE
    seeds = min(comparison.difference.n for comparison in sameness.variants)
    line = NEAR_MARGIN_LINE if needed <= seeds else SEEDS_LINE
    return line.format(seeds=needed)


def _row(comparison: Comparison, show: Numbers) -> dict[str, str]:
    """Return the cells of a comparison by column."""
    step = "" if comparison.step is None else f"{comparison.step:,g}"
    interval = comparison.judgement.interval
    ends = "–"
    if interval is not None and math.isfinite(interval.low):
        ends = f"{show(interval.low)} to {show(interval.high)}"
    return {
        "variant": comparison.variant,
        "step": step,
        "seeds": str(comparison.seeds),
        "baseline": show(comparison.baseline_mean),
        "mean": show(comparison.mean),
        "difference": show(comparison.difference.mean, signed=True),
        "95 % interval": ends,
        "verdict": comparison.judgement.verdict,
    }

"""Read the runs of a table: which row is which variant, seed and step, and whether its score counts.

A table has a row per variant and seed with a column per metric, or a row per variant, seed and metric with the columns
``metric`` and ``value``. Everything that would make a comparison wrong is an error here: a missing or repeated run, a
text in the place of a score, a copied run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from headtohead_judge.cells import single_spaced, texts_of
from headtohead_judge.copies import Run, equal_curves
from headtohead_judge.direction import has_direction
from headtohead_judge.errors import HeadToHeadError, similar_or_known
from headtohead_judge.listing import listed, shortened
from headtohead_judge.numbers import counted, decimals_of_single, decimals_written
from headtohead_judge.run_states import finished_rows

STEPS = ("step", "_step", "global_step", "epoch")
METRIC = "metric"
VALUE = "value"
TEST_PREFIXES = ("test/", "valid/", "eval/", "val/")

MIN_SIZE = 1e-60
MAX_SIZE = 1e60
"""Smallest and largest size of a score other than 0, so that the fourth power of a difference is a float."""

NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
NUMBER_WITH_MARKS = re.compile(
    r"[+−-]?(\d{1,3}([,.'’_ ]\d{3})+([,.]\d+)?|\d+([,.]\d*)?|[,.]\d+)([eE][+−-]?\d+)? ?[%‰]?", re.ASCII
)  # fmt: skip
"""Numbers that can have a percent sign, a decimal comma, thousands separators or a typographic minus sign."""

WHOLE_NUMBER = re.compile(r"\A(-?)0*([1-9]\d*|0)(\.0*)?\Z", re.ASCII)


@dataclass(frozen=True)
class Columns:
    """Names of the columns that identify a row.

    Attributes:
        variant: The columns whose values, joined, name the variant.
        seed: The column of the seed.
        step: The column of the step, if a run has a row per evaluation.
    """

    variant: tuple[str, ...]
    seed: str
    step: str | None


@dataclass(frozen=True)
class Runs:
    """The scores of the runs of a table.

    Attributes:
        metric: Name of the metric.
        curves: Scores of each run by step, the runs of a variant together.
        warnings: The warning about runs that are not finished, or nothing.
        decimals: Largest number of decimals of a score of each variant, as it is written: four of ``0.8000``.
        unread: Number of variants that are neither the baseline nor a candidate.
    """

    metric: str
    curves: dict[Run, dict[float, float]]
    warnings: tuple[str, ...]
    decimals: dict[str, int]
    unread: int

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """The last score of each run, by variant and seed."""
        scores: dict[str, dict[str, float]] = {}
        for run, curve in self.curves.items():
            scores.setdefault(run.variant, {})[run.seed] = curve[max(curve)]
        return scores


class _MetricColumn(NamedTuple):
    """The metric, the column of its scores, and the rows that hold them."""

    metric: str
    column: str
    table: pd.DataFrame


class _Row(NamedTuple):
    """The texts of a row; its number begins with 1."""

    number: int
    variant: str
    seed: str
    score: str
    step: str


def read_runs(
    table: pd.DataFrame,
    columns: Columns,
    metric: str | None,
    baseline: str | None,
    candidates: Sequence[str],
) -> Runs:
    """Return the scores of the runs of a table.

    Args:
        table: The table.
        columns: The columns of variant, seed and step.
        metric: Name of the metric; not needed if the table has a single one.
        baseline: The variant with which the others are compared.
        candidates: The variants beside the baseline that are read; all without any.

    Raises:
        HeadToHeadError: If a column or value is missing, a run has a step twice, two seeds of a variant have the same
            values at all steps, no run is finished, or a state of a run is not known.
    """
    baseline = single_spaced(baseline) if baseline else baseline
    candidates = [single_spaced(candidate) for candidate in candidates]
    table = table.set_axis([str(name) for name in table.columns], axis=1).reset_index(drop=True)
    _refuse_repeated_columns(table)
    table, warnings = finished_rows(table, (*columns.variant, columns.seed))
    _require_columns(table, columns)
    scores = _metric_column(table, metric, {*columns.variant, columns.seed})
    variants = _variant_names(scores.table, columns.variant)
    for candidate in candidates:
        if candidate not in variants:
            raise HeadToHeadError(
                f"no variant '{candidate}'{similar_or_known(candidate, variants)}"
            )
    rows = [*_rows(scores, variants, columns)]
    if candidates:
        rows = [row for row in rows if row.variant == baseline or row.variant in candidates]
    _refuse_summaries(rows)
    curves = _curves(rows, scores.metric, columns.step)
    _refuse_copies(curves)
    unread = {*variants} - {baseline, *candidates, ""} if candidates else set()
    return Runs(scores.metric, curves, tuple(warnings), _decimals(rows), len(unread))


SUMMARIES = frozenset(
    {"mean", "average", "avg", "median", "std", "stdev", "sd", "sem", "min", "max", "all", "total"}
)
"""Seeds of rows that are no runs, but computed from others, in lower case."""


def _refuse_summaries(rows: Sequence[_Row]) -> None:
    """Raise a `HeadToHeadError` if a row is a summary of others by its seed, such as ``mean``."""
    for row in rows:
        if row.seed.lower() in SUMMARIES:
            raise HeadToHeadError(
                f"row {row.number}: the seed '{row.seed}' is that of a summary, not of a run; remove such rows"
            )


def unjudged_warnings(runs: Runs) -> list[str]:
    """Return a warning if the table has variants that are not judged: the candidates may be the best of them."""
    if not runs.unread:
        return []
    others = counted(runs.unread, "other variant")
    verb = "is" if runs.unread == 1 else "are"
    return [
        f"{others} of the table {verb} not judged; the verdicts hold only if the candidates were chosen before their "
        "scores were seen"
    ]


def end_warnings(curves: Mapping[Run, Mapping[float, float]]) -> list[str]:
    """Return a warning if runs end at different steps."""
    last_steps = {run: max(curve) for run, curve in curves.items()}
    if len({*last_steps.values()}) < 2:
        return []
    ends = []
    for choose in (min, max):
        run = choose(last_steps, key=last_steps.__getitem__)
        seed = shortened(run.seed)
        ends.append(f"{last_steps[run]:g} (seed {seed} of '{shortened(run.variant)}')")
    return [
        f"runs end at different steps, from {ends[0]} to {ends[1]}; the last row of each counts"
    ]


def _refuse_repeated_columns(table: pd.DataFrame) -> None:
    """Raise a `HeadToHeadError` if two columns have one name."""
    repeated = table.columns[table.columns.duplicated()]
    if len(repeated):
        raise HeadToHeadError(
            f"the table has the column '{repeated[0]}' twice; remove or rename one of them"
        )


def _require_columns(table: pd.DataFrame, columns: Columns) -> None:
    """Raise a `HeadToHeadError` if a column that an option names is missing."""
    options = [(name, "--variant") for name in columns.variant]
    options.append((columns.seed, "--seed"))
    if columns.step is not None:
        options.append((columns.step, "--step"))
    names = [*table.columns]
    for name, option in options:
        if name in names:
            continue
        if len(names) == 1:
            raise HeadToHeadError(
                f"the table has one column, '{shortened(names[0])}'; commas separate the columns of .csv, and "
                "tabs those of .tsv"
            )
        numbers = [column for column in names if NUMBER.fullmatch(column)]
        if numbers and {option_name for option_name, _ in options}.isdisjoint(names):
            raise HeadToHeadError(
                f"the first line of the table has no column '{name}' but the number {numbers[0]}; begin with the names "
                "of the columns, such as variant,seed,accuracy"
            )
        raise HeadToHeadError(
            f"the table has no column '{name}'; columns: {listed(names)}; name it with {option}, or give the "
            "table one row per variant and seed, with the columns variant, seed and the metric"
        )


def _metric_column(
    table: pd.DataFrame, metric: str | None, identifying: Collection[str]
) -> _MetricColumn:
    """Return the column of the scores; ``identifying`` are the columns of variant and seed.

    Raises:
        HeadToHeadError: If the table does not have the metric, or without a name not exactly one metric.
    """
    is_long = METRIC in table.columns and VALUE in table.columns
    names = pd.Series(texts_of(table[METRIC]), table.index) if is_long else pd.Series(dtype=object)
    if metric is not None and metric in table.columns:
        if (names == metric).any():
            raise HeadToHeadError(
                f"'{metric}' is a column and a value of the column '{METRIC}'; remove or rename one of them"
            )
        return _MetricColumn(metric, metric, table)
    others = {*identifying, *STEPS}
    metrics = [*names.unique()] if is_long else [*_first_matches(table, NUMBER, others)]
    if metric is None:
        if not is_long:
            _refuse_marks(table, metrics, others)
        metric = _only_metric(metrics, table)
    elif metric not in metrics:
        raise HeadToHeadError(f"no metric '{metric}'{similar_or_known(metric, metrics)}")
    if is_long:
        return _MetricColumn(metric, VALUE, table[names == metric])
    return _MetricColumn(metric, metric, table)


def _only_metric(metrics: list[str], table: pd.DataFrame) -> str:
    """Return the only metric of a table; raise a `HeadToHeadError` if there is none, or another one."""
    if not metrics:
        raise HeadToHeadError(
            f"no column has scores, which are plain numbers such as 0.31; columns: {listed([*table.columns])}"
        )
    if len(metrics) > 1:
        metrics = sorted(metrics, key=lambda name: not name.startswith(TEST_PREFIXES))
        raise HeadToHeadError(f"several metrics; choose with --metric: {listed(metrics)}")
    return metrics[0]


def _first_matches(
    table: pd.DataFrame, pattern: re.Pattern[str], others: Collection[str]
) -> dict[str, str]:
    """Return the first value that a pattern matches of each column that has one, without the other columns."""
    matches = {}
    # Reading a column of an array is much faster than one of a frame.
    columns = table.to_numpy(dtype=object).T
    for name, values in zip(table.columns, columns, strict=True):
        if name in others:
            continue
        texts = (single_spaced(str(value)) for value in values)
        first = next(filter(pattern.fullmatch, texts), None)
        if first is not None:
            matches[name] = first
    return matches


def _refuse_marks(table: pd.DataFrame, metrics: list[str], others: Collection[str]) -> None:
    """Raise a `HeadToHeadError` if a column beside the metrics has numbers with marks, such as ``80 %`` or ``0,8``.

    It can be the metric that is meant, unless there is a metric and the name of the column is that of none, such as
    ``dropout``.
    """
    matches = _first_matches(table, NUMBER_WITH_MARKS, {*others, *metrics})
    for name, text in matches.items():
        if metrics and not has_direction(name):
            continue
        remedy = "write plain numbers such as 0.31"
        if metrics:
            remedy += f", or choose a metric with --metric: {listed(metrics)}"
        raise HeadToHeadError(
            f"the column '{name}' has numbers with a percent sign, comma or other mark, such as '{text}'; {remedy}"
        )


def _variant_names(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the name of the variant of each row; it is empty for a row without any."""
    names = []
    for parts in zip(*(texts_of(table[column]) for column in columns), strict=True):
        names.append(" · ".join(parts) if any(parts) else "")
    return names


def _rows(scores: _MetricColumn, variants: Sequence[str], columns: Columns) -> Iterator[_Row]:
    """Yield the rows of a table; without a column of steps, the step is 0."""
    table = scores.table
    steps = texts_of(table[columns.step]) if columns.step else ["0"] * len(table)
    seeds = texts_of(table[columns.seed])
    texts = texts_of(table[scores.column])
    for row in zip(table.index, variants, seeds, texts, steps, strict=True):
        index, *values = row
        yield _Row(index + 1, *values)


def _decimals(rows: Sequence[_Row]) -> dict[str, int]:
    """Return the largest number of decimals of a score of each variant, of float32 at most those that it has.

    A variant with the same score in every seed, such as 1.0, has the decimals of the other variants if it has no zero
    at its end: programs leave such zeros out.
    """
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(row.variant, []).append(row.score)
    decimals = {}
    for variant, scores in texts.items():
        written = max(decimals_written(score) for score in scores)
        computed = decimals_of_single(np.array(scores, dtype=np.float64))
        decimals[variant] = int(min(written, computed))
    unstated = {variant for variant, scores in texts.items() if _is_shortest_constant(scores)}
    of_others = [number for variant, number in decimals.items() if variant not in unstated]
    for variant in unstated:
        decimals[variant] = max([decimals[variant], *of_others])
    return decimals


def _is_shortest_constant(scores: Sequence[str]) -> bool:
    """Return whether all scores are one text, which is the shortest one of its number, such as ``1`` or ``1.0``."""
    if len({*scores}) > 1 or not NUMBER.fullmatch(scores[0]):
        return False
    number = float(scores[0])
    return scores[0] in (repr(number), f"{number:g}")


def _curves(
    rows: Sequence[_Row], metric: str, step_column: str | None
) -> dict[Run, dict[float, float]]:
    """Return the scores of each run by step, the runs of a variant together.

    Raises:
        HeadToHeadError: If a row has no variant, seed or score, or two rows of a run have the same step.
    """
    row_numbers: dict[Run, list[int]] = {}
    by_variant: dict[str, dict[Run, dict[float, float]]] = {}
    for row in rows:
        run = _run(row)
        score = _score(row, run, metric)
        step = 0.0
        if step_column:
            step = _number(row.step)
            if not math.isfinite(step):
                raise _not_a_number(row.step, f"row {row.number}: '{step_column}'")
        row_numbers.setdefault(run, []).append(row.number)
        by_variant.setdefault(run.variant, {}).setdefault(run, {})[step] = score
    curves = {}
    for curves_of_variant in by_variant.values():
        curves.update(curves_of_variant)
    for run, curve in curves.items():
        if len(curve) < len(row_numbers[run]):
            raise _repeated_rows(run, row_numbers[run])
    return curves


def _run(row: _Row) -> Run:
    """Return the run of a row; the seeds ``7``, ``07`` and ``7.0`` are one seed."""
    if not row.variant:
        raise HeadToHeadError(f"row {row.number} has no variant; every run needs one")
    if row.seed.lower() in ("", "nan"):
        raise HeadToHeadError(f"row {row.number} has no seed; every run needs one")
    return Run(row.variant, _seed(row.seed))


@lru_cache(maxsize=1024)
def _seed(text: str) -> str:
    """Return the name of a seed; whole numbers have neither zeros in front nor decimals."""
    whole = WHOLE_NUMBER.match(text)
    return text if whole is None else whole[1] + whole[2]


def _score(row: _Row, run: Run, metric: str) -> float:
    """Return the score of a row."""
    score = _number(row.score)
    if MIN_SIZE <= abs(score) <= MAX_SIZE or score == 0:
        return score
    subject = f"row {row.number}: '{metric}' of variant '{run.variant}', seed {shortened(run.seed)}"
    if not math.isfinite(score):
        remedy = "; give every run a score, or name the variants to judge with --candidate"
        raise _not_a_number(row.score, subject, remedy)
    raise HeadToHeadError(
        f"{subject} is {score:g}; scores must be 0 or between {MIN_SIZE:g} and {MAX_SIZE:g} in size: rescale the "
        "metric"
    )


def _number(text: str) -> float:
    """Return the number that a text is, NaN for any other text."""
    return float(text) if NUMBER.fullmatch(text) else math.nan


def _not_a_number(text: str, subject: str, remedy: str = "") -> HeadToHeadError:
    """Return the error about a text that is no finite number; ``subject`` begins it, and ``remedy`` ends it."""
    if not text:
        return HeadToHeadError(f"{subject} has no number{remedy}")
    return HeadToHeadError(f"{subject} is not a finite number: '{shortened(text)}'{remedy}")


def _repeated_rows(run: Run, numbers: Sequence[int]) -> HeadToHeadError:
    """Return the error about a run with several rows of a step."""
    rows = listed([str(number) for number in numbers])
    return HeadToHeadError(
        f"variant '{run.variant}' has seed {run.seed} twice (rows {rows}); a run counts once: remove the others, "
        "name further columns of the variant with --variant, or the column of the step with --step if a run has "
        "several rows"
    )


def _refuse_copies(curves: Mapping[Run, Mapping[float, float]]) -> None:
    """Raise a `HeadToHeadError` if two seeds of a variant have the same values at all steps."""
    with_steps = {run: curve for run, curve in curves.items() if len(curve) > 1}
    for group in equal_curves(with_steps):
        first_of: dict[str, Run] = {}
        for run in group:
            first = first_of.setdefault(run.variant, run)
            if first != run:
                raise HeadToHeadError(
                    f"variant '{run.variant}': seeds {first.seed} and {run.seed} have the same values at all "
                    f"{len(curves[run])} steps; a copied run is no further seed"
                )

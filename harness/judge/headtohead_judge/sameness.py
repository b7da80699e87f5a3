"""Are two sets of runs the same within a margin? Scores of variants, or their curves at stated steps, for refactors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from headtohead_judge import verdicts
from headtohead_judge.copies import Run
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.judging import (
    Scores,
    baseline_first,
    paired_differences,
    refuse_mixed_units,
    require_enough_seeds,
    require_equal_seeds,
    unpaired_differences,
    with_decimals,
)
from headtohead_judge.listing import listed
from headtohead_judge.paired_tests import (
    DECIMALS,
    SIGN_FLIP_SEEDS,
    Difference,
    few_seeds,
    interval,
    level_of_each,
)
from headtohead_judge.power import seeds_for_equivalence
from headtohead_judge.table import Columns, Runs, end_warnings, read_runs, unjudged_warnings
from headtohead_judge.verdicts import BY_MORE, Judgement, is_tested

Curves = Mapping[Run, Mapping[float, float]]
"""Scores of each run by step."""


class Variation(NamedTuple):
    """The variation of the difference of two sides, with a seed each.

    Attributes:
        deviation: Standard deviation of the difference: of paired differences, or the root of the sum of the variances
            of separate seeds.
        sides: Degrees of freedom for each further seed of both sides: 1 if seeds are paired, else those of Welch's
            t-test with equal numbers of seeds, 1 to 2.
    """

    deviation: float
    sides: float


@dataclass(frozen=True)
class Comparison:
    """A variant compared with the baseline at a step.

    Attributes:
        variant: Name of the variant.
        step: The step; None for the last score of each run.
        seeds: Number of seeds of the variant.
        mean: Mean score of the variant.
        baseline_mean: Mean score of the baseline.
        difference: The difference from the baseline.
        variation: How it varies between seeds.
        judgement: Its verdict; a difference is ``larger`` or ``smaller``, as neither side is the better one.
    """

    variant: str
    step: float | None
    seeds: int
    mean: float
    baseline_mean: float
    difference: Difference
    variation: Variation
    judgement: Judgement

    @property
    def is_same(self) -> bool:
        """Whether the interval of the difference lies inside the margin."""
        return self.judgement.is_within_margin

    @property
    def is_different(self) -> bool:
        """Whether every difference in the interval is larger than the margin."""
        return self.judgement.size == BY_MORE


@dataclass(frozen=True)
class Sameness:
    """The comparisons of all variants at all steps; their intervals contain all true differences in 95 % of studies.

    Attributes:
        metric: Name of the metric.
        baseline: Name of the baseline.
        margin: The smallest difference that matters.
        is_paired: Whether differences are paired by seed.
        variants: The comparisons, those of the first step first.
        warnings: Remarks on the table, a line each.
    """

    metric: str
    baseline: str
    margin: float
    is_paired: bool
    variants: tuple[Comparison, ...]
    warnings: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 if every comparison is the same, 1 if one is different by more than the margin, else 3."""
        if any(comparison.is_different for comparison in self.variants):
            return 1
        return 0 if all(comparison.is_same for comparison in self.variants) else 3

    @property
    def seeds_needed(self) -> int | None:
        """Seeds of each side with which all comparisons of equal variants are the same in 80 % of cases, each.

        None above 1,000 seeds, and if no difference varies over seeds.
        """
        numbers = []
        for comparison in self.variants:
            if comparison.difference.kind == "varied":
                deviation, sides = comparison.variation
                needed = seeds_for_equivalence(
                    self.margin / deviation, level=self.level, sides=sides
                )
                numbers.append(needed)
        if not numbers or None in numbers:
            return None
        return max(number for number in numbers if number is not None)

    @property
    def level(self) -> float:
        """1 minus the confidence of each interval."""
        tests = sum(is_tested(comparison.difference) for comparison in self.variants)
        return level_of_each(tests)

    def has_too_few_decimals(self, comparison: Comparison) -> bool:
        """Return whether a comparison is undecided because of the decimals of its scores.

        Either it is decided without this source, or this source alone is as wide as the margin.
        """
        if comparison.is_same or comparison.is_different:
            return False
        for source in comparison.difference.sources:
            if source.name == DECIMALS and source.half_width(self.level) >= self.margin:
                return True
        ends = interval(comparison.difference.without_decimals(), 1 - self.level)
        return not any(ends.low <= end <= ends.high for end in (-self.margin, self.margin))


def same(  # noqa: PLR0913 - keyword-only options of the Python API
    table: pd.DataFrame,
    *,
    baseline: str | None,
    margin: float,
    steps: Sequence[float] = (),
    metric: str | None = None,
    is_paired: bool = True,
    variant_columns: Sequence[str] = ("variant",),
    seed_column: str = "seed",
    step_column: str | None = None,
    candidates: Sequence[str] = (),
) -> Sameness:
    """Compare every variant of a table, or the candidates, with the baseline: are the runs the same within a margin?

    Args:
        table: A table as for `headtohead_judge.judge`.
        baseline: Name of the variant with which the others are compared, such as the code before a refactor.
        margin: The smallest difference that matters.
        steps: The steps at which curves are compared; without any, the last score of each run.
        metric: The metric; not needed if the table has a single one.
        is_paired: Pair scores by seed; False compares separate seeds by Welch's t-test.
        variant_columns: Columns whose values, joined, name the variant.
        seed_column: Column of the seed.
        step_column: Column of the step, if a run has a row per evaluation.
        candidates: Names of the variants to compare; by default all but the baseline.

    Raises:
        HeadToHeadError: If the table does not permit the comparison, or a run has no score at a step.
    """
    if steps and step_column is None:
        raise HeadToHeadError("scores at steps need the column of the step; name it with --step")
    columns = Columns(tuple(variant_columns), seed_column, step_column)
    runs = read_runs(table, columns, metric, baseline, candidates)
    parts = []
    for step in steps or (None,):
        parts.append(_Part(step, *_differences(runs, step, baseline, is_paired)))
    family = [difference for part in parts for difference in part.differences.values()]
    judgements = iter(verdicts.judge(family, margin=margin, higher_is_better=None))
    comparisons = []
    for part in parts:
        for variant, difference in part.differences.items():
            comparison = Comparison(
                variant=variant,
                step=part.step,
                seeds=len(part.scores[variant]),
                mean=_mean(part.scores[variant]),
                baseline_mean=_mean(part.scores[part.baseline]),
                difference=difference,
                variation=_variation(difference, part.scores, variant, is_paired),
                judgement=next(judgements),
            )
            comparisons.append(comparison)
    first = parts[0]
    refuse_mixed_units(first.scores, runs.metric)
    warnings = [*runs.warnings, *unjudged_warnings(runs)]
    seeds = len(first.scores[first.baseline])
    if is_paired and seeds < SIGN_FLIP_SEEDS:
        warnings.append(few_seeds(seeds))
    if not steps:
        warnings += end_warnings(runs.curves)
    return Sameness(
        metric=runs.metric,
        baseline=first.baseline,
        margin=margin,
        is_paired=is_paired,
        variants=tuple(comparisons),
        warnings=tuple(warnings),
    )


class _Part(NamedTuple):
    """The scores of a step by variant and seed, and the differences of the variants from the baseline."""

    step: float | None
    baseline: str
    scores: Scores
    differences: Mapping[str, Difference]


def _differences(
    runs: Runs, step: float | None, baseline: str | None, is_paired: bool
) -> tuple[str, Scores, Mapping[str, Difference]]:
    """Return the baseline, the scores at a step, and the differences of the variants from the baseline.

    Raises:
        HeadToHeadError: If the baseline is missing, or a variant has other seeds or a single one.
    """
    baseline, scores = baseline_first(_scores_at(runs.curves, step), baseline)
    require_enough_seeds(scores, 2, is_paired, None, runs.warnings)
    require_equal_seeds(scores, is_paired, None, runs.warnings)
    if is_paired:
        differences, _ = paired_differences(scores, runs.metric)
    else:
        differences = unpaired_differences(scores)
    return baseline, scores, with_decimals(differences, scores, runs.decimals)


def _scores_at(curves: Curves, step: float | None) -> dict[str, dict[str, float]]:
    """Return the scores of all runs at a step, or at the last one of each, by variant and seed.

    Raises:
        HeadToHeadError: If a run has no score at the step.
    """
    scores: dict[str, dict[str, float]] = {}
    for run, curve in curves.items():
        if step is not None and step not in curve:
            steps = listed([f"{number:g}" for number in sorted(curve)])
            raise HeadToHeadError(
                f"variant '{run.variant}', seed {run.seed} has no score at step {step:g}; its steps: {steps}"
            )
        scores.setdefault(run.variant, {})[run.seed] = curve[max(curve) if step is None else step]
    return scores


def _variation(difference: Difference, scores: Scores, variant: str, is_paired: bool) -> Variation:
    """Return how the difference of a variant from the first one, the baseline, varies between seeds."""
    if is_paired:
        return Variation(math.sqrt(difference.n * difference.sources[0].variance), 1.0)
    baseline = next(iter(scores))
    variances = [np.var([*scores[side].values()], ddof=1) for side in (variant, baseline)]
    total = float(sum(variances))
    squares = float(sum(variance**2 for variance in variances))
    return Variation(math.sqrt(total), total**2 / squares if squares else 1.0)


def _mean(scores: Mapping[str, float]) -> float:
    return math.fsum(scores.values()) / len(scores)

"""Judge the scores of any training code: a table with a row per variant and seed, compared with a baseline.

The tests are those of reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headtohead_judge import verdicts
from headtohead_judge.cells import single_spaced
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.copies import copy_warnings
from headtohead_judge.direction import can_be_rate, direction
from headtohead_judge.errors import (
    HeadToHeadError,
    MissingBaselineError,
    TooFewSeedsError,
    similar_or_known,
)
from headtohead_judge.listing import listed
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import (
    CONFIDENCE,
    SIGN_FLIP_SEEDS,
    Difference,
    Interval,
    Summary,
    few_seeds,
    interval,
    level_of_each,
    rounding_bias,
    summarise,
)
from headtohead_judge.power import seeds_needed
from headtohead_judge.readers.formats import HIGHER_IS_BETTER
from headtohead_judge.table import Columns, end_warnings, read_runs, unjudged_warnings
from headtohead_judge.unpaired import unpaired
from headtohead_judge.verdicts import BETTER, UNTESTED, Judgement

MAX_VARIANTS = 40
"""Maximum number of variants that an error lists."""

MIN_FACTOR = 50
MAX_FACTOR = 200
"""Factors between fractions and percentages of a warning about units; 100 between equal scores."""

MIN_FRACTIONS = 2
"""Smallest number of fractions of a warning about units."""

MIN_GAP = 10
"""Smallest ratio of the smallest percentage to the largest fraction of a warning about units."""

WIDER = 1.05
"""Smallest ratio of the widths of an interval with and without the decimals of the scores that a warning is about."""

Scores = Mapping[str, Mapping[str, float]]
"""Scores by variant and seed."""


@dataclass(frozen=True)
class JudgedVariant:
    """A variant against the baseline; ``by_seed`` has the differences of paired seeds, ``scores`` the scores."""

    variant: str
    scores: Mapping[str, float]
    summary: Summary
    difference: Difference
    judgement: Judgement
    by_seed: Mapping[str, float]


@dataclass(frozen=True)
class Judged:
    """The judgement of a table of scores.

    Attributes:
        metric: Name of the metric.
        higher_is_better: Direction of the metric.
        baseline: Name of the baseline.
        scores: Scores of the baseline by seed.
        summary: Their summary.
        variants: The other variants, the largest difference first.
        is_paired: Whether differences are paired by seed.
        sharing: Number of variants, with the baseline, whose scores give the shared variance; 0 without one.
        is_chosen: Whether the call named the variants as candidates; else they are all variants of the table.
        margin: The smallest difference that matters, or None.
        looks: The planned looks, or None.
        more_seeds: Number of further seeds per variant until the next look; None without looks or after the last.
        warnings: Remarks on the table, a line each.
    """

    metric: str
    higher_is_better: bool
    baseline: str
    scores: Mapping[str, float]
    summary: Summary
    variants: tuple[JudgedVariant, ...]
    is_paired: bool
    sharing: int
    is_chosen: bool
    margin: float | None
    looks: Looks | None
    more_seeds: int | None
    warnings: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """Return a row per variant: seeds, mean, difference, interval, adjusted p and verdict; NaN without a test."""
        rows = []
        for variant in self.variants:
            judgement = variant.judgement
            interval = judgement.interval or Interval(math.nan, math.nan)
            row = {
                "variant": variant.variant,
                "seeds": variant.summary.n,
                "mean": variant.summary.mean,
                "difference": variant.difference.mean,
                "low": interval.low,
                "high": interval.high,
                "adjusted_p": judgement.adjusted_p,
                "verdict": judgement.verdict,
            }
            rows.append(row)
        return pd.DataFrame(rows)

    def heading(self, show: Callable[[float], str] = "{:.4g}".format) -> str:
        """Return metric, direction, margin, pairing and baseline as a line; ``show`` formats a score."""
        better = "higher" if self.higher_is_better else "lower"
        margin = f", margin {show(self.margin)}" if self.margin else ""
        mean = f"{show(self.summary.mean)} (standard deviation {show(self.summary.sd)}, {self.summary.n} seeds)"
        pairing = "paired by seed" if self.is_paired else "unpaired"
        return f"{self.metric}, {better} is better{margin}; {pairing}; baseline {self.baseline}: {mean}"

    def __str__(self) -> str:
        """Return the heading and the table."""
        table = self.frame().to_string(index=False, float_format="{:.4g}".format)
        return f"{self.heading()}\n{table}"

    def exit_code(self, accept: Collection[str] = (BETTER,)) -> int:
        """Return 0 if every verdict or its direction is in ``accept``, else 1 for a worse candidate, else 3.

        Without candidates, the code is 1 only if every variant is worse: a variant that nobody asked about does not
        decide.
        """
        codes = {variant.judgement.exit_code(accept) for variant in self.variants}
        if codes == {0}:
            return 0
        if codes == {1} or (self.is_chosen and 1 in codes):
            return 1
        return 3


def judge(  # noqa: PLR0913 - keyword-only options of the Python API
    table: pd.DataFrame,
    *,
    baseline: str | None,
    metric: str | None = None,
    margin: float | None = None,
    higher_is_better: bool | None = None,
    is_paired: bool = True,
    looks: Looks | None = None,
    variant_columns: Sequence[str] = ("variant",),
    seed_column: str = "seed",
    step_column: str | None = None,
    candidates: Sequence[str] = (),
    sd: float | None = None,
    min_seeds: int = 2,
) -> Judged:
    """Judge every variant of a table, or the candidates, against the baseline.

    Args:
        table: A row per variant and seed with a column per metric, or a row per variant, seed and metric with the
            columns ``metric`` and ``value``.
        baseline: Name of the variant with which the others are compared; the error for None lists the variants.
        metric: The metric; not needed if the table has a single one.
        margin: The smallest difference that matters, for verdicts with a size and of equivalence.
        higher_is_better: Direction of the metric; by default that of the file, else that of its name.
        is_paired: Pair scores by seed; False compares separate seeds by Welch's t-test.
        looks: Planned numbers of seeds, if the study is judged several times. With another number of seeds, no variant
            has a verdict.
        variant_columns: Columns whose values, joined, name the variant.
        seed_column: Column of the seed.
        step_column: Column of the step, if a run has a row per evaluation; the last one counts.
        candidates: Names of the variants to judge; by default all but the baseline.
        sd: Standard deviation between seeds, if known. With a single seed per variant, the error then has the number
            of seeds that a decision needs; by default from the variants with several seeds.
        min_seeds: Smallest number of seeds of a variant, at least two.

    Raises:
        MissingBaselineError: If the baseline has no scores.
        TooFewSeedsError: If a variant has fewer seeds.
        HeadToHeadError: If the table does not permit the comparison for another reason.
    """
    columns = Columns(tuple(variant_columns), seed_column, step_column)
    runs = read_runs(table, columns, metric, baseline, candidates)
    baseline, scores = baseline_first(runs.scores, baseline)
    baseline_scores = scores[baseline]
    num_seeds = len(baseline_scores)
    if higher_is_better is None:
        higher_is_better = _direction(table, runs.metric)
    refuse_mixed_units(scores, runs.metric)
    require_enough_seeds(scores, min_seeds, is_paired, sd, runs.warnings)
    require_equal_seeds(scores, is_paired, looks, runs.warnings)

    larger_deviations: dict[str, float] = {}
    num_sharing = 0
    if is_paired:
        differences, larger_deviations = paired_differences(scores, runs.metric)
        pooled = [variant for variant in scores if variant not in larger_deviations]
        num_sharing = _sharing(differences, pooled)
    else:
        differences = unpaired_differences(scores)
    differences = with_decimals(differences, scores, runs.decimals)

    family = list(differences.values())
    is_between_looks = looks is not None and num_seeds not in looks.seeds
    judgements = verdicts.judge(
        family, margin=margin, higher_is_better=higher_is_better, looks=looks
    )
    if is_between_looks:
        judgements = [UNTESTED] * len(family)  # the level holds for the planned numbers of seeds
    variants = []
    for (name, difference), judgement in zip(differences.items(), judgements, strict=True):
        variant_scores = scores[name]
        by_seed: dict[str, float] = {}
        if is_paired:
            by_seed = {
                seed: variant_scores[seed] - baseline_scores[seed] for seed in baseline_scores
            }
        variant = JudgedVariant(
            variant=name,
            scores=variant_scores,
            summary=summarise(list(variant_scores.values())),
            difference=difference,
            judgement=judgement,
            by_seed=by_seed,
        )
        variants.append(variant)
    variants.sort(key=lambda variant: abs(variant.difference.mean), reverse=True)

    warnings = [
        *runs.warnings,
        *copy_warnings(
            scores, runs.curves, baseline=baseline, metric=runs.metric, is_paired=is_paired
        ),
        *end_warnings(runs.curves),
        *unjudged_warnings(runs),
        *_decimals_warnings(differences),
    ]
    if is_paired:
        warnings += _pairing_warnings(differences, larger_deviations, num_seeds)
    if is_paired and not is_between_looks:
        warnings += _disagreement_warnings(differences, looks)

    next_look = looks.next(num_seeds) if looks is not None else None
    return Judged(
        metric=runs.metric,
        higher_is_better=higher_is_better,
        baseline=baseline,
        scores=baseline_scores,
        summary=summarise(list(baseline_scores.values())),
        variants=tuple(variants),
        is_paired=is_paired,
        sharing=num_sharing,
        is_chosen=bool(candidates),
        margin=margin,
        looks=looks,
        more_seeds=next_look - num_seeds if next_look is not None else None,
        warnings=tuple(warnings),
    )


def _direction(table: pd.DataFrame, metric: str) -> bool:
    """Return whether larger values of a metric are better, as the file of a table states, else from its name.

    Raises:
        HeadToHeadError: If neither determines it.
    """
    stated = table.attrs.get(HIGHER_IS_BETTER, {})
    if metric in stated:
        return bool(stated[metric])
    return direction(metric)


def baseline_first(
    scores: dict[str, dict[str, float]], baseline: str | None
) -> tuple[str, dict[str, dict[str, float]]]:
    """Return the baseline, and the scores with the baseline as the first variant.

    Raises:
        MissingBaselineError: If the baseline has no scores.
        HeadToHeadError: If no baseline is named, or every other variant is missing.
    """
    if baseline is None:
        raise HeadToHeadError(
            f"--baseline VARIANT is missing; variants: {listed([*scores], MAX_VARIANTS)}"
        )
    baseline = single_spaced(baseline)
    if baseline not in scores:
        raise MissingBaselineError(
            f"no variant '{baseline}' for --baseline{similar_or_known(baseline, scores)}"
        )
    if len(scores) < 2:
        raise HeadToHeadError(
            f"only the baseline '{baseline}' has scores; a comparison needs another variant"
        )
    return baseline, {baseline: scores[baseline]} | scores


def require_enough_seeds(
    scores: Scores, min_seeds: int, is_paired: bool, sd: float | None, warnings: Sequence[str]
) -> None:
    """Raise a `TooFewSeedsError` if a variant has fewer seeds than ``min_seeds``.

    The error ends with the ``warnings``, since a run that was left out explains a missing seed.
    """
    short = [variant for variant, by_seed in scores.items() if len(by_seed) < min_seeds]
    if not short:
        return
    remark = "".join(f" ({warning})" for warning in warnings)
    if min_seeds == 2:
        raise TooFewSeedsError(f"{_single_seed(short[0], scores, sd, is_paired)}{remark}")
    counts = listed([f"'{variant}' {len(scores[variant])}" for variant in short], MAX_VARIANTS)
    raise TooFewSeedsError(
        f"each side needs at least {min_seeds} seeds, but the table has fewer: {counts}; train more seeds{remark}"
    )


def require_equal_seeds(
    scores: Scores, is_paired: bool, looks: Looks | None, warnings: Sequence[str]
) -> None:
    """Raise a `HeadToHeadError` if a variant has other seeds than the baseline, the first variant.

    Unpaired scores need equal numbers of seeds at looks only. Errors end with the ``warnings``, since a run that was
    left out explains a missing seed.
    """
    baseline, against = next(iter(scores.items()))
    remark = "".join(f" ({warning})" for warning in warnings)
    for variant, by_seed in scores.items():
        if is_paired and by_seed.keys() != against.keys():
            only = [f"{seed} only in '{variant}'" for seed in by_seed if seed not in against]
            only += [f"{seed} only in '{baseline}'" for seed in against if seed not in by_seed]
            raise HeadToHeadError(
                f"seeds of '{variant}' and '{baseline}' differ: {listed(only)}; add the missing runs, or, without "
                f"--ledger, compare with --unpaired{remark}"
            )
        if looks and len(by_seed) != len(against):
            raise HeadToHeadError(
                f"'{variant}' has {len(by_seed)} seeds and '{baseline}' {len(against)}; looks need equal numbers"
            )


def _single_seed(variant: str, scores: Scores, sd: float | None, is_paired: bool) -> str:
    """Return that a variant has a single seed, and the number of seeds that a decision needs if ``sd`` is known.

    Without ``sd``, the standard deviation is that of the variants with several seeds. The number is about the
    difference of the variant from the first one, the baseline, at the level of each comparison with it.
    """
    problem = f"variant '{variant}' has a single seed; a test needs at least two per variant"
    if sd is None:
        sd = _deviation_within(scores)
    if not sd:
        return f"{problem}; --sd X, the standard deviation between seeds, adds how many a decision needs"
    baseline, second = [*scores][:2]
    compared = variant if variant != baseline else second
    means = {name: np.mean([*scores[name].values()]) for name in (compared, baseline)}
    difference = float(means[compared] - means[baseline])
    needed = seeds_needed(
        difference / (math.sqrt(2) * sd),
        level=level_of_each(len(scores) - 1),
        sides=1 if is_paired else 2,
    )
    return (
        f"{problem}; with a standard deviation of {sd:.2g} between seeds, a decision on the difference "
        f"{difference:+.2g} of '{compared}' needs {needed or 'more than 1,000'} seeds each for 80 % power"
    )


def _deviation_within(scores: Scores) -> float | None:
    """Return the standard deviation over seeds within variants; None if every variant has a single seed."""
    degrees = 0
    squares = 0.0
    for by_seed in scores.values():
        values = np.array([*by_seed.values()])
        degrees += len(values) - 1
        squares += ((values - values.mean()) ** 2).sum()
    return math.sqrt(squares / degrees) if degrees else None


def paired_differences(
    scores: Scores, metric: str
) -> tuple[dict[str, Difference], dict[str, float]]:
    """Return the differences of the variants from the first one, paired by seed, and their `larger_deviations`.

    Variants with a larger deviation have the variance of their own differences, the others that of the block model.
    """
    baseline, against = next(iter(scores.items()))
    by_side = {}
    for variant, by_seed in scores.items():
        values = [by_seed[seed] for seed in against]
        by_side[Side(variant, metric)] = dict(enumerate(values))
    table = ScoreTable(by_side, blocks=(tuple(by_side),))
    contrasts = []
    for variant in scores:
        if variant != baseline:
            weights = {Side(variant, metric): 1.0, Side(baseline, metric): -1.0}
            contrasts.append(Contrast(variant, "variant", (weights,)))
    differences = {}
    for contrast, estimate in zip(contrasts, estimate_family(contrasts, table), strict=True):
        differences[contrast.name] = estimate.difference
    ((_, larger),) = table.pooled_blocks
    return differences, {side.variant: ratio for side, ratio in larger.items()}


def with_decimals(
    differences: Mapping[str, Difference], scores: Scores, decimals: Mapping[str, int]
) -> dict[str, Difference]:
    """Return the differences with the decimals of the scores as a source of variance.

    Its size is the largest `rounding_bias` of the two sides and of the difference of a seed, which has the decimals of
    the side with fewer: if it does not vary over seeds, no variance between seeds can show the rounding. Whole numbers
    that vary are exact counts.

    Args:
        differences: The differences from the baseline.
        scores: The scores, those of the baseline first.
        decimals: The decimals of the scores of each variant.
    """
    biases = {}
    for variant, by_seed in scores.items():
        variance = float(np.var([*by_seed.values()], ddof=1))
        biases[variant] = rounding_bias(variance, decimals[variant])
    baseline = next(iter(scores))
    completed = dict(differences)
    for variant, difference in differences.items():
        of_sides = (decimals[variant], decimals[baseline])
        if max(of_sides) == 0 and difference.kind == "varied":
            continue
        variance = difference.n * difference.sources[0].variance
        bias = rounding_bias(variance, min(of_sides))
        largest = max(bias, biases[variant], biases[baseline])
        completed[variant] = difference.with_decimals_error(2 * largest)
    return completed


def _sharing(differences: Mapping[str, Difference], pooled: Sequence[str]) -> int:
    """Return how many of the ``pooled`` variants share a variance; 0 if no test has degrees of freedom from it."""
    for name in pooled:
        difference = differences.get(name)  # none of the baseline
        if difference is not None and difference.degrees > difference.n - 1:
            return len(pooled)
    return 0


def unpaired_differences(scores: Scores) -> dict[str, Difference]:
    """Return the differences of the variants from the first one, of separate seeds."""
    baseline, against = next(iter(scores.items()))
    differences = {}
    for variant, by_seed in scores.items():
        if variant != baseline:
            differences[variant] = unpaired([*by_seed.values()], [*against.values()])
    return differences


def refuse_mixed_units(scores: Scores, metric: str) -> None:
    """Raise a `HeadToHeadError` if some scores look like percentages, and the others like fractions.

    The scores up to 1 and those up to 100 are about a factor of 100 apart, and no score is between them. Losses and
    costs have no such unit, and a single fraction can be the percentage of a collapsed run.
    """
    sizes = [abs(score) for by_seed in scores.values() for score in by_seed.values() if score]
    fractions = [size for size in sizes if size <= 1]
    percentages = [size for size in sizes if size > 1]
    if len(fractions) < MIN_FRACTIONS or not percentages or not can_be_rate(metric):
        return
    factor = np.median(percentages) / np.median(fractions)
    is_gap = min(percentages) >= MIN_GAP * max(fractions)
    if max(percentages) > 100 or not is_gap or not MIN_FACTOR <= factor <= MAX_FACTOR:
        return
    named = []
    for variant, by_seed in scores.items():
        seeds = [seed for seed, score in by_seed.items() if abs(score) > 1]
        if len(seeds) == len(by_seed):
            named.append(f"'{variant}'")
        elif seeds:
            named.append(f"'{variant}' under seeds {listed(seeds)}")
    raise HeadToHeadError(
        f"scores of {listed(named)} look like percentages, and the others like fractions; write all in one unit"
    )


def _pairing_warnings(
    differences: Mapping[str, Difference], larger: Mapping[str, float], seeds: int
) -> list[str]:
    """Return warnings about few seeds, variants with a ``larger`` deviation, and differences without variance."""
    warnings = []
    if seeds < SIGN_FLIP_SEEDS:
        warnings.append(few_seeds(seeds))
    if larger:
        ratios = listed([f"'{name}' ({ratio:.1f} times)" for name, ratio in larger.items()])
        warnings.append(
            f"scores vary more over seeds than those of the others: {ratios}; their contrasts have paired t-tests of "
            "their own, the other contrasts share a variance"
        )
    constant = [name for name, gap in differences.items() if gap.kind == "constant"]
    if constant:
        warnings.append(
            f"the difference is the same in every seed for {listed(constant)}; with enough seeds, its interval has the "
            "width that the decimals of the scores leave, and p is at least that of the sign-flip test"
        )
    return warnings


def _decimals_warnings(differences: Mapping[str, Difference]) -> list[str]:
    """Return a warning that names the variants with an interval that the decimals of the scores make wider.

    Differences that do not vary over seeds have no interval without them.
    """
    named = []
    for name, difference in differences.items():
        narrower = _width(difference.without_decimals())
        if difference.kind == "varied" and _width(difference) > WIDER * narrower:
            named.append(f"'{name}'")
    if not named:
        return []
    return [
        f"the scores have so few decimals that their rounding makes the interval of {listed(named)} wider; write more, "
        "such as 0.8000 instead of 0.8"
    ]


def _width(difference: Difference) -> float:
    """Return the width of the interval of a single difference."""
    ends = interval(difference, CONFIDENCE)
    return ends.high - ends.low


def _disagreement_warnings(differences: Mapping[str, Difference], looks: Looks | None) -> list[str]:
    """Return a warning that names the variants whose verdict the paired t-test does not share.

    Neither has the decimals of the scores as a source of variance.
    """
    family = [difference.without_decimals() for difference in differences.values()]
    judgements = verdicts.judge(family, looks=looks)
    disagreements = verdicts.unlike_paired_tests(family, judgements, looks=looks)
    named = []
    for name, disagrees in zip(differences, disagreements, strict=True):
        if disagrees:
            named.append(f"'{name}'")
    if not named:
        return []
    return [
        f"the paired t-test, corrected alike, does not share the verdict on {listed(named)}: there, the verdict "
        "depends on the variance that the variants share"
    ]

"""Detection of copied runs: equal curves, and more equal scores than the grid of the metric explains.

Scores of a coarse metric are often equal: with 200 test examples, accuracy has steps of 0.005. The expected number of
equal scores follows from the step and the spread of the scores. ``tests/judge/test_copies.py`` simulates how often
studies without copies have a warning, and how often copies have one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from headtohead_judge.listing import first_of
from headtohead_judge.numbers import SINGLE_DIGITS, are_single

Floats = NDArray[np.float64]
Scores = Mapping[str, float]
"""Scores by seed."""

Curve = Mapping[float, float]
"""Values by step."""

MAX_CHANCE = 0.01
"""Largest probability, over all variants of a study, of the equal scores that a warning is about."""

MAX_CHANCE_SAME = 0.001
"""Largest probability of the equal scores of two variants that count as one."""

MAX_DIGITS = 12
"""Digits of a score that are compared; further digits are rounding errors."""

MAX_EXAMPLES = 100_000
"""Largest number of test examples that a grid of fractions is tried for."""

MAX_FACTOR = 100
"""Largest multiple of the resolution that is a step if there are fewer than ``MIN_DISTINCT`` distinct scores."""

MIN_DISTINCT = 4
MAX_COMPARED = 200
"""Maximum number of scores whose pairwise gaps are computed."""

QUARTILE_GAP = 0.4506
"""Lower quartile of the distance of two normal values, in standard deviations of a value."""

COARSE = 1e-4
"""Smallest step of a coarse grid, as a fraction of the largest score."""

MODEL_ERROR = 0.2
"""Relative error of an expected number, because scores are not exactly normal."""

ENDS = (0.0, 1.0, 100.0)
"""Ends of the usual scales; runs that reach the end of a scale have equal scores."""

MAX_OTHERS = 10
"""Maximum number of variants whose spread and step are used for another variant."""


class Run(NamedTuple):
    """A run: its variant and its seed."""

    variant: str
    seed: str


@dataclass(frozen=True)
class EqualScores:
    """Scores that are equal.

    Attributes:
        runs: The seeds of the equal scores of a variant, or pairs of seeds of two variants.
        count: Number of coincidences: three equal scores of a variant are two.
        expected: Number of coincidences expected from step and spread.
        step: Smallest distance of two scores.
        chance: Probability of at least ``count`` coincidences.
    """

    runs: tuple[str, ...]
    count: int
    expected: float
    step: float
    chance: float


def resolution(values: Iterable[float]) -> float:
    """Return the place value of the last digit that any of the values has, for example 0.01 for 0.5 and 0.25."""
    x = np.unique(np.fromiter(values, dtype=np.float64))
    largest = float(np.abs(x).max(initial=0.0))
    if not largest:
        return 1.0
    power = math.floor(math.log10(largest))
    scaled = x / 10.0**power
    most = SINGLE_DIGITS if are_single(x) else MAX_DIGITS
    for digits in range(most):
        shifted = scaled * 10.0**digits
        if (np.abs(shifted - np.rint(shifted)) < 1e-9 + 1e-14 * 10.0**digits).all():
            return float(f"1e{power - digits}")
    return float(f"1e{power - most}")


def step_of(values: Iterable[float]) -> float:
    """Return the largest step of a grid that explains all values, given their resolution.

    The grid is that of their decimals, a multiple of it, or that of fractions or percentages of a number of examples,
    rounded to the resolution. Few values are explained by several grids, of which the coarsest is returned.
    """
    x = np.unique(np.fromiter(values, dtype=np.float64))
    unit = resolution(x)
    step = unit
    whole = np.rint(x / unit)
    gaps = whole[1:] - whole[0]
    factor = math.gcd(*map(int, gaps))
    if factor > 1 and (len(x) >= MIN_DISTINCT or factor <= MAX_FACTOR):
        step = unit * factor
    scale = 100.0 if x.max(initial=0.0) > 1 else 1.0
    examples = _examples(x / scale, unit / scale)
    if examples is None:
        return step
    return max(step, scale / examples)


def _examples(fractions: Floats, unit: float) -> int | None:
    """Return the smallest number of examples whose fractions, rounded to the unit, include all values, or None."""
    if fractions.min(initial=0.0) < 0 or fractions.max(initial=0.0) > 1:
        return None
    most = int(min(MAX_EXAMPLES, 1 / unit))
    first = 1
    while first <= most:
        last = min(most, 10 * first)
        numbers = np.arange(first, last + 1, dtype=np.float64)
        for value in fractions:
            counts = value * numbers
            numbers = numbers[
                np.abs(counts - np.rint(counts)) <= 0.5 * unit * numbers + 1e-12 * counts
            ]
            if not len(numbers):
                break
        if len(numbers):
            return int(numbers[0])
        first = last + 1
    return None


def spread(values: Iterable[float], step: float) -> float:
    """Return the standard deviation of scores, or that of their densest part if it is smaller.

    Scores of which a part lies close together, such as those of runs that failed and of runs that did not, are more
    often equal than normal scores with their standard deviation.
    """
    x = np.sort(np.fromiter(values, dtype=np.float64))
    if len(x) < 2:
        return 0.0
    deviation = float(x.std(ddof=1))
    if len(x) > MAX_COMPARED:
        x = x[np.linspace(0, len(x) - 1, MAX_COMPARED).astype(int)]
    first, second = np.triu_indices(len(x), k=1)
    gaps = x[second] - x[first]
    different = gaps[gaps > 0.5 * step]
    if not len(different):
        return 0.0
    return min(deviation, float(np.quantile(different, 0.25)) / QUARTILE_GAP)


def chance_equal(deviation: float, step: float) -> float:
    """Return the probability that two scores on a grid are equal, from the standard deviation of their difference.

    It is the mean of ``max(0, 1 - |d| / step)`` for a normal difference ``d``.
    """
    if deviation <= 0:
        return 1.0
    ratio = step / deviation
    if ratio < 1e-3:
        return ratio / math.sqrt(2 * math.pi)
    inside = float(scipy.special.erf(ratio / math.sqrt(2)))
    return inside - 2 / (ratio * math.sqrt(2 * math.pi)) * -math.expm1(-(ratio**2) / 2)


def chance_of(count: int, expected: float, scores: int) -> float:
    """Return the probability of at least ``count`` coincidences where the expected number is itself an estimate.

    The distribution is negative binomial: Poisson with an expected number that varies as the standard deviation of
    ``scores`` scores does.
    """
    if count < 1:
        return 1.0
    shape = 1 / (0.5 / max(1, scores - 1) + MODEL_ERROR**2)
    return float(scipy.special.betainc(count, shape, expected / (shape + expected)))


def repeated_scores(scores: Scores, others: Sequence[Scores] = ()) -> EqualScores | None:
    """Return the equal scores of a variant under several seeds, or None without any.

    Args:
        scores: Scores of the variant by seed.
        others: Scores of other variants in the same metric. Their spread is used if all scores of the variant are
            equal, and their step if the variant has few different scores.
    """
    inner = _without_ends(scores)
    keys = _keys(inner.values(), resolution(inner.values()))
    counts = Counter(keys)
    repeats = {key: number - 1 for key, number in counts.items() if number > 1}
    if not repeats:
        return None
    seeds = tuple(seed for seed, key in zip(inner, keys, strict=True) if key in repeats)
    if len(counts) < MIN_DISTINCT:
        step = _common_step(inner, others)
    else:
        step = step_of(inner.values())
    pairs = len(inner) * (len(inner) - 1) / 2
    deviation = math.sqrt(2) * _spread(scores, step, others)
    expected = pairs * chance_equal(deviation, step)
    count = _counted(repeats, step, inner.values())
    chance = chance_of(count, expected, len(scores))
    return EqualScores(seeds, count, expected, step, chance)


def shared_scores(first: Scores, second: Scores) -> EqualScores | None:
    """Return the equal scores of two variants under any seeds, or None without any; each score counts once."""
    left = _without_ends(first)
    right = _without_ends(second)
    if not left or not right:
        return None
    unit = max(resolution(left.values()), resolution(right.values()))
    seeds_of: dict[float, list[str]] = {}
    for seed, key in zip(right, _keys(right.values(), unit), strict=True):
        seeds_of.setdefault(key, []).append(seed)
    matches: Counter[float] = Counter()
    pairs = []
    for seed, key in zip(left, _keys(left.values(), unit), strict=True):
        if seeds_of.get(key):
            matching_seed = seeds_of[key].pop(0)
            pairs.append(f"{seed} and {matching_seed}")
            matches[key] += 1
    if not pairs:
        return None
    step = max(step_of(left.values()), step_of(right.values()))
    deviation = math.hypot(_spread(first, step, [second]), _spread(second, step, [first]))
    expected = len(left) * len(right) * chance_equal(deviation, step)
    count = _counted(matches, step, left.values())
    chance = chance_of(count, expected, min(len(first), len(second)))
    return EqualScores(tuple(pairs), count, expected, step, chance)


def shared_seeds(first: Scores, second: Scores, deviation: float) -> EqualScores | None:
    """Return the equal scores of two variants under the same seeds, or None without any.

    Args:
        first: Scores of a variant by seed.
        second: Scores of the other variant by seed.
        deviation: Standard deviation, over seeds, of the difference of two variants without copied runs.
    """
    left = _without_ends(first)
    right = _without_ends(second)
    common = [seed for seed in left if seed in right]
    if not common:
        return None
    unit = max(resolution(left.values()), resolution(right.values()))
    left_keys = _keys([left[seed] for seed in common], unit)
    right_keys = _keys([right[seed] for seed in common], unit)
    equal = {}
    for seed, left_key, right_key in zip(common, left_keys, right_keys, strict=True):
        if left_key == right_key:
            equal[seed] = left_key
    if not equal:
        return None
    step = max(step_of(left.values()), step_of(right.values()))
    expected = len(common) * chance_equal(deviation, step)
    count = _counted(Counter(equal.values()), step, left.values())
    chance = chance_of(count, expected, len(common))
    return EqualScores(tuple(equal), count, expected, step, chance)


def is_same_variant(first: Scores, second: Scores, deviation: float) -> bool:
    """Return whether two variants are one variant, from their scores, whatever the names of variants and seeds are.

    They are one variant if all scores under their common seeds are equal and not all the same, or if half of the
    scores of the smaller one are equal to scores of the other by more than chance. Scores with fewer digits are
    compared by these.

    Args:
        first: Scores of a variant by seed.
        second: Scores of the other variant by seed.
        deviation: Standard deviation, over seeds, of the difference of two different variants.
    """
    common = [seed for seed in first if seed in second]
    are_equal = all(math.isclose(first[seed], second[seed], rel_tol=1e-6) for seed in common)
    if are_equal and len({first[seed] for seed in common}) > 1:
        return True
    least = max(2.0, min(len(first), len(second)) / 2)
    for equal in (shared_seeds(first, second, deviation), shared_scores(first, second)):
        if equal and len(equal.runs) >= least and equal.chance <= MAX_CHANCE_SAME:
            return True
    return False


def equal_curves(curves: Mapping[Run, Curve]) -> list[tuple[Run, ...]]:
    """Return the groups of runs with the same values at all steps.

    Curves with a single value, or with values at the ends of a scale only, are left out.
    """
    groups: dict[tuple[tuple[float, float], ...], list[Run]] = {}
    for run, curve in curves.items():
        values = {*curve.values()}
        if len(values) > 1 and not values <= {*ENDS}:
            groups.setdefault(tuple(sorted(curve.items())), []).append(run)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def copy_warnings(
    scores: Mapping[str, Scores],
    curves: Mapping[Run, Curve],
    *,
    baseline: str,
    metric: str,
    is_paired: bool,
) -> list[str]:
    """Return the warnings about runs that can be copies of each other.

    Equal curves are always a warning. Equal scores are one if the step of the metric does not explain them; scores of
    variants whose runs all have curves are not compared. Paired variants with the same score in every seed are not
    copies, but variants without a difference.

    Args:
        scores: Scores by variant and seed.
        curves: Values of each run by step; runs with a single step are ignored.
        baseline: The variant with which the others are compared.
        metric: Name of the metric.
        is_paired: Whether equal seeds of two variants belong together.
    """
    curves = {run: curve for run, curve in curves.items() if len(curve) > 1}
    warnings = []
    same = _equal_runs(scores, curves, is_paired)
    if same:
        warnings.append(
            f"the same values at every step: {first_of(same)}; check that these are separate runs"
        )
    without_curves = {}
    for variant, by_seed in scores.items():
        if not all(Run(variant, seed) in curves for seed in by_seed):
            without_curves[variant] = by_seed
    equal = _equal_scores(without_curves, baseline, is_paired)
    if equal:
        warnings.append(
            f"more equal values of {metric} than its steps explain: {first_of(equal)}; check that these are separate "
            "runs"
        )
    return warnings


def _equal_runs(
    scores: Mapping[str, Scores], curves: Mapping[Run, Curve], is_paired: bool
) -> list[str]:
    """Return the groups of runs with equal curves as texts."""
    texts = []
    for group in equal_curves(curves):
        kept: list[Run] = []
        for run in group:
            if not is_paired or not _is_variant_without_difference(run, kept, scores):
                kept.append(run)
        if len(kept) > 1:
            texts.append(_described_runs(kept))
    return texts


def _is_variant_without_difference(
    run: Run, earlier: Iterable[Run], scores: Mapping[str, Scores]
) -> bool:
    """Return whether a variant has the scores of one with an ``earlier`` run of this seed under all common seeds."""
    for earlier_run in earlier:
        is_same_seed = earlier_run.seed == run.seed
        if is_same_seed and _agree(scores[earlier_run.variant], scores[run.variant]):
            return True
    return False


def _described_runs(runs: Iterable[Run]) -> str:
    """Return the seeds of each variant as text."""
    seeds_of: dict[str, list[str]] = {}
    for run in runs:
        seeds_of.setdefault(run.variant, []).append(run.seed)
    parts = []
    for variant, seeds in seeds_of.items():
        noun = "seeds" if len(seeds) > 1 else "seed"
        parts.append(f"{noun} {first_of(seeds)} of '{variant}'")
    return " and ".join(parts)


def _equal_scores(scores: Mapping[str, Scores], baseline: str, is_paired: bool) -> list[str]:
    """Return the variants, and pairs of variants, with more equal scores than the step explains, as texts."""
    level = MAX_CHANCE / max(1, len(scores))
    first_variants = [*scores][:MAX_OTHERS]
    texts = []
    for variant, by_seed in scores.items():
        if len({*by_seed.values()}) == len(by_seed):
            continue
        others = [scores[name] for name in first_variants if name != variant]
        equal = repeated_scores(by_seed, others)
        if equal and equal.chance <= level:
            texts.append(f"'{variant}' under seeds {_described(equal)}")
    for first, second in _compared(scores, baseline):
        for equal in _shared(scores[first], scores[second], is_paired):
            if equal.chance <= level:
                texts.append(f"'{first}' and '{second}' under seeds {_described(equal)}")
    return texts


def _shared(first: Scores, second: Scores, is_paired: bool) -> list[EqualScores]:
    """Return the equal scores of two variants: under the same seeds, and under other seeds."""
    if {*first.values()}.isdisjoint(second.values()):
        return []
    if not is_paired:
        any_seeds = shared_scores(first, second)
        return [any_seeds] if any_seeds else []
    if _agree(first, second):
        return []
    differences = [value - second[seed] for seed, value in first.items() if seed in second]
    equal_seeds = {seed for seed, value in first.items() if second.get(seed) == value}
    left = {seed: value for seed, value in first.items() if seed not in equal_seeds}
    right = {seed: value for seed, value in second.items() if seed not in equal_seeds}
    same_seeds = shared_seeds(first, second, spread(differences, 0.0))
    other_seeds = shared_scores(left, right)
    return [equal for equal in (same_seeds, other_seeds) if equal]


def _compared(scores: Mapping[str, Scores], baseline: str) -> list[tuple[str, str]]:
    """Return the pairs of the baseline with each variant, and the other pairs with the same scores in any order."""
    others = [variant for variant in scores if variant != baseline]
    pairs = []
    if baseline in scores:
        pairs = [(baseline, variant) for variant in others]
    first_of_scores: dict[tuple[float, ...], str] = {}
    for variant in others:
        values = tuple(sorted(scores[variant].values()))
        first = first_of_scores.setdefault(values, variant)
        if first != variant:
            pairs.append((first, variant))
    return pairs


def _described(equal: EqualScores) -> str:
    return f"{first_of(equal.runs)} ({equal.count} equal, {equal.expected:.1g} expected at steps of {equal.step:.2g})"


def _common_step(scores: Scores, others: Iterable[Scores]) -> float:
    """Return the step of the scores of a variant, together with other variants' scores that have no more digits."""
    unit = resolution(scores.values())
    values = [*scores.values()]
    for side in others:
        if resolution(side.values()) > 0.5 * unit:
            values += side.values()
    return step_of(values)


def _counted(coincidences: Mapping[float, int], step: float, values: Iterable[float]) -> int:
    """Return the number of coincidences, given the number of each score.

    On a coarse grid, those of the most frequent score do not count: runs that fail often have the same score, such as
    the frequency of the most frequent answer.
    """
    count = sum(coincidences.values())
    largest_score = max(abs(value) for value in values)
    if step > COARSE * largest_score:
        count -= max(coincidences.values())
    return count


def _agree(first: Scores, second: Scores) -> bool:
    """Return whether all scores under common seeds are equal."""
    return all(value == second[seed] for seed, value in first.items() if seed in second)


def _spread(scores: Scores, step: float, others: Iterable[Scores]) -> float:
    """Return the spread of a variant, or the root mean square of that of the others if its scores are all equal."""
    values = [*scores.values()]
    if len({*values}) > 1:
        return spread(values, step)
    squares = [spread(side.values(), step) ** 2 for side in others]
    if not squares:
        return 0.0
    return math.sqrt(sum(squares) / len(squares))


def _without_ends(scores: Scores) -> dict[str, float]:
    return {seed: score for seed, score in scores.items() if score not in ENDS}


def _keys(values: Iterable[float], unit: float) -> list[float]:
    """Return the values in units, as whole numbers, so that equal scores are equal despite rounding errors."""
    numbers: list[float] = np.rint(np.fromiter(values, dtype=np.float64) / unit).tolist()
    return numbers

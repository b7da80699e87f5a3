"""The default test of a contrast in loops, independent of `headtohead.statistics`."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import optimize, special, stats

from headtohead.storage.frames import Frames


class Expected(NamedTuple):
    """Mean difference with its standard error, degrees of freedom and two-sided p."""

    mean: float
    error: float
    degrees: float
    p: float

    def interval(self, level: float) -> tuple[float, float]:
        half = stats.t.ppf((1 + level) / 2, self.degrees) * self.error
        return self.mean - half, self.mean + half


def scores_of(frames: Frames, metric: str) -> dict[str, list[float]]:
    """Return the scores by seed of every variant that was trained."""
    trained = dict.fromkeys(map(frames.trained, frames.by_slug))
    return {slug: [frames.scores(slug, metric)[seed] for seed in frames.seeds] for slug in trained}


def expected_test(by_variant: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> Expected:
    """Return the moderated test of a weighted sum of the variants' scores."""
    scores = [*dict.fromkeys(map(tuple, by_variant.values()))]  # variants with the same scores enter once
    variants, seeds = len(scores), len(scores[0])
    grand = statistics.fmean(statistics.fmean(row) for row in scores)
    by_seed = [statistics.fmean(row[seed] for row in scores) for seed in range(seeds)]
    squares = [
        sum((row[seed] - statistics.fmean(row) - by_seed[seed] + grand) ** 2 for seed in range(seeds)) for row in scores
    ]
    degrees = (variants - 1) * (seeds - 1)
    common = sum(squares) / degrees
    logs = [math.log(square) for square in squares if square > 0]
    excess = statistics.variance(logs) - special.polygamma(1, (seeds - 1) / 2) if len(logs) > 1 else 0.0
    prior = 10.0
    if excess > 0:
        prior = min(prior, 2 * optimize.brentq(lambda y: special.polygamma(1, y) - excess, 1e-6, 1e6))
    differences = [
        sum(weight * by_variant[variant][seed] for variant, weight in weights.items()) for seed in range(seeds)
    ]
    own, weight = statistics.variance(differences), sum(weight**2 for weight in weights.values())
    total = prior + seeds - 1
    error = math.sqrt((prior * weight * common + (seeds - 1) * own) / total / seeds)
    left = max(seeds - 1, min(total, degrees))
    mean = statistics.fmean(differences)
    return Expected(mean, error, left, 2 * float(stats.t.sf(abs(mean) / error, left)))

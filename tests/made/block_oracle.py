"""The variance of a contrast over seeds, as benchmarks/recompute.py computes it, independent of `headtohead_judge`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from recompute import half_width, moderated_tests, p_of_zero

from headtohead.storage.frames import Frames

Weights = Mapping[str, float]


class Expected(NamedTuple):
    """Mean difference with its standard error over seeds, and degrees of freedom."""

    mean: float
    error: float
    degrees: float

    @property
    def p(self) -> float:
        return p_of_zero(self.mean, [(self.error**2, self.degrees)])

    def interval(self, level: float) -> tuple[float, float]:
        half = half_width([(self.error**2, self.degrees)], 1 - level)
        return self.mean - half, self.mean + half


def scores_of(frames: Frames, metric: str) -> dict[str, list[float]]:
    """Return the scores by seed of every variant that was trained."""
    trained = dict.fromkeys(map(frames.trained, frames.by_slug))
    return {slug: [frames.scores(slug, metric)[seed] for seed in frames.seeds] for slug in trained}


def expected_tests(
    by_variant: Mapping[str, Sequence[float]], family: Sequence[Weights]
) -> list[Expected]:
    """Return the moderated tests of weighted sums of the variants' scores, which are a family."""
    return [
        Expected(found["difference"], found["variance"] ** 0.5, found["degrees"])
        for found in moderated_tests(pd.DataFrame(by_variant), family)
    ]


def expected_test(by_variant: Mapping[str, Sequence[float]], weights: Weights) -> Expected:
    """Return the moderated test of a weighted sum of the variants' scores, which is a family of its own."""
    (found,) = expected_tests(by_variant, [weights])
    return found

"""The default test of a contrast, as benchmarks/recompute.py computes it, independent of `headtohead_judge`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from recompute import moderated_test
from scipy import stats

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


def expected_test(
    by_variant: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> Expected:
    """Return the moderated test of a weighted sum of the variants' scores."""
    found = moderated_test(pd.DataFrame(by_variant), weights)
    return Expected(found["difference"], found["error"], found["degrees"], found["p"])

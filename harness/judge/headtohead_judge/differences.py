"""Differences by seed of the contrasts of an experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

Side = TypeVar("Side", bound=Hashable)


def pair_differences(
    scores: Mapping[Side, Mapping[int, float]], pairs: Iterable[tuple[Side, Side]]
) -> tuple[list[int], np.ndarray]:
    """Return the seeds that all sides of the pairs have, and the differences ``[pair, seed]``."""
    pairs = list(pairs)
    shared: set[int] | None = None
    for left, right in pairs:
        common = scores[left].keys() & scores[right].keys()
        shared = common if shared is None else shared & common
    seeds = sorted(shared or ())
    rows = [[scores[left][seed] - scores[right][seed] for seed in seeds] for left, right in pairs]
    return seeds, np.array(rows, dtype=np.float64).reshape(len(pairs), len(seeds))


def score_weights(pairs: Iterable[tuple[Side, Side]]) -> Counter[Side]:
    """Return the weights of the scores in the sum of the differences of pairs."""
    weights: Counter[Side] = Counter()
    for left, right in pairs:
        weights.update({left: 1})
        weights.subtract({right: 1})
    return weights

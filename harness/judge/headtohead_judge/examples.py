"""Scores by test example: the variance of a contrast over samples of examples, crossed with the seeds.

Neighbouring examples, such as the blocks of a passage of text, are not independent of each other. They form a group,
and the groups are the sample.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headtohead_judge.paired_tests import EXAMPLES, Source
from headtohead_judge.variance import example_variance

Floats = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Examples(Generic[Key]):
    """The values of the examples of a test set.

    Attributes:
        groups: The number of the group of each example ``[example]``, whole numbers in any order.
        values: Values ``[example]`` by side and seed, with the score of the run as their mean. `ratio_values` and
            `variance.jackknife` return such values for scores that are not plain means.
    """

    groups: NDArray[np.int64]
    values: Mapping[Key, Mapping[int, Floats]]

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self._numbers[0])

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The groups, and the index of the group of each example."""
        numbers, indices = np.unique(self.groups, return_inverse=True)
        return numbers, indices.ravel()

    @cached_property
    def _by_group(self) -> dict[Key, dict[int, Floats]]:
        """Values ``[group]`` by side and seed, with the score of the run as their mean."""
        numbers, indices = self._numbers
        by_group: dict[Key, dict[int, Floats]] = {}
        for side, by_seed in self.values.items():
            by_group[side] = {}
            for seed, values in by_seed.items():
                mean = values.mean()
                # Deviations from the mean, so that the size of a group alone adds no variance.
                sums = np.bincount(indices, values - mean, minlength=len(numbers))
                by_group[side][seed] = mean + sums * (len(numbers) / len(values))
        return by_group

    def has(self, sides: Mapping[Key, float], seeds: list[int]) -> bool:
        """Return whether all these sides have values in all these seeds."""
        needed = set(seeds)
        return all(self.values.get(side, {}).keys() >= needed for side in sides)

    def by_group(self, weights: Mapping[Key, float], seeds: list[int]) -> Floats:
        """Return the weighted sum of the values of sides ``[seed, group]``; all sides have values in all seeds."""
        total = np.zeros((len(seeds), self.num_groups))
        for side, weight in weights.items():
            by_seed = self._by_group[side]
            total += weight * np.array([by_seed[seed] for seed in seeds])
        return total


def ratio_values(totals: ArrayLike, sizes: ArrayLike) -> Floats:
    """Return values ``[example]`` of a ratio of sums, with the ratio as their mean.

    A loss per label is such a ratio: the sum of the losses of all labels over the number of labels. The values are
    the linear approximation of the ratio (W. G. Cochran, Sampling Techniques, 1977, section 6.4).

    Args:
        totals: The summed loss of each example ``[example]``.
        sizes: The number of labels of each example ``[example]``; their sum is positive.
    """
    total_of_example = np.asarray(totals, dtype=np.float64)
    size_of_example = np.asarray(sizes, dtype=np.float64)
    size = size_of_example.sum()
    ratio = total_of_example.sum() / size
    values: Floats = (
        ratio + len(size_of_example) * (total_of_example - ratio * size_of_example) / size
    )
    return values


def source_of_examples(values: ArrayLike) -> Source:
    """Return the variance of a mean difference over samples of examples, with groups - 1 degrees of freedom.

    Args:
        values: ``[seed, group]`` of at least two seeds and two groups, with the difference of the seed as their mean.
    """
    x = np.asarray(values, dtype=np.float64)
    return Source(EXAMPLES, max(0.0, example_variance(x)), x.shape[1] - 1)

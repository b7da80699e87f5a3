"""LORD++: tests one after another, with an expected share of false detections of at most 5 %.

A. Ramdas, F. Yang, M. J. Wainwright and M. I. Jordan, Online control of the false discovery rate with decaying memory,
NeurIPS 2017, arXiv:1710.00499, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headtohead_judge.paired_tests import ALPHA

INITIAL_WEALTH = ALPHA / 2
"""The part of `ALPHA` that the tests before the first detection can spend."""


def level(test: int, detections: Sequence[int]) -> float:
    """Return the level of a test.

    Args:
        test: Number of the test, from 1.
        detections: Numbers of the earlier tests that detected a difference, in increasing order.
    """
    rewards = [(0, INITIAL_WEALTH)]
    for number, detection in enumerate(detections):
        is_first = number == 0
        rewards.append((detection, ALPHA - INITIAL_WEALTH if is_first else ALPHA))
    return sum(reward * _share(test - start) for start, reward in rewards)


def wealth(tests: int, detections: Sequence[int]) -> float:
    """Return the sum of the levels that remain for the tests after the first ``tests``, without further detections."""
    gained = INITIAL_WEALTH + sum(ALPHA for _ in detections)
    if detections:
        gained -= INITIAL_WEALTH
    spent = 0.0
    for test in range(1, tests + 1):
        earlier = [detection for detection in detections if detection < test]
        spent += level(test, earlier)
    return gained - spent


def _share(distance: int) -> float:
    """Return the share of a reward that the test at a distance spends; the shares of all distances sum to 1."""
    decay = distance * math.exp(math.sqrt(math.log(distance)))
    return 0.07720838 * math.log(max(distance, 2)) / decay

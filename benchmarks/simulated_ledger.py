"""Simulated chains of changes that `h2h judge --ledger` decides on, for many chains at once; a test compares both."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtr

from headtohead_judge.ledger import APART, LARGER, MAX_PRIOR_DEGREES
from headtohead_judge.online import INITIAL_WEALTH, level
from headtohead_judge.paired_tests import ALPHA

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CHANGES = 50
"""Number of changes of a chain."""
IMPROVEMENTS = 0.2
"""Fraction of the changes that improve the scores."""
SHARED = 0.3
"""Fraction of the variance over seeds that all variants share by seed."""
NOISY = 0.2
"""Fraction of the changes with another standard deviation of the scores."""


@dataclass(frozen=True)
class Chains:
    """How the changes of a chain are drawn and judged.

    Attributes:
        seeds: Number of seeds of each side.
        effect: Improvement by a change with an effect, in standard deviations of a score over seeds.
        noisy_sd: Standard deviation of the scores of a fifth of the changes.
        drift: Standard deviation, over sessions, of a shift of all scores of a session. Every change has a session.
        is_measured_again: Whether the incumbent is trained again in the session of each change; otherwise its stored
            scores are used.
        by_mean: Whether a change is kept if its mean is better, without a test.
    """

    seeds: int
    effect: float
    noisy_sd: float = 1.0
    drift: float = 0.0
    is_measured_again: bool = True
    by_mean: bool = False


@dataclass(frozen=True)
class Decisions:
    """The decisions on simulated chains.

    Attributes:
        kept: Whether each change is kept ``[chain, change]``.
        is_real: Whether each change is an improvement ``[chain, change]``.
        ratio: Its p-value divided by its level ``[chain, change]``.
        candidates: The scores of each change ``[chain, change, seed]``.
        incumbents: The scores that it is compared with ``[chain, change, seed]``.
    """

    kept: Flags
    is_real: Flags
    ratio: Floats
    candidates: Floats
    incumbents: Floats


def decide(generator: np.random.Generator, number: int, chains: Chains) -> Decisions:
    """Return the decisions on a number of simulated chains."""
    shape = (number, CHANGES)
    is_real = generator.random(shape) < IMPROVEMENTS
    sd = np.where(generator.random(shape) < NOISY, chains.noisy_sd, 1.0)
    shared = math.sqrt(SHARED) * generator.normal(size=(number, chains.seeds))
    decisions = Decisions(
        kept=np.zeros(shape, dtype=bool),
        is_real=is_real,
        ratio=np.zeros(shape),
        candidates=np.zeros((*shape, chains.seeds)),
        incumbents=np.zeros((*shape, chains.seeds)),
    )
    online = OnlineTests(number)
    mean = np.zeros(number)  # of the incumbent, over seeds and sessions
    incumbent_sd = np.ones(number)
    first_session = chains.drift * generator.normal(size=number)
    incumbent = drawn(generator, mean + first_session, incumbent_sd, shared)
    for change in range(CHANGES):
        session = chains.drift * generator.normal(size=number)
        of_candidate = mean + chains.effect * is_real[:, change]
        candidate = drawn(generator, of_candidate + session, sd[:, change], shared)
        if chains.is_measured_again:
            incumbent = drawn(generator, mean + session, incumbent_sd, shared)
        difference = candidate - incumbent
        if chains.by_mean:
            ratio = np.where(difference.mean(axis=1) > 0, 0.0, 2.0)
        else:
            ratio = online.ratio(change, difference)
        kept = ratio <= 1
        online.add(change, kept)
        decisions.kept[:, change] = kept
        decisions.ratio[:, change] = ratio
        decisions.candidates[:, change] = candidate
        decisions.incumbents[:, change] = incumbent
        mean = np.where(kept, of_candidate, mean)
        incumbent_sd = np.where(kept, sd[:, change], incumbent_sd)
        incumbent = np.where(kept[:, None], candidate, incumbent)
    return decisions


def drawn(generator: np.random.Generator, mean: Floats, sd: Floats, shared: Floats) -> Floats:
    """Return scores ``[chain, seed]`` with the mean and the standard deviation of each chain."""
    own = math.sqrt(1 - SHARED) * generator.normal(size=shared.shape)
    return mean[:, None] + sd[:, None] * own + shared


def largest_common(variances: Floats, degrees: int) -> Floats:
    """Return the largest of the variances ``[chain, decision]`` that is not larger than those below it ``[chain]``.

    All have the same degrees of freedom.
    """
    ordered = np.sort(variances, axis=1)
    number = ordered.shape[1]
    largest = np.full(len(ordered), np.inf)
    for count in range(max(1, math.ceil(number / 2)), number):
        common = ordered[:, :count].mean(axis=1)
        p = fdtrc(degrees, count * degrees, ordered[:, count] / common)
        is_first = np.isinf(largest) & (p <= APART / number)
        largest = np.where(is_first, ordered[:, count - 1], largest)
    return largest


class OnlineTests:
    """The variances and rewards of the decisions so far, of all chains."""

    def __init__(self, number: int) -> None:
        self._variances = np.zeros((number, CHANGES))
        self._rewards = np.zeros((number, CHANGES))
        self._kept = np.zeros(number, dtype=bool)
        self._levels = np.array([level(test, []) for test in range(1, CHANGES + 1)])

    def ratio(self, change: int, difference: Floats) -> Floats:
        """Return the p-value of "better" divided by its level, from differences ``[chain, seed]``."""
        seeds = difference.shape[1]
        own_degrees = seeds - 1
        own = difference.var(axis=1, ddof=1)
        self._variances[:, change] = own
        variance = own
        degrees = np.full(len(own), float(own_degrees))
        if change:
            largest = largest_common(self._variances[:, : change + 1], own_degrees)
            earlier = self._variances[:, :change]
            is_common = earlier <= largest[:, None]
            number = is_common.sum(axis=1)
            total = (earlier * is_common).sum(axis=1)
            divisor = np.maximum(number, 1)
            common = np.where(number, total / divisor, own)
            prior = np.minimum(MAX_PRIOR_DEGREES, number * own_degrees)
            divisor_degrees = np.maximum(prior, 1)
            p_of_ratio = fdtrc(own_degrees, divisor_degrees, own / common)
            is_larger = p_of_ratio <= LARGER
            is_apart = own > largest
            prior = np.where(is_larger | is_apart, 0.0, prior)
            degrees = prior + own_degrees
            of_prior = prior * common
            variance = (of_prior + own_degrees * own) / degrees
        p = stdtr(degrees, -difference.mean(axis=1) / np.sqrt(variance / seeds))
        gained = self._rewards[:, :change] @ self._levels[:change][::-1] / INITIAL_WEALTH
        ratio: Floats = p / (self._levels[change] + gained)
        return ratio

    def add(self, change: int, kept: Flags) -> None:
        """Add the reward of a decision; the first kept change has a smaller one."""
        is_first = kept & ~self._kept
        self._rewards[:, change] = ALPHA * kept - INITIAL_WEALTH * is_first
        self._kept |= kept

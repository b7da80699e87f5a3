"""Rules of other projects, and the ledger, on simulated chains of changes, for many chains at once.

The chains are those of `simulated_ledger`: a run's score is the mean of its variant, plus noise with a standard
deviation (sd) of 1, of which a part is shared by seed, plus the drift of its session. Larger scores are better.
`benchmarks/recompute_keep_rules.py` implements the same rules a second time, run by run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import stdtr
from simulated_ledger import CHANGES, IMPROVEMENTS, SHARED, Flags, Floats, OnlineTests, drawn

MARIN_ASYMPTOTE = 1.6
MARIN_FACTOR = 88.32
MARIN_EXPONENT = 0.0941
MARIN_FLOPS = (3.82e17, 2.81e18, 1.16e19, 3.46e19)
MARIN_TARGETS = (1e21, 1e23)
"""Scaling law, scales of the two gates, and budgets of the projections of marin's agent guide."""

SD_SHARED = math.sqrt(SHARED)
SD_OWN = math.sqrt(1 - SHARED)
"""Standard deviations of the parts of a score that runs of equal seeds share, and that each run has alone."""

Z_OF_P_0001 = 3.09
"""Quantile that track 3 of modded-nanogpt states for p < 0.001."""


@dataclass(frozen=True)
class Setting:
    """What changes do, and how they are tried.

    Attributes:
        name: The setting, for tables.
        drift: Standard deviation, over sessions, of a shift of all scores of a session.
        tried: Number of changes that an agent tries with one seed before it submits the best of them.
        harmful: Fraction of the changes that make the scores worse by as much as improvements make them better.
    """

    name: str
    drift: float = 0.0
    tried: int = 1
    harmful: float = 0.0


class Step(NamedTuple):
    """The decision of a rule on a change: whether each chain keeps it, and the runs that the rule spent on it."""

    kept: Flags
    runs: Floats


class Rule(Protocol):
    """A rule that keeps or discards a change.

    Attributes:
        runs: Largest number of runs of a candidate.
        first_runs: Number of runs before the first change.
        trains_both: Whether the incumbent is trained again beside each candidate.
        uses_selected_run: Whether the run by which an agent selected the change is one of its runs.
    """

    runs: int
    first_runs: int
    trains_both: bool
    uses_selected_run: bool

    def start(self, baseline: Floats, again: Floats) -> None:
        """Begin chains with the scores of the baseline ``[chain, run]``, and one more run of it ``[chain]``."""

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        """Decide on a change from the scores of both sides ``[chain, run]``."""


class _StoredScores:
    """A rule that compares with the stored scores of the incumbent."""

    trains_both = False
    uses_selected_run = True

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.first_runs = runs

    def start(self, baseline: Floats, again: Floats) -> None:
        pass

    def all_runs(self, number: int) -> Floats:
        """Return the runs of a candidate of each chain, if every candidate has all."""
        return np.full(number, float(self.runs))


class BetterMean(_StoredScores):
    """The mean is better."""

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        kept = candidate.mean(axis=1) > incumbent.mean(axis=1)
        return Step(kept, self.all_runs(len(kept)))


class Mad(_StoredScores):
    """Better than the best kept run, which exceeds the first run by two median absolute deviations of all runs."""

    def __init__(self) -> None:
        super().__init__(1)
        self._scores: Floats = np.zeros((0, 0))

    def start(self, baseline: Floats, again: Floats) -> None:
        self._scores = baseline.copy()

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        self._scores = np.concatenate([self._scores, candidate], axis=1)
        kept = candidate[:, 0] > incumbent[:, 0]
        if self._scores.shape[1] < 3:
            kept[:] = False
        scores = self._scores[kept]
        first = scores[:, 0]
        last = scores[:, -1]
        median = np.median(scores, axis=1, keepdims=True)
        distances = np.abs(scores - median)
        deviation = np.median(distances, axis=1)
        kept[kept] = np.abs(last - first) >= 2 * deviation
        return Step(kept, self.all_runs(len(kept)))


class NoiseFloor(_StoredScores):
    """Better by twice the difference of two runs of the baseline."""

    def __init__(self) -> None:
        super().__init__(1)
        self.first_runs = 2
        self._floor: Floats = np.zeros(0)

    def start(self, baseline: Floats, again: Floats) -> None:
        self._floor = np.abs(baseline[:, 0] - again)

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        gain = candidate[:, 0] - incumbent[:, 0]
        kept = (gain > 0) & (gain >= 2 * self._floor)
        return Step(kept, self.all_runs(len(kept)))


class KnownDeviation(_StoredScores):
    """A one-sided z-test with a published standard deviation, against the stored mean as if it had no error."""

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        gain = candidate.mean(axis=1) - incumbent.mean(axis=1)
        kept = gain * math.sqrt(self.runs) >= Z_OF_P_0001
        return Step(kept, self.all_runs(len(kept)))


class LenientTest(_StoredScores):
    """Welch's t-test, one-sided, with p < 0.25."""

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        of_candidate = candidate.var(axis=1, ddof=1) / self.runs
        of_incumbent = incumbent.var(axis=1, ddof=1) / self.runs
        variance = of_candidate + of_incumbent
        squares = of_candidate**2 + of_incumbent**2
        degrees = (self.runs - 1) * variance**2 / squares
        difference = candidate.mean(axis=1) - incumbent.mean(axis=1)
        t = difference / np.sqrt(variance)
        kept = stdtr(degrees, -t) < 0.25
        return Step(kept, self.all_runs(len(kept)))


class Bootstrap(_StoredScores):
    """Of resampled means, 95 % are better; a first run that is not better than the stored mean ends the trial."""

    def __init__(self) -> None:
        super().__init__(3)
        counts = []
        for sample in itertools.product(range(3), repeat=3):
            counts.append([sample.count(run) for run in range(3)])
        unique, repeats = np.unique(counts, axis=0, return_counts=True)
        self._weights: Floats = unique / 3
        self._chance: Floats = repeats / len(counts)

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        is_tried = candidate[:, 0] > incumbent.mean(axis=1)
        means = candidate @ self._weights.T
        against = incumbent @ self._weights.T
        is_better = means[:, :, None] > against[:, None, :]
        chance = np.einsum("cij,i,j->c", is_better, self._chance, self._chance)
        kept = is_tried & (chance >= 0.95 - 1e-9)
        return Step(kept, np.where(is_tried, 3.0, 1.0))


class MarinGates(_StoredScores):
    """Gate 1: better at two scales; gate 2: better at four, and in two projections of a fitted scaling law.

    A run is one at each scale, with equal throughput. The law is fitted by least squares of the logarithms; its
    projections are linear in small changes of the losses.
    """

    def __init__(self) -> None:
        super().__init__(len(MARIN_FLOPS))
        flops = np.asarray(MARIN_FLOPS)
        reducible = MARIN_FACTOR * flops**-MARIN_EXPONENT
        design = _with_intercept(flops)
        targets = _with_intercept(np.asarray(MARIN_TARGETS))
        fit = np.linalg.pinv(design)
        self._projections: Floats = targets @ fit / reducible

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        gain = candidate - incumbent
        passes_first = (gain[:, :2] > 0).all(axis=1)
        projected = gain @ self._projections.T
        is_better = (gain > 0).all(axis=1)
        is_projected_better = (projected > 0).all(axis=1)
        kept = is_better & is_projected_better
        return Step(kept, np.where(passes_first, 4.0, 2.0))


def _with_intercept(flops: Floats) -> Floats:
    """Return the rows ``[1, log flops]`` of a linear regression."""
    columns = [np.ones(len(flops)), np.log(flops)]
    return np.stack(columns, axis=1)


class LedgerRule:
    """``judge --ledger``: both sides trained side by side, with the levels of LORD++."""

    trains_both = True
    first_runs = 0

    def __init__(self, runs: int, *, uses_selected_run: bool = True) -> None:
        self.runs = runs
        self.uses_selected_run = uses_selected_run
        self._online = OnlineTests(0)

    def start(self, baseline: Floats, again: Floats) -> None:
        self._online = OnlineTests(len(baseline))

    def step(self, change: int, candidate: Floats, incumbent: Floats) -> Step:
        ratio = self._online.ratio(change, candidate - incumbent)
        kept = ratio <= 1
        self._online.add(change, kept)
        runs = np.full(len(kept), 2.0 * self.runs)
        return Step(kept, runs)


class Chains:
    """Chains of changes under a rule, in a setting, change by change."""

    def __init__(
        self,
        generator: np.random.Generator,
        number: int,
        rule: Rule,
        setting: Setting,
        effect: float,
    ) -> None:
        self._generator = generator
        self._rule = rule
        self._setting = setting
        self._effect = effect
        self._sd = np.ones(number)
        self._shared = SD_SHARED * self._normal((number, rule.runs))
        self.mean = np.zeros(number)
        session = self._session()
        self._stored = self._drawn(session)
        again = self._drawn(session)[:, 0]
        rule.start(self._stored, again)

    def _normal(self, shape: tuple[int, ...]) -> Floats:
        return self._generator.normal(size=shape)

    def _session(self) -> Floats:
        """Return the shift of all scores of a new session of each chain."""
        return self._setting.drift * self._normal(self.mean.shape)

    def _drawn(self, shift: Floats) -> Floats:
        """Return scores ``[chain, run]`` of the incumbent, or with a gain in ``shift`` of a candidate."""
        return drawn(self._generator, self.mean + shift, self._sd, self._shared)

    def _submitted(self) -> tuple[Floats, Floats]:
        """Return the gain of the submitted change of each chain, and the noise of the run that selected it."""
        shape = (len(self.mean), self._setting.tried)
        kind = self._generator.random(shape)
        gains = np.where(kind < IMPROVEMENTS, self._effect, 0.0)
        gains[kind > 1 - self._setting.harmful] = -self._effect
        noise = SD_OWN * self._normal(shape)
        best = np.argmax(gains + noise, axis=1)
        chain = np.arange(len(best))
        return gains[chain, best], noise[chain, best]

    def step(self, change: int) -> tuple[Step, Floats]:
        """Return the decision on the next change with all runs spent on it, and its true gain."""
        rule = self._rule
        gain, noise = self._submitted()
        session = self._session()
        candidate = self._drawn(session + gain)
        is_selected = self._setting.tried > 1
        if is_selected and rule.uses_selected_run:
            of_seed = self._shared[:, 0]
            candidate[:, 0] = self.mean + session + gain + noise + of_seed
        incumbent = self._stored
        if rule.trains_both:
            incumbent = self._drawn(session)
        kept, runs = rule.step(change, candidate, incumbent)
        if is_selected:
            runs = runs + self._setting.tried - rule.uses_selected_run
        self.mean = self.mean + np.where(kept, gain, 0.0)
        is_stored = kept[:, None]
        self._stored = np.where(is_stored, candidate, self._stored)
        return Step(kept, runs), gain


@dataclass(frozen=True)
class Outcome:
    """What a rule did in a setting.

    Attributes:
        noise: Fraction of the kept changes of all chains that are no improvement.
        share: Mean over chains of the fraction of their kept changes that are no improvement; 0 if a chain keeps none.
        chains: Fraction of the chains that keep a change that is no improvement.
        found: Fraction of the submitted improvements that are kept.
        runs: Mean number of runs of a chain of `CHANGES` changes.
        quality: Mean of the incumbent after a budget of runs, in standard deviations of a run.
    """

    noise: float
    share: float
    chains: float
    found: float
    runs: float
    quality: float


def outcome(
    seed: Sequence[int], number: int, rule: Rule, setting: Setting, effect: float, budget: int
) -> Outcome:
    """Simulate a rule: ``number`` chains of `CHANGES` changes, and a tenth as many until the budget is spent."""
    generator = np.random.default_rng(seed)
    chains = Chains(generator, number, rule, setting, effect)
    wrong = np.zeros(number)
    right = np.zeros(number)
    improvements = 0
    runs = float(rule.first_runs)
    for change in range(CHANGES):
        step, gain = chains.step(change)
        is_real = gain > 0
        wrong += step.kept & ~is_real
        right += step.kept & is_real
        improvements += int(is_real.sum())
        runs += float(step.runs.mean())
    kept = wrong + right
    noise = math.nan
    if kept.any():
        noise = wrong.sum() / kept.sum()
    shares = wrong / np.maximum(1, kept)
    has_noise = wrong > 0
    found = right.sum() / improvements
    few = max(1, number // 10)
    again = Chains(generator, few, rule, setting, effect)
    return Outcome(
        noise=float(noise),
        share=float(shares.mean()),
        chains=float(has_noise.mean()),
        found=float(found),
        runs=runs,
        quality=_quality(again, rule.first_runs, budget),
    )


def _quality(chains: Chains, first_runs: int, budget: int) -> float:
    """Return the mean, over new chains, of the incumbent's mean after the last change that the budget permits."""
    spent = np.full(chains.mean.shape, float(first_runs))
    reached = np.zeros(chains.mean.shape)
    change = 0
    while True:
        step, _ = chains.step(change)
        spent += step.runs
        is_within = spent <= budget
        if not is_within.any():
            return float(reached.mean())
        reached = np.where(is_within, chains.mean, reached)
        change += 1

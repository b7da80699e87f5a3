"""Simulated studies of equal variants with tuned learning rates: how often a contrast has a wrong direction.

    python benchmarks/simulated_tuning.py [--studies 1000] [--correlation 0.5]

A study has the losses of a committed sweep: a cubic curve through the means of a variant at its rates, and normal noise
with the standard deviation of all tuning runs of the report. All variants have this curve, so every direction is wrong.
Each variant is tuned by its own tuning runs, as `headtohead.planning.tuning` does, and compared on other seeds. With
``--correlation``, the noise of a seed at neighbouring rates is correlated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from headtohead.analysis.selection import selections
from headtohead.planning.tuning.choice import FURTHER_SEEDS, choose
from headtohead.planning.tuning.settings import TuningSetting
from headtohead.planning.tuning.trials import tuned_variant
from headtohead.planning.tuning.widening import MAX_WIDENINGS, widened
from headtohead.storage.tuning import (
    TUNING_METRIC,
    Rule,
    TrialRecord,
    TrialRun,
    TunedVariant,
    TuningRecord,
    number_of,
)
from headtohead_judge.contrast import Contrast, ScoreTable, Selection, Side, estimate_family
from headtohead_judge.verdicts import DETECTED, judge

Floats = NDArray[np.float64]

RATE = "train.lr"
TUNE_SEEDS = 2
LISTED = 4
"""Number of rates that a sweep lists; further ones follow beyond its ends."""


class CommittedSweep(NamedTuple):
    """A variant's tuning runs in a committed report.

    Attributes:
        name: The report and the variant.
        rates: The rates, each twice the one before.
        losses: The mean validation loss at each rate.
        sd: The standard deviation over seeds, pooled over all tuning runs of the report.
        variants: The number of variants of the report.
        seeds: The number of seeds of its comparison.
    """

    name: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    sd: float
    variants: int
    seeds: int


RATES = (0.001, 0.002, 0.004, 0.008, 0.016)
SWEEPS = (
    CommittedSweep(
        "equal-steps, partial rotary", RATES[:4], (1.862, 1.793, 1.785, 1.841), 0.0113, 10, 12
    ),
    CommittedSweep(
        "equal-parameters, split heads", RATES, (1.972, 1.889, 1.832, 1.811, 1.855), 0.0116, 4, 12
    ),
    CommittedSweep(
        "equal-parameters, gate", RATES, (1.907, 1.838, 1.783, 1.766, 1.835), 0.0116, 4, 12
    ),
    CommittedSweep("equal-time, gate", RATES, (1.946, 1.869, 1.805, 1.784, 1.840), 0.0167, 4, 12),
    CommittedSweep(
        "tatoeba, split heads", RATES, (1.743, 1.635, 1.573, 1.551, 1.622), 0.0159, 8, 12
    ),
    CommittedSweep(
        "tatoeba, partial rotary", RATES, (1.929, 1.802, 1.694, 1.636, 1.658), 0.0159, 8, 12
    ),
    CommittedSweep(
        "partial-rotary, rotary", RATES, (1.976, 1.881, 1.841, 1.840, 1.869), 0.0144, 3, 6
    ),
    CommittedSweep(
        "architectures-tatoeba, decoder-only",
        (0.0015, 0.003, 0.006, 0.012, 0.024),
        (3.205, 2.855, 2.673, 2.592, 2.675),
        0.0435,
        3,
        6,
    ),
    CommittedSweep(
        "architectures-tatoeba, encoder-decoder",
        (0.0015, 0.003, 0.006, 0.012, 0.024),
        (2.946, 2.583, 2.365, 2.359, 3.256),
        0.0435,
        3,
        6,
    ),
)
"""Sweeps of four and more rates, with flat, steep and unlike sides."""


@dataclass(frozen=True)
class TunedNulls:
    """The results of studies of equal variants.

    Attributes:
        grid: The share of studies with a wrong direction where each variant has the best rate of two seeds.
        chosen: The same where each variant has the rate that the host chooses, with intervals over seeds alone.
        with_choice: The same with the choice as a source of variance.
        by_curve: The share of variants at the minimum of a parabola.
        sd: The standard deviation of the loss at the chosen rate over variants.
        estimated_sd: The root of the mean estimated variance of the choice.
        wider: The mean ratio of the widths of an interval with and without the choice.
    """

    grid: float
    chosen: float
    with_choice: float
    by_curve: float
    sd: float
    estimated_sd: float
    wider: float


class TuningRuns:
    """The losses of a variant's tuning runs at any rate of the sweep or beyond it, in the sweep's ratio of 2."""

    BEYOND = 4
    """Number of rates below and above the listed ones that have losses."""

    def __init__(
        self, sweep: CommittedSweep, generator: np.random.Generator, correlation: float
    ) -> None:
        self.first = sweep.rates[0]
        rates = LISTED + 2 * self.BEYOND
        seeds = TUNE_SEEDS + FURTHER_SEEDS
        noise = generator.normal(size=(rates, seeds))
        for rate in range(1, rates):
            shared = correlation * noise[rate - 1]
            noise[rate] = shared + math.sqrt(1 - correlation**2) * noise[rate]
        self.losses = sweep.sd * noise
        for rate in range(rates):
            self.losses[rate] += loss_at(sweep, self.first * 2.0 ** (rate - self.BEYOND))

    def trial(self, rate: float, seeds: int = TUNE_SEEDS) -> TrialRecord:
        """Return the tuning runs at a rate; those beyond the first ``LISTED`` rates are further ones."""
        row = round(math.log2(rate / self.first)) + self.BEYOND
        runs = []
        for seed, loss in enumerate(self.losses[row, :seeds].tolist()):
            scores = {TUNING_METRIC: loss}
            runs.append(TrialRun(run_hash="", seed=seed, scores=scores))
        is_further = not self.BEYOND <= row < self.BEYOND + LISTED
        return TrialRecord(values={RATE: rate}, runs=tuple(runs), is_further=is_further)


def loss_at(sweep: CommittedSweep, rate: float) -> float:
    """Return the expected loss at a rate: a cubic polynomial in its logarithm."""
    return float(_curve(sweep)(math.log(rate)))


@cache
def _curve(sweep: CommittedSweep) -> Polynomial:
    return Polynomial.fit(np.log(sweep.rates), sweep.losses, 3)


def setting(rate: float) -> TuningSetting:
    """Return the setting of a rate."""
    return TuningSetting({RATE: rate}, {"train": {"lr": rate}})


def tune(runs: TuningRuns) -> TunedVariant:
    """Tune a variant: the listed rates, further ones, then further seeds of the two best, as the choice asks for."""
    settings = tuple(setting(runs.first * 2.0**number) for number in range(LISTED))
    for _ in range(MAX_WIDENINGS + 1):
        tried = [runs.trial(float(setting.values[RATE])) for setting in settings]
        choice = choose(tried, TUNE_SEEDS)
        wider = widened(settings, tried, choice)
        if wider == settings or len(settings) == LISTED + MAX_WIDENINGS:
            break
        settings = wider
    candidates = [trial.values for trial in choice.candidates]
    for number, trial in enumerate(tried):
        if trial.values in candidates:
            rate = number_of(trial.values, RATE)
            tried[number] = runs.trial(rate, TUNE_SEEDS + FURTHER_SEEDS)
    return tuned_variant(tuple(tried), choose(tried, TUNE_SEEDS))


def best_of_grid(runs: TuningRuns) -> float:
    """Return the rate with the best mean of two seeds; a best rate at an end of the sweep gets a further one."""
    means = {}
    for number in range(LISTED):
        rate = runs.first * 2.0**number
        means[rate] = runs.trial(rate).mean
    for _ in range(MAX_WIDENINGS):
        best = min(means, key=means.__getitem__)
        if best == max(means):
            further = 2 * best
        elif best == min(means):
            further = best / 2
        else:
            break
        means[further] = runs.trial(further).mean
    return min(means, key=means.__getitem__)


def half_widths(
    losses: Floats, scores: Floats, terms: Mapping[Side, Selection]
) -> tuple[bool, list[float]]:
    """Return whether a contrast with the first variant has a direction, and half the width of each interval.

    Args:
        losses: ``[variant]``, the expected loss of each variant.
        scores: ``[variant, seed]``, the noise of the compared runs.
        terms: The variance of the choice by variant; empty to leave it out.
    """
    sides = [Side(str(number), TUNING_METRIC) for number in range(len(losses))]
    by_side = {}
    for side, loss, row in zip(sides, losses.tolist(), scores.tolist(), strict=True):
        by_side[side] = {seed: loss + value for seed, value in enumerate(row)}
    first = sides[0]
    contrasts = [Contrast(side.variant, "variant", ({side: 1, first: -1},)) for side in sides[1:]]
    table = ScoreTable(by_side, (sides,), selection=terms)
    differences = [estimate.difference for estimate in estimate_family(contrasts, table)]
    judgements = judge(differences, higher_is_better=False)
    widths = []
    for judgement in judgements:
        assert judgement.interval is not None
        widths.append((judgement.interval.high - judgement.interval.low) / 2)
    return any(judgement.direction in DETECTED for judgement in judgements), widths


def tuned_nulls(
    sweep: CommittedSweep,
    studies: int,
    generator: np.random.Generator,
    correlation: float = 0.0,
) -> TunedNulls:
    """Return the rates of wrong directions between equal variants, tuned with the noise of a committed sweep.

    Args:
        sweep: The sweep.
        studies: The number of studies.
        generator: Draws the noise.
        correlation: The correlation of the noise of a seed at a rate and at twice this rate.
    """
    wrong = np.zeros(3)
    losses_chosen = []
    variances = []
    by_curve = []
    wider = []
    for _ in range(studies):
        runs = [TuningRuns(sweep, generator, correlation) for _ in range(sweep.variants)]
        scores = sweep.sd * generator.normal(size=(sweep.variants, sweep.seeds))
        of_grid = np.array([loss_at(sweep, best_of_grid(of_variant)) for of_variant in runs])
        tuned = [tune(of_variant) for of_variant in runs]
        rates = [number_of(of_variant.chosen, RATE) for of_variant in tuned]
        chosen = np.array([loss_at(sweep, rate) for rate in rates])
        terms = terms_of(tuned)
        found_grid, _ = half_widths(of_grid, scores, {})
        found, widths = half_widths(chosen, scores, {})
        found_with_choice, wider_widths = half_widths(chosen, scores, terms)
        wrong += (found_grid, found, found_with_choice)
        losses_chosen.append(chosen)
        variances += [term.variance for term in terms.values()]
        by_curve += [of_variant.rule == Rule.CURVE for of_variant in tuned]
        wider += (np.array(wider_widths) / np.array(widths)).tolist()
    grid, without_choice, with_choice = (wrong / studies).tolist()
    return TunedNulls(
        grid=grid,
        chosen=without_choice,
        with_choice=with_choice,
        by_curve=float(np.mean(by_curve)),
        sd=float(np.std(losses_chosen)),
        estimated_sd=math.sqrt(np.mean(variances)),
        wider=float(np.mean(wider)),
    )


def terms_of(tuned: Sequence[TunedVariant]) -> dict[Side, Selection]:
    """Return the variance of the choice of each variant."""
    record = TuningRecord(
        experiment="tuning",
        fields=(RATE,),
        metric=TUNING_METRIC,
        seeds=tuple(range(TUNE_SEEDS)),
        variants={str(number): of_variant for number, of_variant in enumerate(tuned)},
    )
    terms = selections(record, TUNING_METRIC).by_variant
    return {Side(slug, TUNING_METRIC): term for slug, term in terms.items()}


COLUMNS = (
    "sweep",
    "variants × seeds",
    "best of the grid",
    "chosen",
    "with the choice",
    "by curve",
    "sd of the choice",
    "estimated",
    "wider",
)
HEADER = f"| {' | '.join(COLUMNS)} |\n|---|---|{7 * '---:|'}"
ROW = (
    "| {name} | {variants} × {seeds} | {grid:.1%} | {chosen:.1%} | {with_choice:.1%} | {by_curve:.0%} | {sd:.4f} | "
    "{estimated_sd:.4f} | × {wider:.2f} |"
)


def lines(studies: int, correlation: float) -> Iterator[str]:
    """Yield the lines of a table with a row per committed sweep."""
    yield HEADER
    for number, sweep in enumerate(SWEEPS):
        nulls = tuned_nulls(sweep, studies, np.random.default_rng(number), correlation)
        yield ROW.format(**(sweep._asdict() | vars(nulls)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--correlation", type=float, default=0.0)
    arguments = parser.parse_args()
    for line in lines(arguments.studies, arguments.correlation):
        print(line, flush=True)


if __name__ == "__main__":
    main()

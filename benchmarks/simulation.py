"""Simulated studies with known effects: rates of wrong verdicts and coverage of every printed interval.

    python benchmarks/simulation.py [--studies 10000]

The studies are judged by `headtohead.statistics`, like those of a report. Scores of variants share the effect of a
seed (intra-class correlation 0.5) and have a standard deviation of 1 over seeds. Studies with sentences draw whether
each translation is correct from a probit model with normal effects of variants, seeds, sentences and their
interaction; a corpus metric is the ratio of two sums over sentences.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from headtohead.statistics.best import compare_with_best
from headtohead.statistics.paired_tests import interval, paired_differences
from headtohead.statistics.variance import crossed, jackknife, pooled
from headtohead.statistics.verdicts import judge

Floats = NDArray[np.float64]
MARGIN = 2.0
"""Margin in standard deviations of a score over seeds."""
EFFECTS = {1: (1.0,), 4: (0.0, 1.0, 2.0, 4.0)}
"""True effects of studies that measure coverage, by number of contrasts."""
SENTENCES = 250
SENTENCE_SD, INTERACTION_SD, SEED_SD = 1.0, 0.6, 0.15
"""Standard deviations of the probit model."""


@dataclass(frozen=True)
class Rate:
    """A measured rate and the range that it must lie in."""

    label: str
    rate: float
    low: float
    high: float

    @property
    def is_within(self) -> bool:
        """Whether the rate is in its range."""
        return self.low <= self.rate <= self.high


def differences(generator: np.random.Generator, studies: int, effects: Sequence[float], seeds: int) -> Floats:
    """Return paired differences from the baseline ``[study, contrast, seed]``; the baseline's noise is shared."""
    own = generator.normal(size=(studies, len(effects) + 1, seeds)) * math.sqrt(0.5)  # the seed effect cancels
    result: Floats = own[:, 1:] - own[:, :1] + np.asarray(effects)[:, None]
    return result


def wrong_verdicts(generator: np.random.Generator, studies: int, contrasts: int, seeds: int) -> list[Rate]:
    """Return the rates of studies with a wrong verdict if all effects are 0, and if all equal the margin."""
    null = differences(generator, studies, [0.0] * contrasts, seeds)
    at_margin = differences(generator, studies, [MARGIN] * contrasts, seeds)
    wrong = sum(_has(study, None, ("better", "worse")) for study in null)
    equivalent = sum(_has(study, MARGIN, ("equivalent",)) for study in at_margin)
    design = f"{contrasts} contrast{'s' * (contrasts != 1)}, {seeds} seeds"
    return [
        Rate(f"wrong better or worse; {design}", wrong / studies, 0.0, 0.055),
        Rate(f"wrong equivalent; {design}", equivalent / studies, 0.0, 0.055),
    ]


def _has(study: Floats, margin: float | None, verdicts: Sequence[str]) -> bool:
    judgements = judge([paired_differences(row) for row in study], margin=margin)
    return any(judgement.verdict in verdicts for judgement in judgements)


def seed_coverage(generator: np.random.Generator, studies: int, contrasts: int, seeds: int) -> list[Rate]:
    """Return the coverage of the three intervals over seeds, and their mean levels."""
    effects = EFFECTS[contrasts]
    levels, covered = np.zeros(3), np.zeros(3)
    for study in differences(generator, studies, effects, seeds):
        family = [paired_differences(row) for row in study]
        for effect, paired, judgement in zip(effects, family, judge(family, margin=MARGIN), strict=True):
            assert judgement.interval
            assert judgement.equivalence
            intervals = interval(paired, 0.95), judgement.interval, judgement.equivalence.interval
            levels += [part.level for part in intervals]
            covered += [part.low <= effect <= part.high for part in intervals]
    total = studies * contrasts
    names = ("95 % interval over seeds", "interval at the Holm step", "interval of the equivalence test")
    design = f"{contrasts} contrast{'s' * (contrasts != 1)}, {seeds} seeds"
    return [
        _coverage(f"{name}; {design}", hits / total, level / total)
        for name, hits, level in zip(names, covered, levels, strict=True)
    ]


def pooled_coverage(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> list[Rate]:
    """Return the coverage of the interval with pooled variance, of variants whose seeds do not correlate."""
    weights = [1.0, -1.0] + [0.0] * (variants - 2)
    covered = 0
    for scores in generator.normal(size=(studies, variants, seeds)):
        found = pooled(scores, weights).interval()
        covered += found.low <= 0 <= found.high
    return [
        _coverage(f"95 % interval with pooled variance; {variants} variants, {seeds} seeds", covered / studies, 0.95)
    ]


def _coverage(label: str, rate: float, level: float) -> Rate:
    return Rate(label, rate, level - 0.02, level + 0.02)


def sentence_coverage(generator: np.random.Generator, studies: int, seeds: int, effect: float) -> list[Rate]:
    """Return the coverage of intervals of a difference in exact match, over seeds and with sentences.

    The interval over seeds estimates the difference on these sentences; the intervals with sentences, after Graybill
    and Wang and after Satterthwaite, that on all sentences.
    """
    spread = math.hypot(1.0, SEED_SD)
    truth = ndtr(effect / math.hypot(spread, SENTENCE_SD, INTERACTION_SD)) - 0.5
    covered = np.zeros(4)
    for _ in range(studies):
        ability = np.array([effect, 0.0])[:, None] + generator.normal(0, SENTENCE_SD, SENTENCES)
        ability += generator.normal(0, INTERACTION_SD, (2, SENTENCES))
        latent = ability[:, None] + generator.normal(0, SEED_SD, (2, seeds, 1))
        exact = latent + generator.normal(size=(2, seeds, SENTENCES)) > 0
        d = exact[0].astype(np.float64) - exact[1]
        here = float(np.subtract(*ndtr(ability / spread)).mean())
        over_seeds, with_sentences = interval(paired_differences(d.mean(axis=1)), 0.95), crossed(d).interval()
        covered += [
            over_seeds.low <= here <= over_seeds.high,
            with_sentences.low <= truth <= with_sentences.high,
            over_seeds.low <= truth <= over_seeds.high,
            abs(d.mean() - truth) <= satterthwaite_half_width(d),
        ]
    design = f"{seeds} seeds, {SENTENCES} sentences, effect {truth:.2f}"
    here, everywhere, blind, satterthwaite = (float(rate) for rate in covered / studies)
    return [
        _coverage(f"95 % interval over seeds, of the difference on these sentences; {design}", here, 0.95),
        _coverage(f"95 % interval with sentences; {design}", everywhere, 0.95),
        Rate(f"for comparison: 95 % interval over seeds, of the difference on all sentences; {design}", blind, 0, 1),
        Rate(f"for comparison: 95 % interval with sentences, Satterthwaite; {design}", satterthwaite, 0, 1),
    ]


def satterthwaite_half_width(values: Floats) -> float:
    """Return half the width of the 95 % interval of the mean of ``[seed, sentence]`` after Satterthwaite (1946).

    A negative sentence variance counts as 0, as in `crossed`.
    """
    seeds, sentences = values.shape
    by_seed, by_sentence = values.mean(axis=1), values.mean(axis=0)
    residuals = values - by_seed[:, None] - by_sentence + values.mean()
    residual_degrees = (seeds - 1) * (sentences - 1)
    seed = sentences * by_seed.var(ddof=1)
    sentence = seeds * by_sentence.var(ddof=1)
    residual = (residuals**2).sum() / residual_degrees
    if sentence <= residual:
        total, degrees = seed, seeds - 1.0
    else:
        total = seed + sentence - residual
        degrees = total**2 / (seed**2 / (seeds - 1) + sentence**2 / (sentences - 1) + residual**2 / residual_degrees)
    return float(stdtrit(degrees, 0.975) * math.sqrt(total / values.size))


def corpus_coverage(generator: np.random.Generator, studies: int, seeds: int) -> list[Rate]:
    """Return the coverage of the jackknife interval of a difference between ratios of sums, as in BLEU.

    The true difference is 0.
    """
    covered = 0
    for _ in range(studies):
        length = generator.poisson(8, SENTENCES) + 1
        ability = generator.normal(0, SENTENCE_SD, SENTENCES) + generator.normal(0, INTERACTION_SD, (2, SENTENCES))
        matched = generator.binomial(length, ndtr(ability[:, None] + generator.normal(0, SEED_SD, (2, seeds, 1))))
        score = matched.sum(axis=-1) / length.sum()
        without = (matched.sum(axis=-1, keepdims=True) - matched) / (length.sum() - length)
        values = [jackknife(*side) for side in zip(score, without, strict=True)]
        found = crossed(values[0] - values[1]).interval()
        covered += found.low <= 0 <= found.high
    label = f"95 % interval with sentences, corpus metric; {seeds} seeds, {SENTENCES} sentences"
    return [_coverage(label, covered / studies, 0.95)]


def best_rates(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> list[Rate]:
    """Return the rates of wrong statements on the best of many variants.

    All variants have equal means, or the best is better than all others by the margin.
    """
    excluded = equivalent = 0
    for _ in range(studies):
        scores = generator.normal(size=(variants, seeds))
        excluded += compare_with_best(scores)[0].is_worse
        scores[0] += MARGIN
        equivalent += any(row.is_equivalent for row in compare_with_best(scores, margin=MARGIN)[1:])
    design = f"{variants} variants, {seeds} seeds"
    return [
        Rate(f"the best is called worse than another; {design}", excluded / studies, 0.0, 0.055),
        Rate(f"wrong equivalent to the best; {design}", equivalent / studies, 0.0, 0.055),
    ]


def simulate(studies: int) -> list[Rate]:
    """Return all rates."""
    generator = np.random.default_rng(17)
    rates = []
    for contrasts in EFFECTS:
        for seeds in (3, 6):
            rates += wrong_verdicts(generator, studies, contrasts, seeds)
    for contrasts in EFFECTS:
        for seeds in (3, 6):
            rates += seed_coverage(generator, studies, contrasts, seeds)
    rates += pooled_coverage(generator, studies, 5, 3)
    for seeds, effect in ((3, 0.0), (6, 0.0), (6, 0.5)):
        rates += sentence_coverage(generator, studies, seeds, effect)
    rates += corpus_coverage(generator, studies, 6)
    return rates + simulate_best(studies)


def simulate_best(studies: int) -> list[Rate]:
    """Return the rates of comparisons with the best."""
    generator = np.random.default_rng(19)
    return [rate for variants in (12, 40) for rate in best_rates(generator, studies, variants, 6)]


def table(rates: Sequence[Rate], studies: int) -> str:
    """Return the rates as a Markdown table."""
    lines = [f"| rate in {studies:,} studies each | measured | accepted |", "|---|---|---|"]
    for rate in rates:
        if rate.high == 1:
            stated = f"at least {rate.low:.1%}" if rate.low else "–"
        elif rate.low == 0:
            stated = f"at most {rate.high:.1%}"
        else:
            stated = f"{(rate.low + rate.high) / 2:.1%} ± 2"
        lines.append(f"| {rate.label} | {rate.rate:.1%} | {stated} |")
    return "\n".join(lines).replace("%", " %").replace("  %", " %")


def main() -> int:
    """Print the table; return 1 if a rate is outside its range."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    chosen = parser.parse_args()
    rates = simulate(chosen.studies)
    print(table(rates, chosen.studies))
    return int(not all(rate.is_within for rate in rates))


if __name__ == "__main__":
    raise SystemExit(main())

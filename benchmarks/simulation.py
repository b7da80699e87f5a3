"""Simulated studies with known effects: rates of wrong verdicts and coverage of every printed interval.

    python benchmarks/simulation.py [--studies 20000]

The studies are judged by `headtohead_judge`, like those of a report, and where it applies by paired t-tests with
Holm's correction. Unless a row says otherwise, scores are normal with a standard deviation of 1 over seeds, and
variants are compared with the first one. Studies with sentences draw whether each translation is correct from a probit
model with normal effects of variants, seeds, sentences and their interaction; a corpus metric is the ratio of two sums.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtr, polygamma, stdtr, stdtrit

from headtohead_judge import block_model as blocks
from headtohead_judge.best import compare_with_best
from headtohead_judge.block_model import larger_deviations, pooled
from headtohead_judge.collapse import collapsed
from headtohead_judge.ledger import LARGER, MAX_PRIOR_DEGREES
from headtohead_judge.looks import Looks
from headtohead_judge.online import INITIAL_WEALTH, level
from headtohead_judge.paired_tests import (
    ALPHA,
    Difference,
    interval,
    paired,
    paired_differences,
)
from headtohead_judge.variance import jackknife, with_sentences
from headtohead_judge.verdicts import BETTER, WORSE, Judgement, judge

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int, int], Floats]
"""Draws scores ``[study, variant, seed]``, larger is better."""
BLOCK = 200
"""Number of studies that are drawn at once."""
MARGIN = 2.0
"""Margin in standard deviations of a score over seeds."""
OBSERVED = (0.0256, 0.0154, 0.0244, 0.0187, 0.0218, 0.0186)
"""Standard deviations of exact match of the six variants of a quickstart over six seeds."""
SENTENCES = 250
SENTENCE_SD, INTERACTION_SD, SEED_SD = 1.0, 0.6, 0.15
"""Standard deviations of the probit model."""


@dataclass(frozen=True)
class Rate:
    """A measured rate, the range that it must lie in, and the rate of paired t-tests in the same studies."""

    label: str
    rate: float
    low: float = 0.0
    high: float = 1.0
    paired: float = math.nan

    @property
    def is_within(self) -> bool:
        """Whether the rate is in its range."""
        return self.low <= self.rate <= self.high


def normal(sd: Sequence[float] = (), icc: float = 0.0) -> Draw:
    """Return a draw of normal scores; ``sd`` holds the standard deviations of the first variants."""

    def draw(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
        own, shared = (
            generator.normal(size=(studies, variants, seeds)),
            generator.normal(size=(studies, 1, seeds)),
        )
        scores: Floats = math.sqrt(1 - icc) * own + math.sqrt(icc) * shared
        scores[:, : len(sd)] *= np.asarray(sd)[:, None]
        return scores

    return draw


def skewed(generator: np.random.Generator, *shape: int) -> Floats:
    """Draw a lognormal baseline, with a standard deviation of 2.2, and normal variants, all with mean 0."""
    scores = generator.normal(size=shape)
    scores[:, 0] = math.exp(0.5) - np.exp(scores[:, 0])
    return scores


def heavy_tails(generator: np.random.Generator, *shape: int) -> Floats:
    """Draw scores of a t-distribution with 3 degrees of freedom."""
    return generator.standard_t(3, size=shape)


def lattice(generator: np.random.Generator, *shape: int) -> Floats:
    """Draw the number of correct answers of 200, with an error rate of about 1 % that varies over seeds."""
    errors = generator.binomial(
        200, np.minimum(0.008 * np.exp(0.7 * generator.normal(size=shape)), 1)
    )
    return -errors.astype(np.float64)


def with_collapses(count: int) -> Draw:
    """Return a draw in which ``count`` variants lose 30 standard deviations in 10 % of their runs.

    The means of all variants are equal.
    """

    def draw(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
        scores = generator.normal(size=(studies, variants, seeds))
        scores[:, 1 : 1 + count] += 3 - 30 * (generator.random((studies, count, seeds)) < 0.1)
        return scores

    return draw


def without_collapses(scores: Floats) -> Floats:
    """Return the scores with NaN for collapsed runs; the log of a run's loss is -0.05 per unit of its score."""
    return np.where(collapsed(list(np.exp(-0.05 * scores))), math.nan, scores)


def judged(scores: Floats, margin: float | None = None, moderate: bool = True) -> list[Judgement]:
    """Return the judgements on the contrasts of all variants with the first one, like a report."""
    model, larger = pooled({str(number): row for number, row in enumerate(scores)})
    family: list[Difference | None] = []
    for number, row in enumerate(scores[1:], 1):
        known = np.isfinite(row - scores[0])
        found = paired(row[known], scores[0][known])
        is_own = not moderate or larger.keys() & {"0", str(number)}
        family.append(found if is_own or model is None else model.moderated(found, 2.0))
    return judge(family, margin=margin)


class Tests:
    """The default test, and paired t-tests, of all contrasts of all studies ``[study, variant, seed]`` at once.

    A test compares directions, sizes and intervals with those of `judged`. All arrays are ``[test, study, contrast]``.
    ``weights`` are those of the variants ``[contrast, variant]``, by default of each variant minus the first.
    """

    def __init__(self, scores: Floats, weights: Floats | None = None) -> None:
        _, variants, seeds = scores.shape
        each = np.eye(variants)
        weights, own = each[1:] - each[0] if weights is None else weights, seeds - 1
        differences = weights @ scores
        larger = np.array([larger_deviations(study) for study in scores]) > 0
        pool, has_larger = variants - larger.sum(axis=1, keepdims=True), larger @ (weights != 0).T
        residuals = np.where(
            larger[:, :, None], math.nan, scores - scores.mean(axis=2, keepdims=True)
        )
        squares = ((residuals - np.nanmean(residuals, axis=1, keepdims=True)) ** 2).sum(axis=2)
        half = np.geomspace(blocks.MAX_PRIOR_DEGREES / 2, 1e-4, 20_000)  # half the prior degrees
        logs = np.log(np.maximum(squares, 1e-5 * np.nanmedian(squares, axis=1, keepdims=True)))
        excess = np.nanvar(logs, axis=1, ddof=1) - polygamma(1, own / 2)
        prior = np.where(has_larger, 0, 2 * np.interp(excess, polygamma(1, half), half)[:, None])
        common = (
            (weights**2).sum(axis=1)
            * np.nansum(squares, axis=1, keepdims=True)
            / ((pool - 1) * own)
        )
        variance = differences.var(axis=2, ddof=1)
        moderated = (prior * common + own * variance) / (prior + own)
        self.mean, self.error = (
            differences.mean(axis=2),
            np.sqrt(np.array([moderated, variance]) / seeds),
        )
        degrees = np.maximum(own, np.minimum(prior + own, (pool - 1) * own))
        self.degrees = np.array([degrees, np.full_like(degrees, own)])
        self.p = 2 * stdtr(self.degrees, -np.abs(self.mean / self.error))
        self.detected = self.p <= _holm_level(self.p)

    def ends(self, level: Floats) -> tuple[Floats, Floats]:
        """Return the ends of the intervals of level ``1 - level``."""
        half = -stdtrit(self.degrees, level / 2) * self.error
        return self.mean - half, self.mean + half

    def sizes(self, margin: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats, Floats]:
        """Return whether contrasts are within and beyond the margin, and the ends of the intervals of the size."""
        shifted = (np.abs(self.mean) - margin) / self.error
        p = stdtr(self.degrees, shifted)
        level = _holm_level(p)
        low, high = self.ends(2 * level)
        return p <= level, (p > level) & (np.maximum(low, -high) >= margin), low, high


def _holm_level(p: Floats) -> Floats:
    """Return the level of the Holm step of each p of ``[..., contrast]``; smaller p are rejected."""
    order, count = p.argsort(axis=-1), p.shape[-1]
    limits = ALPHA / np.arange(count, 0, -1)
    rejected = np.logical_and.accumulate(np.take_along_axis(p, order, -1) <= limits, axis=-1).sum(
        -1, keepdims=True
    )
    steps = np.minimum(np.minimum(order.argsort(axis=-1), rejected), count - 1)
    levels: Floats = limits[steps]
    return levels


def has_direction(judgements: Sequence[Judgement]) -> bool:
    """Return whether any contrast is better or worse."""
    return any(judgement.direction in (BETTER, WORSE) for judgement in judgements)


def any_direction(scores: Floats, level: float = ALPHA) -> NDArray[np.bool_]:
    """Return whether each study has a direction, by the default test and by paired t-tests: ``[test, study]``.

    Studies with missing runs, with equal variants or with differences that do not vary are judged one by one.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.bool_] = Tests(np.nan_to_num(scores)).p.min(axis=2) <= level / (
            scores.shape[1] - 1
        )
    keys = np.sort(scores @ np.sqrt(np.arange(2.0, scores.shape[2] + 2)), axis=1)
    spread = np.ptp(scores[:, 1:] - scores[:, :1], axis=2).min(axis=1)
    for study in np.flatnonzero(~((spread > 1e-6) & (np.diff(keys, axis=1).min(axis=1) > 1e-9))):
        found[:, study] = [
            has_direction(judged(scores[study], moderate=moderate)) for moderate in (True, False)
        ]
    return found


def null_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return how many studies without any difference have a verdict of better or worse."""
    rows: list[tuple[str, Draw, list[tuple[int, int]], float]] = [
        ("normal", normal(), [(2, 3), (2, 6), (6, 3), (6, 6), (6, 12), (12, 6), (143, 6)], 0.055),
        ("normal, ICC 0.5", normal(icc=0.5), [(6, 3), (6, 6), (6, 12)], 0.055),
        ("deviations of the variants of a quickstart", normal(OBSERVED), [(6, 6)], 0.055),
        ("baseline sd × 2", normal((2.0,)), [(6, 6), (6, 12)], 0.065),
        ("baseline sd × 4", normal((4.0,)), [(2, 6), (6, 6), (6, 12), (12, 6)], 0.055),
        ("sd × 2 in one variant", normal((1.0, 2.0)), [(6, 6)], 0.055),
        ("sd × 4 in one variant", normal((1.0, 4.0)), [(6, 6), (12, 6)], 0.055),
        ("lognormal baseline", skewed, [(2, 6), (2, 12), (6, 6), (6, 12)], 1.0),
        ("t with 3 degrees of freedom", heavy_tails, [(2, 6), (6, 6), (6, 12)], 0.055),
        ("correct answers of 200, 99 % correct", lattice, [(2, 6), (6, 6), (6, 12)], 0.055),
        (
            "10 % of a variant's runs collapse, equal means of all runs",
            with_collapses(1),
            [(2, 6), (2, 12)],
            1.0,
        ),
        (
            "10 % of five variants' runs collapse, equal means of all runs",
            with_collapses(5),
            [(6, 6)],
            1.0,
        ),
        ("baseline sd × 2", normal((2.0,)), [(6, 4)], 0.08),
        ("sd × 3 in one variant", normal((1.0, 3.0)), [(6, 4), (6, 6)], 0.08),
    ]
    rates = []
    for name, draw, designs, high in rows:
        for variants, seeds in designs:
            blocks = [
                any_direction(draw(generator, BLOCK, variants, seeds))
                for _ in range(studies // BLOCK)
            ]
            wrong, before = np.mean(blocks, axis=(0, 2))
            label = f"wrong direction; {name}; {variants} variants, {seeds} seeds"
            rates.append(Rate(label, float(wrong), 0, high, float(before)))
    return rates


def collapse_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return how many studies have a wrong direction without the runs that collapsed."""
    rates = []
    for count, variants, seeds in ((1, 2, 6), (1, 2, 12), (5, 6, 6), (5, 6, 12)):
        drawn = with_collapses(count)(generator, studies, variants, seeds)
        drawn[:, 1 : 1 + count] -= 3  # the runs that do not collapse have equal means
        wrong, _ = any_direction(np.array([without_collapses(scores) for scores in drawn])).mean(
            axis=1
        )
        label = (
            f"wrong direction without collapsed runs; 10 % of the runs of {count} collapse, "
            "equal means of the others"
        )
        rates.append(Rate(f"{label}; {variants} variants, {seeds} seeds", float(wrong), 0, 0.055))
    return rates


def healthy_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return how many healthy runs the rule for collapsed runs flags.

    The distributions are those of the negative log of the loss, in 20ths.
    """
    rates = []
    kinds: dict[str, Draw] = {
        "normal": normal(),
        "t with 3 degrees of freedom": heavy_tails,
        "sd × 4 in one variant": normal((1, 4)),
        "lognormal": lambda generator, *shape: -np.exp(generator.normal(size=shape)),
        "bounded, near the bound": lambda generator, *shape: (
            20 * generator.beta(20, 0.5, size=shape)
        ),
    }
    for name, draw in kinds.items():
        for variants, seeds in ((2, 3), (2, 6), (6, 3), (6, 6)):
            drawn = draw(generator, studies // 4, variants, seeds)
            flagged = float(
                np.mean([np.isnan(without_collapses(scores)).mean() for scores in drawn])
            )
            label = f"healthy runs called collapsed; {name}; {variants} variants, {seeds} seeds"
            rates.append(Rate(label, flagged, 0, 0.01))
    return rates


def power_rates(
    generator: np.random.Generator,
    studies: int,
    designs: Sequence[Sequence[float]] = ((2, 0), (1.5, 0.3)),
) -> list[Rate]:
    """Return how many studies of 6 variants and 6 seeds find the effect of one variant: effect, ICC, sds of others."""
    rates = []
    for effect, icc, *others in designs:
        drawn = normal([1, 1, *others], icc)(generator, studies, 6, 6)
        drawn[:, 1] += effect
        found = Tests(drawn)
        now, before = (found.detected & (found.mean > 0))[:, :, 0].mean(axis=1)
        label = f"an effect of {effect:g} sd is found; ICC {icc:g}; 6 variants, 6 seeds"
        label += f"; sd × {' and '.join(f'{sd:g}' for sd in others)} in others" * bool(others)
        rates.append(Rate(label, float(now), 0.65 if effect == 2 else 0.55, 1.0, float(before)))
    return rates


def size_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return how many studies have a wrong size, if all effects equal the margin or lie just below it."""
    rates = []
    for index, (name, shift) in enumerate(
        (("at the margin are within", 0.0), ("below the margin are beyond", -1e-6))
    ):
        for seeds in (3, 6, 12):
            drawn = normal()(generator, studies, 6, seeds)
            drawn[:, 1:] += MARGIN + shift
            now, before = Tests(drawn).sizes(MARGIN)[index].any(axis=2).mean(axis=1)
            label = f"effects {name}; 6 variants, {seeds} seeds"
            rates.append(Rate(label, float(now), 0, 0.055, float(before)))
    return rates


def interval_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return the coverage of the intervals of direction and size, over all contrasts and given a direction.

    Those of paired t-tests have the level 95 %, as they were printed.
    """
    rates = []
    for effect in (0.5, 1.0, 2.0):
        drawn = normal()(generator, studies, 6, 6)
        drawn[:, 1] += effect
        found = Tests(drawn)
        *_, size_low, size_high = found.sizes(MARGIN)
        level = _holm_level(found.p)
        level[1] = ALPHA
        covers = [
            ((low <= effect) & (effect <= high))[:, :, 0]
            for low, high in (found.ends(level), (size_low, size_high))
        ]
        detected = found.detected[:, :, 0]
        label = f"effect of {effect:g} sd; 6 variants, 6 seeds"
        before, selected = (float(covers[0][test][detected[test]].mean()) for test in (1, 0))
        rates += [
            Rate(
                f"interval of the direction covers; {label}", float(covers[0][0].mean()), 0.94, 1.0
            ),
            Rate(f"interval of the size covers; {label}", float(covers[1][0].mean()), 0.89, 1.0),
            Rate(
                f"interval of the direction covers, of contrasts with a direction; {label}",
                selected,
                paired=before,
            ),
        ]
    return rates


def report_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return how many whole reports of a 3 × 2 design without differences have any direction, in three families."""
    scores, each = normal()(generator, studies, 6, 6), np.eye(6).reshape(3, 2, 6)
    rows, columns = each.mean(axis=1), each.mean(axis=0)
    main = np.array([rows[1] - rows[0], rows[2] - rows[0], columns[1] - columns[0]])
    corner = np.array([each[row, 1] - each[row, 0] - each[0, 1] + each[0, 0] for row in (1, 2)])
    wrong = [Tests(scores, weights).detected.any(axis=2) for weights in (None, main, corner)]
    now, before = np.any(wrong, axis=0).mean(axis=1)
    label = "any wrong direction in a whole report of 3 × 2 variants (3 families), 6 seeds"
    return [Rate(label, float(now), 0, 0.15, float(before))]


def look_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return how many studies without differences that are judged at 4, 6, 8 and 12 seeds ever have a direction."""
    looks, scores = Looks((4, 6, 8, 12)), normal()(generator, studies, 6, 12)
    level = 5 * looks.level(ALPHA / 5)  # of the first step of five contrasts
    now, _ = np.any(
        [any_direction(scores[:, :, :seeds], level) for seeds in looks.seeds], axis=0
    ).mean(axis=1)
    label = "wrong direction at any of four looks; 6 variants, 4 to 12 seeds"
    return [Rate(label, float(now), 0, 0.055)]


def sentence_coverage(
    generator: np.random.Generator, studies: int, seeds: int, effect: float
) -> list[Rate]:
    """Return the coverage of intervals of a difference in exact match, over seeds and with sentences.

    The interval over seeds estimates the difference on these sentences, the interval with sentences that on all.
    """
    spread = math.hypot(1.0, SEED_SD)
    truth = ndtr(effect / math.hypot(spread, SENTENCE_SD, INTERACTION_SD)) - 0.5
    covered = np.zeros(3)
    for _ in range(studies):
        ability = np.array([effect, 0.0])[:, None] + generator.normal(0, SENTENCE_SD, SENTENCES)
        ability += generator.normal(0, INTERACTION_SD, (2, SENTENCES))
        latent = ability[:, None] + generator.normal(0, SEED_SD, (2, seeds, 1))
        exact = latent + generator.normal(size=(2, seeds, SENTENCES)) > 0
        d = exact[0].astype(np.float64) - exact[1]
        here = float(np.subtract(*ndtr(ability / spread)).mean())
        over_seeds, with_both = (
            interval(found := paired_differences(d.mean(axis=1)), 0.95),
            with_sentences(found, d),
        )
        covered += [
            over_seeds.low <= here <= over_seeds.high,
            with_both.low <= truth <= with_both.high,
            over_seeds.low <= truth <= over_seeds.high,
        ]
    design = f"{seeds} seeds, {SENTENCES} sentences, effect {truth:.2f}"
    here, everywhere, blind = (float(rate) for rate in covered / studies)
    return [
        Rate(
            f"95 % interval over seeds, of the difference on these sentences; {design}",
            here,
            0.93,
            0.97,
        ),
        Rate(f"95 % interval with sentences; {design}", everywhere, 0.93, 0.97),
        Rate(
            f"for comparison: 95 % interval over seeds, of the difference on all sentences; {design}",
            blind,
            0,
            1,
        ),
    ]


def corpus_coverage(generator: np.random.Generator, studies: int, seeds: int) -> list[Rate]:
    """Return the coverage of the jackknife interval of a difference between ratios of sums, as in BLEU.

    The true difference is 0.
    """
    covered = 0
    for _ in range(studies):
        length = generator.poisson(8, SENTENCES) + 1
        ability = generator.normal(0, SENTENCE_SD, SENTENCES) + generator.normal(
            0, INTERACTION_SD, (2, SENTENCES)
        )
        matched = generator.binomial(
            length, ndtr(ability[:, None] + generator.normal(0, SEED_SD, (2, seeds, 1)))
        )
        score = matched.sum(axis=-1) / length.sum()
        without = (matched.sum(axis=-1, keepdims=True) - matched) / (length.sum() - length)
        differences = np.subtract(*(jackknife(*side) for side in zip(score, without, strict=True)))
        found = with_sentences(paired_differences(differences.mean(axis=1)), differences)
        covered += found.low <= 0 <= found.high
    label = f"95 % interval with sentences, corpus metric; {seeds} seeds, {SENTENCES} sentences"
    return [Rate(label, covered / studies, 0.93, 0.97)]


def best_rates(
    generator: np.random.Generator, studies: int, variants: int, seeds: int, sd: float = 1.0
) -> list[Rate]:
    """Return the rates of wrong statements on the best of many variants; ``sd`` is that of the best.

    All variants have equal means, or the best is better than all others by the margin. The paired t-tests are those of
    equivalence with the variant that has the highest mean in the study.
    """
    excluded, equivalent, drawn = 0, 0, normal((sd,))(generator, studies, variants, seeds)
    for scores in drawn:
        excluded += compare_with_best(scores)[0].is_worse
        scores[0] += MARGIN
        equivalent += any(row.is_equivalent for row in compare_with_best(scores, margin=MARGIN)[1:])
    design = f"{variants} variants, {seeds} seeds" + f"; sd of the best × {sd:g}" * (sd != 1)
    order = np.argsort(-drawn.mean(axis=2), axis=1)
    is_within = Tests(np.take_along_axis(drawn, order[:, :, None], axis=1)).sizes(MARGIN)[0][1]
    before = float((is_within & (order[:, 1:] > 0)).any(axis=1).mean())
    return [
        Rate(f"the best is called worse than another; {design}", excluded / studies, 0.0, 0.055),
        Rate(f"wrong equivalent to the best; {design}", equivalent / studies, 0.0, 0.055, before),
    ]


def ledger_rates(generator: np.random.Generator, studies: int) -> list[Rate]:
    """Return the share of kept changes that are no improvement, and the share of improvements that are kept.

    A chain has 50 changes, of which 80 % have no effect and the others improve the scores. There is half a chain for
    each study. With 1 to 3 seeds, a change is kept if its mean is better.
    """
    rates = []
    designs = [(8, 2.0, 1.0), (8, 2.0, 3.0), (16, 1.0, 1.0), (32, 1.0, 1.0)]
    for seeds, effect, sd in designs + [
        (seeds, effect, 1.0) for effect in (2.0, 1.0) for seeds in (1, 2, 3)
    ]:
        kept, real, *_ = chains(generator, studies // 2, seeds, effect, sd)
        false = float(np.mean((kept & ~real).sum(axis=1) / np.maximum(1, kept.sum(axis=1))))
        rule = "ledger" if seeds > 3 else "better mean"
        design = (
            f"{rule}, {seeds} seeds, 50 changes"
            + f"; sd of a fifth of the changes × {sd:g}" * (sd != 1)
        )
        rates.append(
            Rate(
                f"kept changes without effect; {design}; others {effect:g} sd",
                false,
                0,
                0.055 if seeds > 3 else 1,
            )
        )
        rates.append(
            Rate(f"improvements of {effect:g} sd that are kept; {design}", float(kept[real].mean()))
        )
    return rates


def chains(
    generator: np.random.Generator, number: int, seeds: int, effect: float, sd: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats, Floats]:
    """Return whether ``[chain, change]`` is kept, whether it is an improvement, its p / level, and the scores.

    The scores are ``[chain, change, seed]``, the first ones those of the first incumbent. A kept change is the
    incumbent from then on, with these scores. The decisions are those of ``h2h judge --ledger``, for all chains at
    once; a test compares them.
    """
    real = generator.random((number, 50)) > 0.8
    spread = np.where(generator.random((number, 50)) < 0.2, sd, 1.0)
    shared, mean = math.sqrt(0.3) * generator.normal(size=(number, seeds)), np.zeros(number)
    scores = math.sqrt(0.7) * generator.normal(size=(number, 51, seeds))
    scores[:, 1:] *= spread[:, :, None]
    scores += shared[:, None]
    kept, ratio, variances = (
        np.zeros((number, 50), dtype=bool),
        np.zeros((number, 50)),
        np.zeros((number, 50)),
    )
    rewards, share = np.zeros((number, 50)), np.array([level(test, []) for test in range(1, 51)])
    incumbent = scores[:, 0]
    for change in range(50):
        scores[:, change + 1] += (mean + effect * real[:, change])[:, None]
        difference = scores[:, change + 1] - incumbent
        better = difference.mean(axis=1)
        if seeds > 3:
            variances[:, change] = difference.var(axis=1, ddof=1)
            earlier = variances[:, :change].mean(axis=1) if change else np.zeros(number)
            prior = min(MAX_PRIOR_DEGREES, change * (seeds - 1))
            prior = np.where(
                change and fdtrc(seeds - 1, prior, variances[:, change] / earlier) <= LARGER,
                0,
                prior,
            )
            degrees = prior + seeds - 1
            variance = (prior * earlier + (seeds - 1) * variances[:, change]) / degrees
            levels = share[change] + rewards[:, :change] @ share[:change][::-1] / INITIAL_WEALTH
            ratio[:, change] = stdtr(degrees, -better / np.sqrt(variance / seeds)) / levels
        else:
            ratio[:, change] = np.where(better > 0, 0, 2)
        kept[:, change] = ratio[:, change] <= 1
        is_first = kept[:, change] & ~kept[:, :change].any(axis=1)
        rewards[:, change] = ALPHA * kept[:, change] - INITIAL_WEALTH * is_first
        mean += effect * (kept[:, change] & real[:, change])
        incumbent = np.where(kept[:, change, None], scores[:, change + 1], incumbent)
    return kept, real, ratio, scores


PARTS: tuple[Callable[[np.random.Generator, int], list[Rate]], ...] = (
    power_rates,
    null_rates,
    lambda generator, studies: power_rates(
        generator, studies, ((2, 0, 3), (2, 0, 10), (2, 0, 100), (2, 0, 10, 10))
    ),
    collapse_rates,
    healthy_rates,
    size_rates,
    interval_rates,
    report_rates,
    look_rates,
    ledger_rates,
    *(
        lambda generator, studies, seeds=seeds, effect=effect: sentence_coverage(
            generator, studies, seeds, effect
        )
        for seeds, effect in ((3, 0.0), (6, 0.0), (6, 0.5))
    ),
    lambda generator, studies: corpus_coverage(generator, studies, 6),
    lambda generator, studies: best_rates(generator, studies, 12, 6),
    lambda generator, studies: best_rates(generator, studies, 12, 6, sd=4.0),
    lambda generator, studies: best_rates(generator, studies // 4, 40, 6),
)


def main() -> int:
    """Print the rates as a Markdown table; return 1 if a rate is outside its range."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=20_000)
    studies = parser.parse_args().studies
    print(
        f"| rate in {studies:,} studies each | paired t-test | measured | accepted |\n|---|---|---|---|"
    )
    outside = 0
    for number, part in enumerate(PARTS):
        for rate in part(np.random.default_rng([17, number]), studies):
            outside += not rate.is_within
            stated = f"{(rate.low + rate.high) / 2:.1%} ± 2"
            if rate.high == 1:
                stated = f"at least {rate.low:.1%}" if rate.low else "no statement"
            elif rate.low == 0:
                stated = f"at most {rate.high:.1%}"
            before = "–" if math.isnan(rate.paired) else f"{rate.paired:.1%}"
            row = f"| {rate.label} | {before} | {rate.rate:.1%} | {stated} |"
            print(row.replace("%", " %").replace("  %", " %"), flush=True)
    return int(outside > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""Scores of simulated studies ``[study, variant, seed]`` with known effects; a larger score is better.

A score has a standard deviation of 1 over seeds, without the part that all variants share, unless the draw says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from headtohead_judge.collapse import ABOVE_OTHERS, DEVIATIONS, FULL_SAMPLE, LOG_DEVIATIONS
from headtohead_judge.variance import jackknife

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int, int], Floats]
"""Draws scores ``[study, variant, seed]`` of equal variants from a generator and these three numbers."""

SENTENCE_SD = 1.0
INTERACTION_SD = 0.6
SEED_SD = 0.15
"""Standard deviations of the probit model of `exact_matches`."""

COLLAPSE = 30.0
"""Fall of the score of a collapsed run; its loss is 4.5 times as large."""
LOG_LOSS_OF_A_UNIT = 0.05
"""Fall of the log of the loss for a score that is larger by 1."""


def normal(sd: Sequence[float] = ()) -> Draw:
    """Return a draw of normal scores; ``sd`` holds the standard deviations of the first variants."""

    def draw(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
        scores = generator.normal(size=(studies, variants, seeds))
        scores[:, : len(sd)] *= np.asarray(sd)[:, None]
        return scores

    return draw


def unequal_seed_effects(
    generator: np.random.Generator, studies: int, variants: int, seeds: int
) -> Floats:
    """Draw scores with a seed effect that variants share, of a standard deviation of 0.5 to 2."""
    scores = generator.normal(size=(studies, variants, seeds))
    sizes = np.linspace(0.5, 2.0, variants)
    scores += sizes[:, None] * generator.normal(size=(studies, 1, seeds))
    return scores


def one_large_seed_effect(
    generator: np.random.Generator, studies: int, variants: int, seeds: int
) -> Floats:
    """Draw scores with a seed effect of a standard deviation of 3 in the second variant and 1 in the others."""
    scores = generator.normal(size=(studies, variants, seeds))
    sizes = np.ones(variants)
    sizes[1] = 3.0
    scores += sizes[:, None] * generator.normal(size=(studies, 1, seeds))
    return scores


def baseline_without_seed_effect(sd: float) -> Draw:
    """Return a draw with a seed effect of this standard deviation that all variants but the first share."""

    def draw(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
        scores = generator.normal(size=(studies, variants, seeds))
        scores[:, 1:] += sd * generator.normal(size=(studies, 1, seeds))
        return scores

    return draw


def skewed(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
    """Draw a lognormal baseline, with a standard deviation of 2.2, and normal variants, all with mean 0."""
    scores = generator.normal(size=(studies, variants, seeds))
    scores[:, 0] = math.exp(0.5) - np.exp(scores[:, 0])
    return scores


def heavy_tails(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
    """Draw scores of a t-distribution with 3 degrees of freedom."""
    return generator.standard_t(3, size=(studies, variants, seeds))


def lattice(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
    """Draw the number of correct answers of 200, with an error rate of about 1 % that varies over seeds."""
    rates = 0.008 * np.exp(0.7 * generator.normal(size=(studies, variants, seeds)))
    errors = generator.binomial(200, np.minimum(rates, 1))
    return -errors.astype(np.float64)


def with_collapses(variants_with: int, rate: float = 0.1, depth: float = COLLAPSE) -> Draw:
    """Return a draw in which runs of some variants collapse; the runs that do not collapse have equal means.

    Args:
        variants_with: Number of variants, after the first one, with runs that collapse.
        rate: Probability that a run of these variants collapses.
        depth: Fall of the score of a collapsed run, in standard deviations.
    """

    def draw(generator: np.random.Generator, studies: int, variants: int, seeds: int) -> Floats:
        scores = generator.normal(size=(studies, variants, seeds))
        collapses = generator.random((studies, variants_with, seeds)) < rate
        scores[:, 1 : 1 + variants_with] -= depth * collapses
        return scores

    return draw


def is_named_collapsed(scores: Floats) -> NDArray[np.bool_]:
    """Return which runs of ``[study, variant, seed]``, two or more variants, `headtohead_judge` calls collapsed.

    A test compares both.
    """
    losses = np.exp(-LOG_LOSS_OF_A_UNIT * scores)
    limits = _limits(losses, DEVIATIONS)
    log_limits = _limits(np.log(losses), LOG_DEVIATIONS)
    limits = np.maximum(limits, np.exp(np.minimum(log_limits, 700.0)))
    is_far = losses > limits
    worst = np.where(is_far, -np.inf, losses).max(axis=2)
    order = np.sort(worst, axis=1)
    is_worst = worst == order[:, -1:]
    worst_of_others = np.where(is_worst, order[:, -2:-1], order[:, -1:])
    named: NDArray[np.bool_] = is_far & (losses > ABOVE_OTHERS * worst_of_others[:, :, None])
    return named


def _limits(values: Floats, most: float) -> Floats:
    """Return the median of each variant plus ``most`` median absolute deviations ``[study, variant, 1]``."""
    studies, _, seeds = values.shape
    median = np.median(values, axis=2, keepdims=True)
    deviations = np.abs(values - median)
    common = np.median(deviations.reshape(studies, 1, -1), axis=2, keepdims=True)
    deviation = np.maximum(np.median(deviations, axis=2, keepdims=True), common)
    limits: Floats = median + most * max(FULL_SAMPLE / seeds, 1) * deviation
    return limits


def by_passage(
    generator: np.random.Generator, shape: tuple[int, int, int, int], passage_sd: float
) -> Floats:
    """Draw scores ``[study, variant, seed, passage]`` of equal variants on passages of a text.

    A run's mean has a standard deviation of 1 over seeds. A passage is easier for some variants than for others.

    Args:
        generator: The random numbers.
        shape: Numbers of studies, variants, seeds and passages.
        passage_sd: Standard deviation of the mean of a variant over samples of this number of passages.
    """
    studies, variants, seeds, passages = shape
    of_run = generator.normal(size=(studies, variants, seeds, 1))
    of_passage = generator.normal(size=(studies, variants, 1, passages))
    residual = generator.normal(size=shape)
    residual -= residual.mean(axis=3, keepdims=True)
    return of_run + math.sqrt(passages) * passage_sd * of_passage + residual


def exact_matches(
    generator: np.random.Generator, studies: int, seeds: int, sentences: int, effect: float
) -> tuple[Floats, float]:
    """Draw whether translations are correct ``[study, variant, seed, sentence]``; return them and the true difference.

    The model is a probit with normal effects of two variants, seeds, sentences and their interaction. The difference
    is that of the second variant minus the first, in exact match over all sentences.
    """
    ability = generator.normal(0, SENTENCE_SD, (studies, 1, 1, sentences))
    ability = ability + generator.normal(0, INTERACTION_SD, (studies, 2, 1, sentences))
    ability[:, 1] += effect
    latent = ability + generator.normal(0, SEED_SD, (studies, 2, seeds, 1))
    exact = latent + generator.normal(size=(studies, 2, seeds, sentences)) > 0
    spread = math.sqrt(1 + SEED_SD**2 + SENTENCE_SD**2 + INTERACTION_SD**2)
    return exact.astype(np.float64), float(ndtr(effect / spread)) - 0.5


def corpus_values(
    generator: np.random.Generator, studies: int, seeds: int, sentences: int
) -> Floats:
    """Draw jackknife values ``[study, variant, seed, sentence]`` of a ratio of sums, as in BLEU, of two variants."""
    length = generator.poisson(8, (studies, 1, 1, sentences)) + 1
    ability = generator.normal(0, SENTENCE_SD, (studies, 1, 1, sentences))
    ability = ability + generator.normal(0, INTERACTION_SD, (studies, 2, 1, sentences))
    latent = ability + generator.normal(0, SEED_SD, (studies, 2, seeds, 1))
    matched = generator.binomial(length, ndtr(latent)).astype(np.float64)
    total = matched.sum(axis=3, keepdims=True)
    total_length = length.sum(axis=3, keepdims=True)
    without = (total - matched) / (total_length - length)
    score = np.broadcast_to(total / total_length, (studies, 2, seeds, 1))
    values = jackknife(score.reshape(-1), without.reshape(-1, sentences))
    return values.reshape(studies, 2, seeds, sentences)

"""The variance that the choice of a tuned value adds to the mean score of a variant.

Other tuning runs would have chosen another value, with another score. The tuning runs of a variant are resampled:
residuals of the same seed are added to the parabola through the losses, or to the means of the settings. From each
resample, the function that chose chooses again. The score of its choice is read off the parabola through the scores of
the tuning runs in the metric, or interpolated between their means. The variance of these scores is that of the choice.
Its degrees of freedom are those of the residuals: the tuning runs without the coefficients of the parabola (or the
means) and the effects of the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from headtohead.planning.tuning.choice import FURTHER_SEEDS, Choices, Table, choose_from
from headtohead.planning.tuning.curve import MIN_VALUES, Floats, Ints, fit_parabolas
from headtohead.storage.tuning import TUNING_METRIC, Rule, TuningRecord
from headtohead_judge.contrast import Selection

RESAMPLES = 1000
SEED = 1
"""Seed of the resamples, which are the same in every report."""

NOT_TUNED = "no value is tuned"
NO_CHOICE = "no value is chosen yet"
ONE_SEED = "values were chosen with one seed"
ONE_SETTING = "every variant has a single value"


@dataclass(frozen=True)
class Selections:
    """The variances that the choices of tuned values add to scores in a metric.

    Attributes:
        by_variant: The variance of each variant with a choice between settings.
        reason: Why no variant has such a variance; empty if a variant has.
        without_tuning_scores: The variants whose tuning runs have no scores in the metric.
    """

    by_variant: Mapping[str, Selection]
    reason: str = ""
    without_tuning_scores: tuple[str, ...] = ()


def selections(record: TuningRecord | None, metric: str) -> Selections:
    """Return the variance of the choice of each tuned variant in a metric, or why there is none.

    A variant with a single setting is left out, because nothing was chosen, and so is a variant whose tuning runs lack
    a score in the metric. If each value was tried with one seed, the variance cannot be estimated, and all variants are
    left out.

    Args:
        record: The tuning of an experiment; None if nothing is tuned.
        metric: A metric that tuning runs store.
    """
    if record is None:
        return Selections({}, NOT_TUNED)
    if not record.variants:
        return Selections({}, NO_CHOICE)
    if len(record.seeds) == 1:
        return Selections({}, ONE_SEED)
    choosing = {
        slug: tuned for slug, tuned in record.variants.items() if tuned.rule != Rule.ONE_SETTING
    }
    if not choosing:
        return Selections({}, ONE_SETTING)
    by_variant = {}
    without_tuning_scores = []
    for slug, tuned in choosing.items():
        table = Table.of(tuned.tried, len(record.seeds))
        if np.isnan(table.scores(metric)).any():
            without_tuning_scores.append(slug)
        else:
            losses = TuningScores(table.scores(TUNING_METRIC), table.further_scores(TUNING_METRIC))
            scores = TuningScores(table.scores(metric), table.further_scores(metric))
            by_curve = tuned.rule == Rule.CURVE
            by_variant[slug] = selection_of(
                table.numbers, table.num_listed, by_curve, losses, scores
            )
    reason = "" if by_variant else f"tuning runs have no {metric}"
    return Selections(by_variant, reason, tuple(without_tuning_scores))


class TuningScores(NamedTuple):
    """The scores of the tuning runs of a variant in a metric.

    Attributes:
        of_sweep: ``[setting, seed]`` of the seeds of the sweep, finite.
        further: ``[setting, seed]`` of further seeds, which only the two best settings have; NaN where there is no run.
    """

    of_sweep: Floats
    further: Floats


def selection_of(
    numbers: Sequence[float] | None,
    num_listed: int,
    by_curve: bool,
    losses: TuningScores,
    scores: TuningScores,
) -> Selection:
    """Return the variance that a variant's choice adds to its score in a metric, and its degrees of freedom.

    The losses of the tuning runs are resampled, and the variant's rule chooses a value from each resample: by the
    parabola or by the means. The variance is that of the scores of these values. The resamples are the same in every
    call. The means include the runs with further seeds.

    Args:
        numbers: The tuned value of each setting without a diverged run; None if it is no single number above 0.
        num_listed: The number of settings that the experiment file lists; the others follow them.
        by_curve: Whether the parabola chose. It needs at least `MIN_VALUES` numbers.
        losses: The losses of at least two settings and two seeds.
        scores: The scores of the same runs in the metric.

    Raises:
        AssertionError: If the parabola chose and there are no numbers.
    """
    if by_curve:
        assert numbers is not None
        model = _curve_model(numbers, losses.of_sweep)
        choices = _chosen_again(numbers, num_listed, model)
        chosen_scores = _on_curve(numbers, choices, scores.of_sweep)
    else:
        model = _means_model(losses)
        choices = _chosen_again(numbers, num_listed, model)
        chosen_scores = _on_means(numbers, choices, _means_model(scores).expected)
    return Selection(float(chosen_scores.var(ddof=1)), model.degrees)


@dataclass(frozen=True)
class _Model:
    """Expected losses ``[setting]``, residuals ``[setting, seed]`` around them, and their degrees of freedom.

    The residuals are enlarged, so that their mean square is the residual variance.
    """

    expected: Floats
    residuals: Floats
    degrees: int


def _curve_model(numbers: Sequence[float], losses: Floats) -> _Model:
    """Return the parabola through all tuning runs, with effects of seeds."""
    fits = fit_parabolas(np.array(numbers), losses)
    expected = fits.at(np.log(numbers))
    residuals = losses - expected[:, None]
    residuals -= residuals.mean(axis=0)
    return _Model(expected, residuals * np.sqrt(losses.size / fits.degrees), fits.degrees)


def _means_model(tuning_scores: TuningScores) -> _Model:
    """Fit a score as the sum of an effect of its setting and an effect of its seed, by least squares.

    Only the two best settings have further seeds, so plain means of the settings would not be comparable.

    Args:
        tuning_scores: The scores of at least two settings and two seeds.

    Returns:
        The effects of the settings, up to a constant, the enlarged residuals of the seeds of the sweep, and their
        degrees of freedom.

    Raises:
        ZeroDivisionError: With a single setting, or if each setting has a single score over both tables.
    """
    scores = np.concatenate(tuning_scores, axis=1)
    has_run = np.isfinite(scores)
    values = scores[has_run]
    setting_of_value, seed_of_value = np.nonzero(has_run)
    num_settings, num_seeds = scores.shape
    design = np.zeros((len(values), num_settings + num_seeds))
    rows = np.arange(len(values))
    design[rows, setting_of_value] = 1
    design[rows, num_settings + seed_of_value] = 1
    coefficients, _, rank, _ = np.linalg.lstsq(design, values)
    degrees = len(values) - int(rank)
    residuals = np.zeros(scores.shape)
    # Enlarged, so that their mean square is the residual variance.
    residuals[has_run] = (values - design @ coefficients) * np.sqrt(len(values) / degrees)
    seeds_of_sweep = tuning_scores.of_sweep.shape[1]
    # Of the effects of settings, only differences are determined, and only they matter.
    expected: Floats = np.asarray(coefficients[:num_settings], dtype=np.float64)
    return _Model(expected, residuals[:, :seeds_of_sweep], degrees)


@dataclass(frozen=True)
class _Drawn:
    """The indices of the residuals in the resamples.

    Attributes:
        of_seed: ``[seed, setting, resample]``, each the index of a setting.
        further: ``[further seed, setting, resample]``, each the index of a setting and a seed.
    """

    of_seed: Ints
    further: Ints


@lru_cache(maxsize=16)
def _drawn(num_settings: int, num_seeds: int) -> _Drawn:
    """Return the indices for tables of this size, the same in every report."""
    generator = np.random.default_rng(SEED)
    of_seed = []
    for _ in range(num_seeds):
        drawn = generator.integers(num_settings, size=(RESAMPLES, num_settings))
        of_seed.append(drawn.T)
    size = (RESAMPLES, num_settings, FURTHER_SEEDS)
    further = generator.integers(num_settings * num_seeds, size=size)
    of_seeds = np.array(of_seed, dtype=np.intp)
    return _Drawn(of_seeds, np.ascontiguousarray(further.transpose(2, 1, 0), dtype=np.intp))


def _chosen_again(numbers: Sequence[float] | None, num_listed: int, model: _Model) -> Choices:
    """Return the choices from `RESAMPLES` resampled tables of tuning runs, ``[resample]``, the same in every call.

    The numbers after the listed ones were tried in turn, each because the best value could lie on its side of all
    numbers before it. A resample tries them likewise: it chooses from the numbers before the first one that it has no
    reason to try. Without numbers, every resample chooses from all settings.
    """
    losses, further = _resampled(model)
    if numbers is None:
        return choose_from(numbers, losses, further)
    num_tried = max(num_listed, 2)
    choices = choose_from(numbers[:num_tried], losses[:, :num_tried], further[:, :num_tried])
    chosen = choices
    tries_next = np.ones(RESAMPLES, dtype=np.bool_)
    for index in range(num_tried, len(numbers)):
        earlier = numbers[:index]
        side = 1 if numbers[index] > max(earlier) else -1
        tries_next &= choices.sides(earlier) == side
        num_tried = index + 1
        choices = choose_from(numbers[:num_tried], losses[:, :num_tried], further[:, :num_tried])
        chosen = choices.where(tries_next, chosen)
    return chosen


def _resampled(model: _Model) -> tuple[Floats, Floats]:
    """Return resampled scores of the seeds of the sweep, and of further seeds, each ``[resample, setting, seed]``.

    They are the expected scores with residuals of the model. A seed of the sweep has its own residuals, of any setting.
    A further seed has those of any setting and seed; here, all settings have further seeds.
    """
    num_settings, num_seeds = model.residuals.shape
    drawn = _drawn(num_settings, num_seeds)
    by_seed = [model.residuals[:, seed][drawn.of_seed[seed]] for seed in range(num_seeds)]
    losses = model.expected[:, None] + np.array(by_seed)
    further = model.expected[:, None] + model.residuals.ravel()[drawn.further]
    # Arrays are fast to reduce if the axis of the resamples is the last one in memory.
    return losses.transpose(2, 1, 0), further.transpose(2, 1, 0)


def _on_curve(numbers: Sequence[float], choices: Choices, scores: Floats) -> Floats:
    """Return the score of each choice on the parabola through the scores of all tuning runs."""
    values = np.array(numbers)
    fits = fit_parabolas(values, scores)
    logarithms = np.log(values)[choices.best]
    return fits.at(np.where(choices.by_curve, choices.minimum, logarithms))


def _on_means(numbers: Sequence[float] | None, choices: Choices, means: Floats) -> Floats:
    """Return the mean of each chosen setting, or the interpolated mean of a value between settings."""
    scores: Floats = means[choices.best]
    if numbers is not None and len(numbers) >= MIN_VALUES:
        logarithms = np.log(numbers)
        order = np.argsort(logarithms)
        between = np.interp(choices.minimum, logarithms[order], means[order])
        scores = np.where(choices.by_curve, between, scores)
    return scores

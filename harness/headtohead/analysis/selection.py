"""The variance that the choice of a tuned value adds to the mean score of a variant.

Other tuning runs would have chosen another value, with another score. The tuning runs of a variant are resampled:
residuals of the same seed are added to the parabola through the losses, or to the means of the settings. From each
resample, the function that chose chooses again. The score of its choice is read off the parabola through the scores of
the tuning runs in the metric, or interpolated between their means. The variance of these scores is that of the choice.
Its degrees of freedom are those of the residuals: the tuning runs without the coefficients of the parabola (or the
means) and the effects of the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headtohead.planning.tuning.choice import FURTHER_SEEDS, Choices, Table, choose_from
from headtohead.planning.tuning.curve import MIN_VALUES, Floats, fit_parabolas
from headtohead.storage.tuning import TUNING_METRIC, Rule, TunedVariant, TuningRecord
from headtohead_judge.contrast import Selection

RESAMPLES = 1000
SEED = 1
"""Seed of the resamples, which are the same in every report."""

NOT_TUNED = "no value is tuned"
NO_CHOICE = "no value is chosen yet"
ONE_SEED = "values were chosen with one seed"


@dataclass(frozen=True)
class Selections:
    """The variances that the choices of tuned values add to scores in a metric.

    Attributes:
        by_variant: The variance of each variant with a choice between settings.
        reason: Why no variant has such a variance; empty if a variant has.
        without_scores: The variants whose tuning runs have no scores in the metric.
    """

    by_variant: Mapping[str, Selection]
    reason: str = ""
    without_scores: tuple[str, ...] = ()


def selections(record: TuningRecord | None, metric: str) -> Selections:
    """Return the variance of the choice of each tuned variant in a metric, or why there is none.

    A variant with a single setting is left out, because nothing was chosen. If each value was tried with one seed, the
    variance cannot be estimated, and all variants are left out.

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
    by_variant = {}
    without_scores = []
    for slug, tuned in record.variants.items():
        if tuned.rule == Rule.ONE_SETTING:
            continue
        table = Table.of(tuned.tried, len(record.seeds))
        if np.isnan(table.scores(metric)).any():
            without_scores.append(slug)
        else:
            by_variant[slug] = _selection(tuned, table, metric)
    reason = "" if by_variant else f"tuning runs have no {metric}"
    return Selections(by_variant, reason, tuple(without_scores))


def _selection(tuned: TunedVariant, table: Table, metric: str) -> Selection:
    """Return the variance that a variant's choice adds to its score in a metric, and its degrees of freedom.

    The losses of the tuning runs are resampled, and the variant's rule chooses a value from each resample: by the
    parabola or by the means. The variance is that of the scores of these values. The resamples are the same in every
    call. The means include the runs with further seeds, which only the two best settings have.

    Args:
        tuned: A variant that was chosen from several settings.
        table: Its settings without a diverged run, of at least two seeds, all with scores in ``metric``. If the rule is
            the parabola, at least `MIN_VALUES` numbers above 0.
        metric: The metric of the scores.

    Raises:
        AssertionError: If the rule is the parabola and the settings have no numbers.
    """
    losses = table.scores(TUNING_METRIC)
    scores = table.scores(metric)
    if tuned.rule == Rule.CURVE:
        model = _curve_model(table, losses)
        choices = _chosen_again(table, model)
        chosen_scores = _on_curve(table, choices, scores)
    else:
        model = _means_model(losses, table.further_scores(TUNING_METRIC))
        choices = _chosen_again(table, model)
        means = _means_model(scores, table.further_scores(metric)).expected
        chosen_scores = _on_means(table, choices, means)
    return Selection(float(chosen_scores.var(ddof=1)), model.degrees)


@dataclass(frozen=True)
class _Model:
    """Expected losses ``[setting]``, residuals ``[setting, seed]`` around them, and their degrees of freedom.

    The residuals are enlarged, so that their mean square is the residual variance.
    """

    expected: Floats
    residuals: Floats
    degrees: int


def _curve_model(table: Table, losses: Floats) -> _Model:
    """Return the parabola through all tuning runs, with effects of seeds."""
    assert table.numbers is not None
    numbers = np.array(table.numbers)
    order = np.argsort(numbers)
    fits = fit_parabolas(numbers[order], losses[order])
    expected = fits.at(np.log(numbers))
    residuals = losses - expected[:, None]
    residuals -= residuals.mean(axis=0)
    return _Model(expected, residuals * np.sqrt(losses.size / fits.degrees), fits.degrees)


def _means_model(losses: Floats, further: Floats) -> _Model:
    """Return the means of the settings over all seeds, with effects of seeds.

    Only the two best settings have further seeds, so means and effects are fitted by least squares.

    Args:
        losses: ``[setting, seed]`` of the seeds of the sweep, finite; at least two settings and two seeds.
        further: ``[setting, seed]`` of further seeds; NaN where there is no run.

    Raises:
        ZeroDivisionError: With a single setting, or a single loss of each setting.
    """
    scores = np.concatenate([losses, further], axis=1)
    has_run = np.isfinite(scores)
    settings, seeds = np.nonzero(has_run)
    num_settings, num_seeds = scores.shape
    design = np.zeros((len(settings), num_settings + num_seeds))
    rows = np.arange(len(settings))
    design[rows, settings] = 1
    design[rows, num_settings + seeds] = 1
    values = scores[has_run]
    coefficients, _, rank, _ = np.linalg.lstsq(design, values)
    degrees = len(values) - int(rank)
    fitted = design @ coefficients
    residuals = np.zeros(scores.shape)
    residuals[has_run] = (values - fitted) * np.sqrt(len(values) / degrees)
    # Only differences of expected losses matter.
    return _Model(coefficients[:num_settings], residuals[:, : losses.shape[1]], degrees)


def _chosen_again(table: Table, model: _Model) -> Choices:
    """Return the choices from `RESAMPLES` resampled tables of tuning runs, ``[resample]``, the same in every call.

    The seeds of the sweep are resampled one by one, each with its own residuals. All settings have further seeds, with
    residuals of any setting and seed. The further values of a sweep are added one by one, as they were in the study.
    """
    generator = np.random.default_rng(SEED)
    num_settings, num_seeds = model.residuals.shape
    losses = np.empty((RESAMPLES, num_settings, num_seeds))
    for seed in range(num_seeds):
        drawn = generator.integers(num_settings, size=(RESAMPLES, num_settings))
        losses[:, :, seed] = model.expected + model.residuals[drawn, seed]
    drawn = generator.integers(model.residuals.size, size=(RESAMPLES, num_settings, FURTHER_SEEDS))
    further = model.expected[:, None] + model.residuals.ravel()[drawn]
    chosen = choose_from(table.numbers, losses, further)
    if table.numbers is None:
        return chosen
    # Resamples whose best value is inside the first settings would not have had the further ones.
    for count in range(len(table.numbers) - 1, max(table.num_listed, 2) - 1, -1):
        numbers = table.numbers[:count]
        fewer = choose_from(numbers, losses[:, :count], further[:, :count])
        side = 1 if table.numbers[count] > max(numbers) else -1
        chosen = chosen.where(fewer.sides(numbers) == side, fewer)
    return chosen


def _on_curve(table: Table, choices: Choices, scores: Floats) -> Floats:
    """Return the score of each choice on the parabola through the scores of all tuning runs."""
    assert table.numbers is not None
    numbers = np.array(table.numbers)
    order = np.argsort(numbers)
    fits = fit_parabolas(numbers[order], scores[order])
    logarithms = np.log(numbers)[choices.best]
    return fits.at(np.where(choices.by_curve, choices.minimum, logarithms))


def _on_means(table: Table, choices: Choices, means: Floats) -> Floats:
    """Return the mean of each chosen setting, or the interpolated mean of a value between settings."""
    scores: NDArray[np.float64] = means[choices.best]
    if table.numbers is not None and len(table.numbers) >= MIN_VALUES:
        logarithms = np.log(table.numbers)
        order = np.argsort(logarithms)
        between = np.interp(choices.minimum, logarithms[order], means[order])
        scores = np.where(choices.by_curve, between, scores)
    return scores

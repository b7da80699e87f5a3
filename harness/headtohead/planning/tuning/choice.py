"""Choose a setting from the scores of tuning runs.

With one tuned number above 0, four values and two seeds, the minimum of a parabola in the logarithm of the value is
chosen, if the parabola holds. Otherwise the two best settings are trained with further seeds, and the best mean of all
their seeds is chosen. A setting with a diverged run is never chosen and is no point of a parabola.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from headtohead.planning.tuning.curve import (
    LACK_OF_FIT_LEVEL,
    MIN_VALUES,
    Bools,
    Fits,
    Floats,
    Ints,
    fit_parabolas,
)
from headtohead.storage.tuning import TUNING_METRIC, Rule, TrialRecord, number_of
from headtohead_judge.numbers import show_p

FURTHER_SEEDS = 4
"""Number of seeds that the two best settings get if no parabola holds."""

DIGITS = 3
"""Significant digits of a chosen minimum."""

SEVERAL_FIELDS = "several fields are tuned"
NO_NUMBERS = "not all values are numbers above 0"
FEW_VALUES = "fewer than {least} values have no diverged run"
NO_MINIMUM = "the parabola has no minimum"
LACK_OF_FIT = "the parabola does not fit, p {p}"
OUTSIDE = "the minimum of the parabola is outside the values"


@dataclass(frozen=True)
class Choices:
    """The choices from tables of losses of the same settings.

    Attributes:
        by_curve: ``[...]``, whether the minimum of the parabola is chosen.
        minimum: ``[...]``, the logarithm of the value at the minimum; NaN without a parabola or a minimum.
        best: ``[...]``, the index of the setting that the means choose, where the parabola does not.
        candidates: ``[..., 2]``, the indices of the two best settings of the seeds of the sweep, the best first.
        fits: The parabolas; None if none can be fitted.
    """

    by_curve: Bools
    minimum: Floats
    best: Ints
    candidates: Ints
    fits: Fits | None

    def sides(self, numbers: Sequence[float]) -> Ints:
        """Return ``[...]``: −1 or 1 if the best value may be below or above all numbers, else 0.

        With a parabola that holds, this is the side of its minimum, otherwise the end at which the best setting is.
        """
        best = self.candidates[..., 0]
        ends: Ints = np.where(
            best == np.argmax(numbers), 1, np.where(best == np.argmin(numbers), -1, 0)
        )
        if self.fits is None:
            return ends
        sides: Ints = np.where(self.fits.hold, self.fits.side, ends)
        return sides

    def where(self, is_chosen: Bools, others: Choices) -> Choices:
        """Return these choices where ``is_chosen``, elsewhere the other choices; the result has no parabolas."""
        return Choices(
            np.where(is_chosen, self.by_curve, others.by_curve),
            np.where(is_chosen, self.minimum, others.minimum),
            np.where(is_chosen, self.best, others.best),
            np.where(is_chosen[..., None], self.candidates, others.candidates),
            None,
        )


def choose_from(numbers: Sequence[float] | None, losses: Floats, further: Floats) -> Choices:
    """Choose from each table of losses.

    Args:
        numbers: The tuned value of each setting; None if it is no single number above 0.
        losses: ``[..., setting, seed]`` of the seeds of the sweep, finite.
        further: ``[..., setting, seed]`` of further seeds; NaN where there is no run. They count for a candidate
            only if both candidates have them.
    """
    shape = losses.shape[:-2]
    sums = losses.sum(axis=-1)
    candidates = _two_smallest(sums)
    sums_of_two = np.take_along_axis(sums, candidates, axis=-1)
    further_of_two = np.take_along_axis(further.sum(axis=-1), candidates, axis=-1)
    have_further = np.isfinite(further_of_two).all(axis=-1, keepdims=True)
    sums_of_two = np.where(have_further, sums_of_two + further_of_two, sums_of_two)
    second_is_best = sums_of_two[..., 1] < sums_of_two[..., 0]
    best = np.where(second_is_best, candidates[..., 1], candidates[..., 0])
    if numbers is None or len(numbers) < MIN_VALUES or losses.shape[-1] < 2:
        never = np.zeros(shape, dtype=np.bool_)
        return Choices(never, np.full(shape, np.nan), best, candidates, None)
    fits = fit_parabolas(np.asarray(numbers), losses)
    return Choices(fits.hold & fits.are_inside, fits.minimum, best, candidates, fits)


def _two_smallest(sums: Floats) -> Ints:
    """Return ``[..., 2]``: the indices of the two smallest of ``[..., setting]``; of equal sums, the first."""
    smallest = sums.argmin(axis=-1)[..., None]
    others = sums.copy()
    np.put_along_axis(others, smallest, np.inf, axis=-1)
    second = others.argmin(axis=-1)[..., None]
    return np.concatenate([smallest, second], axis=-1)


@dataclass(frozen=True)
class Table:
    """The losses of the settings of a variant that have no diverged run.

    Attributes:
        trials: The settings, in the order of the sweep.
        numbers: Their values, or None; see `choose_from`.
        why_no_numbers: Why ``numbers`` is None; empty if it is not.
        num_seeds: The number of seeds of the sweep.
    """

    trials: tuple[TrialRecord, ...]
    numbers: tuple[float, ...] | None
    why_no_numbers: str
    num_seeds: int

    @property
    def num_listed(self) -> int:
        """The number of settings that the experiment file lists; further ones follow in ``trials``."""
        return sum(not trial.is_further for trial in self.trials)

    @classmethod
    def of(cls, tried: Sequence[TrialRecord], num_seeds: int) -> Table:
        """Return the table of the tried settings of a variant, each with the runs of all seeds of the sweep.

        A setting of which a further seed diverged is left out too.
        """
        finite = [trial for trial in tried if trial.mean is not None]
        fields = list(tried[0].values)
        if len(fields) > 1:
            return cls(tuple(finite), None, SEVERAL_FIELDS, num_seeds)
        (field,) = fields
        if not all(_is_above_zero(trial.values[field]) for trial in tried):
            return cls(tuple(finite), None, NO_NUMBERS, num_seeds)
        numbers = tuple(number_of(trial.values, field) for trial in finite)
        return cls(tuple(finite), numbers, "", num_seeds)

    def scores(self, metric: str) -> Floats:
        """Return ``[setting, seed]``: the scores of the seeds of the sweep in a metric, NaN where there is none."""
        rows = [trial.scores(metric)[: self.num_seeds] for trial in self.trials]
        return np.array(rows, dtype=np.float64)

    def further_scores(self, metric: str) -> Floats:
        """Return ``[setting, seed]``: the scores of further seeds in a metric, NaN where there is none."""
        table = np.full((len(self.trials), FURTHER_SEEDS), np.nan)
        for row, trial in enumerate(self.trials):
            scores = trial.scores(metric)[self.num_seeds :]
            table[row, : len(scores)] = scores
        return table


def _is_above_zero(value: JsonValue) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value > 0


@dataclass(frozen=True)
class Choice:
    """The setting of a variant that its tuning runs choose.

    Attributes:
        rule: The rule that chose.
        reason: Why the minimum of the parabola is not chosen; empty if it is, and with a single seed or setting.
        values: The chosen value of each field.
        candidates: The two best settings of the seeds of the sweep, which get further seeds; empty with other rules.
        fits: The parabola; None if none can be fitted.
        outside: −1 if the minimum of a parabola that fits is below all values, 1 if it is above them, else 0.
    """

    rule: Rule
    reason: str
    values: Mapping[str, JsonValue]
    candidates: tuple[TrialRecord, ...] = ()
    fits: Fits | None = None
    outside: int = 0


def choose(tried: Sequence[TrialRecord], num_seeds: int) -> Choice:
    """Choose the setting of a variant.

    A setting with a diverged run is chosen only if all settings have one; then it is the first. If only one setting has
    no diverged run, it is chosen. Of several, the choice is that of `choose_from`; with a single seed, the best mean.
    Of settings with equal means, the first is chosen.

    Args:
        tried: Its settings with the runs of all seeds of the sweep.
        num_seeds: The number of seeds of the sweep.
    """
    table = Table.of(tried, num_seeds)
    if len(table.trials) < 2:
        chosen = table.trials[0] if table.trials else tried[0]
        return Choice(Rule.ONE_SETTING, "", chosen.values)
    losses = table.scores(TUNING_METRIC)
    choices = choose_from(table.numbers, losses, table.further_scores(TUNING_METRIC))
    best = table.trials[int(choices.best)]
    if num_seeds == 1:
        return Choice(Rule.ONE_SEED, "", best.values)
    if bool(choices.by_curve):
        (field,) = best.values
        minimum = rounded(float(np.exp(choices.minimum)))
        if isinstance(best.values[field], int):
            minimum = round(minimum)
        return Choice(Rule.CURVE, "", {field: minimum}, fits=choices.fits)
    candidates = tuple(table.trials[index] for index in choices.candidates.tolist())
    return Choice(
        Rule.MORE_SEEDS,
        _why_no_curve(table, choices.fits),
        best.values,
        candidates,
        choices.fits,
        0 if choices.fits is None else int(choices.fits.side),
    )


def rounded(value: float) -> float:
    """Return a value with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _why_no_curve(table: Table, fits: Fits | None) -> str:
    """Return why the minimum of the parabola is not chosen."""
    if table.numbers is None:
        return table.why_no_numbers
    if fits is None:
        return FEW_VALUES.format(least=MIN_VALUES)
    if fits.coefficients[2] <= 0:
        return NO_MINIMUM
    if fits.lack_of_fit_p < LACK_OF_FIT_LEVEL:
        return LACK_OF_FIT.format(p=show_p(float(fits.lack_of_fit_p)))
    return OUTSIDE

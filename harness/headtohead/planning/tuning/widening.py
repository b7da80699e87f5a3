"""Widen the sweep of a variant by a further value, where its best value may be outside the values so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headtohead.planning.tuning.choice import Choice
from headtohead.planning.tuning.settings import TuningSetting
from headtohead.storage.tuning import Rule, TrialRecord

MAX_WIDENINGS = 3
"""How often the sweep of a variant gets a further value."""

SMALLEST = -1
LARGEST = 1


def widened(
    settings: tuple[TuningSetting, ...], tried: Sequence[TrialRecord], choice: Choice
) -> tuple[TuningSetting, ...]:
    """Return the settings of a variant and, for each field of `edges`, a further setting beyond the edge.

    The further setting is the best setting with the next value of the field beyond the edge. It is left out if it is
    invalid, or if it equals one of ``settings``.

    Args:
        settings: The settings so far.
        tried: Their results.
        choice: The choice from the seeds of the sweep.
    """
    best_values = choice.candidates[0].values if choice.candidates else choice.values
    added = []
    for path, end in edges(tried, choice, best_values).items():
        best = next((setting for setting in settings if setting.values == best_values), settings[0])
        numbers = sorted(numbers_of(path, [setting.values for setting in settings]))
        if end == LARGEST:
            numbers.reverse()
        setting = best.with_value(path, _beyond(numbers[0], numbers[1]))
        is_new = setting.values not in [other.values for other in settings]
        if setting.is_valid and is_new:
            added.append(replace(setting, is_further=True))
    return (*settings, *added)


def _beyond(edge: float, neighbour: float) -> float:
    """Return the value that follows the edge of a sweep, at the ratio of the edge to the value before it."""
    value = edge * edge / neighbour if neighbour else 2 * edge
    return float(f"{value:.6g}")


def edges(tried: Sequence[TrialRecord], choice: Choice, best: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields whose best value may be outside the tried values, and the end: `SMALLEST` or `LARGEST`.

    A field with fewer than two numbers is left out. The others:

    - If the minimum of a fitted parabola was chosen, it is inside, and the result is empty.
    - If the minimum of a fitted parabola is outside (``choice.outside``, in a sweep of one field), the end is its side;
      the field is left out if all settings at this end diverged.
    - Without a parabola, the end is that of the best value; the field is left out if this value is at no end, or is
      0, because further values are multiples.

    Args:
        tried: The tried settings of a variant.
        choice: Their choice.
        best: The values of the best setting.
    """
    if choice.rule == Rule.CURVE:
        return {}
    end_of = {}
    for path, value in best.items():
        numbers = numbers_of(path, [trial.values for trial in tried])
        if len(numbers) < 2:
            continue
        if choice.outside:
            finite = numbers_of(path, [trial.values for trial in tried if trial.mean is not None])
            extreme = min if choice.outside == SMALLEST else max
            if extreme(finite) == extreme(numbers):
                end_of[path] = choice.outside
        elif value and value in (min(numbers), max(numbers)):
            end_of[path] = LARGEST if value == max(numbers) else SMALLEST
    return end_of


def numbers_of(path: str, settings: Iterable[Mapping[str, Any]]) -> set[float]:
    """Return the numbers of a sweep among the values of a field."""
    numbers = set()
    for setting in settings:
        value = setting[path]
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers.add(value)
    return numbers

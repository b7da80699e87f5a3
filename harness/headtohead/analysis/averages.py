"""How an average over settings differs between its settings, as a clause."""

from __future__ import annotations

from collections.abc import Mapping

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import ends
from headtohead.config.clauses import with_preposition
from headtohead.config.labels import joined, listed
from headtohead.storage.metrics import show

MAX_NAMED = 6
"""Settings that a clause names before the number of the others; a single other is named too."""

MAX_VALUES = 4
"""Maximum number of values of another axis with an effect of their own; with more, the smallest and the largest."""

EFFECT = "{effect} {value}"
RANGE = "{range} depending on {axes}"
OTHER_SIGN = "the other sign {settings}"


def settings_text(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return how the single settings of an average differ, without a full stop: the first of these that applies.

    - If its effect depends on another axis: the effect for each value of that axis.
    - If the average is detected: the settings with the other sign.
    - If it is not detected: the smallest and the largest difference, if these contradict it
      (`Analysis.settings_contradict`).

    Empty if none applies, and for a contrast of a single setting or without a test.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if contrast.spread is None or contrast.paired is None:
        return ""
    effects = analysis.separate_effects(contrast)
    if effects:
        return joined(_shown_effects(contrast, effects))
    if contrast.detected:
        return _settings_of_other_sign(analysis, contrast, contrast.paired.mean)
    if not analysis.settings_contradict(contrast):
        return ""
    low, high = contrast.spread
    text = ends(low, high, contrast.metric, signed=True, like=contrast.scale)
    return RANGE.format(range=text, axes=_averaged_axes(analysis, contrast))


def _averaged_axes(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return the names of the axes over which a contrast averages."""
    changed_axes = contrast.axis.split(" and ") if contrast.axis else []
    values_of: dict[str, set[str]] = {}
    for setting in contrast.settings:
        variant = analysis.frames.by_slug[setting.variant]
        for axis in variant.axes:
            if axis not in changed_axes:
                values_of.setdefault(axis, set()).add(variant.phrase(axis))
    record = analysis.frames.record
    return listed([record.axis_name(axis) for axis, values in values_of.items() if len(values) > 1])


def _shown_effects(contrast: ContrastResult, by_value: Mapping[str, float]) -> list[str]:
    """Return a text for the effect with each value of another axis, such as ``+0.02 with 4 heads``, in ascending order.

    Of more than ``MAX_VALUES`` values, only the smallest and the largest effect have a text.
    """
    values = sorted(by_value, key=lambda value: by_value[value])
    if len(values) > MAX_VALUES:
        values = [values[0], values[-1]]
    texts = []
    for value in values:
        effect = show(by_value[value], contrast.metric, signed=True, like=contrast.scale)
        texts.append(EFFECT.format(effect=effect, value=with_preposition(value)))
    return texts


def _settings_of_other_sign(analysis: Analysis, contrast: ContrastResult, mean: float) -> str:
    """Return a clause with the settings whose difference has the other sign than ``mean``, the mean of the average.

    A setting is named by its values of the axes over which the contrast averages. Of more than `MAX_NAMED` + 1
    settings, the clause has the first `MAX_NAMED` and the number of the others. Empty without such a setting.
    """
    changed_axes = contrast.axis.split(" and ") if contrast.axis else []
    names = []
    for setting in contrast.settings:
        if setting.difference.mean * mean < 0:
            variant = analysis.frames.by_slug[setting.variant]
            phrases = [variant.phrase(axis) for axis in variant.axes if axis not in changed_axes]
            names.append(with_preposition(", ".join(phrases)))
    if not names:
        return ""
    return OTHER_SIGN.format(settings=listed(names, most=MAX_NAMED))

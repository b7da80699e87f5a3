"""The scores of every variant over the values of one swept number: those of ``tune``, or an axis of learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headtohead.analysis.scores import Scores
from headtohead.config.labels import listed, text
from headtohead.config.phrases import axis_name
from headtohead.planning.variants import SIZE_AXIS
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.metrics import higher_is_better
from headtohead.storage.tuning import Rule, TuningRecord, number_of

LEARNING_RATE = "train.lr"


COLUMNS = ["variant", "panel", "x", "mean", "sd"]


@dataclass(frozen=True)
class Sweep:
    """A sweep of the number ``field``.

    ``rows`` have the columns ``COLUMNS``: ``variant``, ``panel`` (its size), ``x``, and ``mean`` and ``sd`` over seeds.
    ``chosen`` has the same columns:

    - of ``tune``, the value that each variant is trained with; at a value between those of the sweep, ``mean`` is that
      of the parabola and ``sd`` is NaN
    - of an axis, the rows of each variant and size with the best mean, several if they share it
    """

    field: str
    metric: str
    rows: pd.DataFrame
    chosen: pd.DataFrame
    is_tuned: bool

    @property
    def sentence(self) -> str:
        """The chosen value of each variant and size; of an axis, all values that share the best mean."""
        texts = []
        for variant, panel in (
            self.rows[["variant", "panel"]].drop_duplicates().itertuples(index=False)
        ):
            is_line = (self.chosen["variant"] == variant) & (self.chosen["panel"] == panel)
            best = [text(x) for x in self.chosen.loc[is_line, "x"]]
            name = f"{variant} · {panel}" if panel else variant
            shared = ", which share the best mean" if len(best) > 1 else ""
            texts.append(f"{name} {listed(best)}{shared}")
        verb = "Chosen" if self.is_tuned else "Best"
        return f"{verb} {axis_name(self.field.split('.'))}: {'; '.join(texts)}."


def sweep(scores: Scores) -> Sweep | None:
    """Return the sweep of ``tune`` if it has ended and has a single field, else that of the axis ``train.lr``.

    None unless the field has at least two values with a score, all of them numbers.
    """
    record = scores.frames.record.tuning
    if record and record.variants and len(record.fields) == 1:
        return _tuning_sweep(scores, record)
    return _axis_sweep(scores)


def _tuning_sweep(scores: Scores, record: TuningRecord) -> Sweep | None:
    """Return the sweep of ``tune`` over its only field; None unless it has two values, all of them numbers.

    Trials without a mean are left out, and variants that are not in the study. The standard deviation is NaN for a
    single run, and if it is 0. A variant has no chosen row if its chosen setting has no mean, except on a parabola.

    Args:
        scores: The study.
        record: A sweep that has ended.

    Raises:
        ValueError: If the sweep has another number of fields than one.
    """
    (field,) = record.fields
    rows: list[_Row] = []
    chosen: list[_Row] = []
    for slug, variant in scores.frames.by_slug.items():
        if slug not in record.variants:
            continue
        tuned = record.variants[slug]
        panel = _panel(variant)
        name = variant.title.removesuffix(f", {panel}")
        for trial in tuned.tried:
            if trial.mean is None:
                continue
            value = trial.values[field]
            row = (name, panel, value, trial.mean, trial.sd or math.nan)
            rows.append(row)
            if tuned.rule != Rule.CURVE and trial.values == tuned.chosen:
                chosen.append(row)
        if tuned.rule == Rule.CURVE and tuned.curve is not None:
            best = number_of(tuned.chosen, field)
            chosen.append((name, panel, best, tuned.curve.at(best), math.nan))
    table = _table(rows)
    if table is None:
        return None
    return Sweep(field, record.metric, table, pd.DataFrame(chosen, columns=COLUMNS), True)


_Row = tuple[str, str, Any, float, float]
"""The variant, its size, the value, and the mean and standard deviation of the score."""


def _axis_sweep(scores: Scores) -> Sweep | None:
    """Return the sweep of the axis of learning rates; None unless ranked variants have two values, all of them numbers.

    The values are counted over all ranked variants, so a variant can have a single one. A variant whose means are all
    NaN has no chosen row.
    """
    table = _table(_axis_rows(scores))
    if table is None:
        return None
    means = table.groupby(["variant", "panel"])["mean"]
    best = means.transform("max" if higher_is_better(scores.metric) else "min")
    chosen = table[table["mean"] == best]
    return Sweep(LEARNING_RATE, scores.metric, table, chosen, False)


def _axis_rows(scores: Scores) -> list[_Row]:
    """Return a row for each ranked variant with a value of the axis of learning rates; empty without this axis.

    The name of a row has the values of the other axes of the variant except the size; without any, it is
    ``all variants``.
    """
    axes = scores.frames.record.axes
    other_axes = [axis for axis in axes if axis not in (LEARNING_RATE, SIZE_AXIS)]
    rows: list[_Row] = []
    for slug, variant in scores.frames.by_slug.items():
        if LEARNING_RATE not in variant.axes or slug not in scores.ranked:
            continue
        name = ", ".join(variant.phrase(axis) for axis in other_axes) or "all variants"
        rate = variant.axes[LEARNING_RATE]
        summary = scores.summaries[slug]
        rows.append((name, _panel(variant), rate, summary.mean, summary.sd))
    return rows


def _panel(variant: VariantRecord) -> str:
    """Return the label of a variant's size; empty without sizes."""
    if SIZE_AXIS not in variant.axes:
        return ""
    return variant.phrase(SIZE_AXIS)


def _table(rows: Sequence[_Row]) -> pd.DataFrame | None:
    """Return these rows by ascending value; None unless they have at least two values, all of them numbers."""
    table = pd.DataFrame(rows, columns=COLUMNS)
    if table["x"].nunique() < 2 or not pd.api.types.is_numeric_dtype(table["x"]):
        return None
    return table.sort_values("x", kind="stable")

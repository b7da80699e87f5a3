"""The scores of every variant over the values of one swept number: those of ``tune``, or an axis of learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headtohead.analysis.scores import Scores
from headtohead.config.labels import listed, text, title_part
from headtohead.planning.variants import SIZE_AXIS
from headtohead.storage.experiment import TuningRecord, VariantRecord
from headtohead.storage.metrics import higher_is_better

LEARNING_RATE = "train.lr"


@dataclass(frozen=True)
class Sweep:
    """A sweep of the number ``field``.

    ``rows`` have ``variant``, ``panel`` (its size), ``x``, ``mean`` and ``sd`` over seeds, and whether the mean is the
    ``best`` of the variant.
    """

    field: str
    metric: str
    rows: pd.DataFrame

    @property
    def sentence(self) -> str:
        """The setting of each variant with the best mean, or the settings that share it."""
        texts = []
        for (variant, panel), rows in self.rows.groupby(["variant", "panel"], sort=False):
            best = [text(x) for x in rows["x"][rows["best"]]]
            name = f"{variant} · {panel}" if panel else variant
            shared = ", which share the best mean" if len(best) > 1 else ""
            texts.append(f"{name} {listed(best)}{shared}")
        return f"Best {self.field}: {'; '.join(texts)}."


def sweep(scores: Scores) -> Sweep | None:
    """Return the sweep of ``tune``, else of the axis ``train.lr``; None without two numbers of a single field."""
    record = scores.frames.record.tuning
    if record and record.variants and len(record.fields) == 1:
        (field,) = record.fields
        return _swept(field, record.metric, _tuning_rows(scores, record, field))
    return _swept(LEARNING_RATE, scores.metric, _axis_rows(scores))


_Row = tuple[str, str, Any, float, float]
"""The variant, its size, the value, and the mean and standard deviation of the score."""


def _tuning_rows(scores: Scores, record: TuningRecord, field: str) -> list[_Row]:
    """Return a row for each trial of ``tune`` with a score."""
    rows: list[_Row] = []
    for slug, variant in scores.frames.by_slug.items():
        if slug not in record.variants:
            continue
        panel = _panel(variant)
        name = variant.title.removesuffix(f" · {panel}")
        for trial in record.variants[slug].tried:
            if trial.mean is not None:
                rows.append((name, panel, trial.values[field], trial.mean, trial.sd or math.nan))
    return rows


def _axis_rows(scores: Scores) -> list[_Row]:
    """Return a row for each ranked variant with a value of the axis of learning rates."""
    axes = scores.frames.record.axes
    other_axes = [axis for axis in axes if axis not in (LEARNING_RATE, SIZE_AXIS)]
    rows: list[_Row] = []
    for slug, variant in scores.frames.by_slug.items():
        if LEARNING_RATE not in variant.axes or slug not in scores.ranked:
            continue
        parts = [title_part(axis, variant.axes[axis]) for axis in other_axes]
        name = " · ".join(parts) or "all variants"
        summary = scores.summaries[slug]
        rows.append((name, _panel(variant), variant.axes[LEARNING_RATE], summary.mean, summary.sd))
    return rows


def _panel(variant: VariantRecord) -> str:
    """Return the label of a variant's size; empty without sizes."""
    if SIZE_AXIS not in variant.axes:
        return ""
    return title_part(SIZE_AXIS, variant.axes[SIZE_AXIS])


def _swept(field: str, metric: str, rows: Sequence[_Row]) -> Sweep | None:
    """Return the sweep of these rows; None unless they have at least two values, all of them numbers."""
    table = pd.DataFrame(rows, columns=["variant", "panel", "x", "mean", "sd"])
    if table["x"].nunique() < 2 or not pd.api.types.is_numeric_dtype(table["x"]):
        return None
    table = table.sort_values("x", kind="stable")
    means = table.groupby(["variant", "panel"])["mean"]
    table["best"] = table["mean"] == means.transform("max" if higher_is_better(metric) else "min")
    return Sweep(field, metric, table)

"""The scores of every variant over the values of one swept number: those of ``tune``, or an axis of learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from headtohead.analysis.scores import Scores
from headtohead.config.labels import listed, text, title_part
from headtohead.planning.variants import SIZE_AXIS
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
            name = " · ".join(filter(None, [str(variant), str(panel)]))
            texts.append(f"{name} {listed(best)}{', which share the best mean' * (len(best) > 1)}")
        return f"Best {self.field}: {'; '.join(texts)}."


def sweep(scores: Scores) -> Sweep | None:
    """Return the sweep of ``tune``, else of the axis ``train.lr``; None without two numbers of a single field."""
    frames, record = scores.frames, scores.frames.record.tuning
    others = [axis for axis in frames.record.axes if axis not in (LEARNING_RATE, SIZE_AXIS)]
    field, metric, rows = LEARNING_RATE, scores.metric, []
    for slug, variant in frames.by_slug.items():
        panel = title_part(SIZE_AXIS, variant.axes[SIZE_AXIS]) if SIZE_AXIS in variant.axes else ""
        if record and record.variants and len(record.fields) == 1:
            (field,), metric = record.fields, record.metric
            name = variant.title.removesuffix(f" · {panel}")
            tried = record.variants[slug].tried if slug in record.variants else ()
            found = [(trial.values[field], trial.mean, trial.sd or math.nan) for trial in tried]
        elif LEARNING_RATE in variant.axes and slug in scores.ranked:
            name = (
                " · ".join(title_part(axis, variant.axes[axis]) for axis in others)
                or "all variants"
            )
            own = scores.summaries[slug]
            found = [(variant.axes[LEARNING_RATE], own.mean, own.sd)]
        else:
            continue
        rows += [(name, panel, *trial) for trial in found if trial[1] is not None]
    table = pd.DataFrame(rows, columns=["variant", "panel", "x", "mean", "sd"])
    if table["x"].nunique() < 2 or not pd.api.types.is_numeric_dtype(table["x"]):
        return None
    table = table.sort_values("x", kind="stable")
    means = table.groupby(["variant", "panel"])["mean"]
    table["best"] = table["mean"] == means.transform("max" if higher_is_better(metric) else "min")
    return Sweep(field, metric, table)

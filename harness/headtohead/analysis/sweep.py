"""The scores of every variant over the values of one swept number: those of ``tune``, or an axis of learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from headtohead.analysis.scores import Scores
from headtohead.config.labels import listed, title_part
from headtohead.planning.variants import SIZE_AXIS
from headtohead.statistics.paired_tests import ALPHA
from headtohead.storage.metrics import higher_is_better

LEARNING_RATE = "train.lr"


@dataclass(frozen=True)
class Sweep:
    """A sweep of the number ``field``.

    ``rows`` have ``variant``, ``panel`` (its size), ``x``, ``mean``, ``sd`` and ``n`` (seeds), and whether the setting
    is ``best`` or ``equal``: not distinguishable from the best one of the variant. ``logarithms`` is whether the
    logarithms of the scores are compared.
    """

    field: str
    metric: str
    rows: pd.DataFrame
    logarithms: bool = False

    @property
    def sentence(self) -> str:
        """The best setting of each variant, and the settings that are not distinguishable from it."""
        texts = []
        for (variant, panel), rows in self.rows.groupby(["variant", "panel"], sort=False):
            best, equal = ([f"{x:.3g}" for x in rows["x"][rows[name]]] for name in ("best", "equal"))
            name = " · ".join(filter(None, [str(variant), str(panel)]))
            texts.append(f"{name} {best[0]}{f' (not distinguishable: {listed(equal)})' if equal else ''}")
        of = " of the logarithms" * self.logarithms
        return (
            f"Best {self.field}: {'; '.join(texts)}. Distinguishable: t-test at 5 %{of}, with the pooled variance of "
            "all settings of the variant, without correction for their number."
        )


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
            found = [(trial.values[field], trial.mean, trial.sd or math.nan, len(record.seeds)) for trial in tried]
        elif LEARNING_RATE in variant.axes and slug in scores.ranked:
            name = " · ".join(title_part(axis, variant.axes[axis]) for axis in others) or "all variants"
            own = scores.summaries[slug]
            found = [(variant.axes[LEARNING_RATE], own.mean, own.sd, own.n)]
        else:
            continue
        rows += [(name, panel, *trial) for trial in found if trial[1] is not None]
    table = pd.DataFrame(rows, columns=["variant", "panel", "x", "mean", "sd", "n"])
    if table["x"].nunique() < 2 or not pd.api.types.is_numeric_dtype(table["x"]):
        return None
    table = table.sort_values("x", kind="stable")
    groups = [table["variant"], table["panel"]]
    # The deviation of a loss over seeds is about proportional to the loss, so losses are compared as logarithms.
    logarithms = not higher_is_better(metric) and bool((table["mean"] > 0).all())
    values, sds = (np.log(table["mean"]), table["sd"] / table["mean"]) if logarithms else (table["mean"], table["sd"])
    variance = (sds**2).groupby(groups).transform("mean")
    degrees = (table["n"] - 1).where(table["sd"].notna(), 0).groupby(groups).transform("sum")
    sign = 1 if higher_is_better(metric) else -1
    leading = (sign * values).groupby(groups).transform("max")
    limit = (stats.t.ppf(1 - ALPHA / 2, degrees) * (2 * variance / table["n"]) ** 0.5).fillna(math.inf)
    table["best"] = sign * values == leading
    table["equal"] = ~table["best"] & (leading - sign * values <= limit)
    return Sweep(field, metric, table, logarithms)

"""Figure of the training curves: mean over seeds, with the range over seeds as a band."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.panels import panels_figure, select_variants
from headtohead.storage.metrics import is_loss, readable
from headtohead.storage.states import DIVERGED

METRICS = ("valid/loss", "train/loss")


def curves_figure(analysis: Analysis) -> Figure | None:
    """Draw the validation loss over steps, or the training loss if there was no validation."""
    histories = analysis.frames.histories
    metric = next((metric for metric in METRICS if (histories["metric"] == metric).any()), None)
    if metric is None:
        return None
    table = curves(analysis, metric)
    slugs = select_variants(analysis, list(dict.fromkeys(table["variant"])))
    groups = dict(tuple(table.groupby("variant", sort=False)))

    def draw(axes: Axes, slug: str, colour: str) -> None:
        curve = groups[slug]
        axes.fill_between(curve["step"], curve["min"], curve["max"], color=colour, alpha=0.18, linewidth=0)
        axes.plot(curve["step"], curve["mean"], color=colour, linewidth=1.5)

    figure = panels_figure(analysis, slugs, draw)
    with style.drawing():
        for axes in figure.axes:
            if is_loss(metric) and (table["mean"] > 0).all():
                axes.set_yscale("log")
                axes.yaxis.set_minor_formatter(_few_labels())
                axes.yaxis.set_major_formatter("{x:g}")
                axes.tick_params(axis="y", which="minor", labelsize=7.5)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        figure.supxlabel("step", fontsize=9)
        figure.supylabel(readable(metric), fontsize=9)
    return figure


def curves(analysis: Analysis, metric: str) -> pd.DataFrame:
    """Return mean, min and max over seeds by variant and step, without steps that a seed lacks.

    Otherwise the mean would jump at each step at which a seed stops.
    """
    frames = analysis.frames
    runs = frames.runs
    # A diverged run would cut the curve of its variant; it is left out where another run of the variant is not.
    sound = runs.index[runs["state"] != DIVERGED]
    shown = runs.index[(runs["state"] != DIVERGED) | ~runs["variant"].isin(runs.loc[sound, "variant"])]
    rows = frames.histories[frames.histories["metric"] == metric].dropna(subset=["value"])
    rows = rows[rows["run"].isin(shown)]
    rows = rows.assign(variant=runs["variant"].reindex(rows["run"].astype(str)).to_numpy())
    grouped = rows.groupby(["variant", "step"], sort=True)["value"]
    table = grouped.agg(["mean", "min", "max", "count"]).reset_index()
    most = table.groupby("variant")["count"].transform("max")
    return table[table["count"] == most]


def _few_labels() -> LogFormatter:
    return LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5))

"""The score by source length."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.panels import most_telling, panels_figure
from headtohead.storage.metrics import readable


def buckets_figure(analysis: Analysis) -> Figure | None:
    """Draw each variant's mean over seeds per length bucket, seeds' range as a band."""
    table = bucket_scores(analysis)
    if table.empty:
        return None
    places = {bucket: x for x, bucket in enumerate(dict.fromkeys(table["bucket"]))}
    slugs = most_telling(analysis, list(dict.fromkeys(table["variant"])))
    groups = dict(tuple(table.groupby("variant", sort=False)))

    def draw(axes: Axes, slug: str, colour: str) -> None:
        rows = groups[slug]
        x = [places[bucket] for bucket in rows["bucket"]]
        axes.fill_between(x, rows["min"], rows["max"], color=colour, alpha=0.18, linewidth=0)
        axes.plot(x, rows["mean"], "o-", color=colour, linewidth=1.5, markersize=3.5)

    figure = panels_figure(analysis, slugs, draw)
    counts = table.groupby("bucket", sort=False)["n"].first()
    border = end_of_training(analysis)
    with style.drawing():
        for axes in figure.axes:
            names = [f"{bucket}\nn {int(counts[bucket])}" for bucket in places]
            axes.set_xticks(list(places.values()), names, fontsize=7.5)
            if border is not None:
                axes.axvline(border, color=style.MUTED, linewidth=1, linestyle="--")
        beyond = "; right of the line: longer than all of training" * (border is not None)
        figure.supxlabel(f"tokens of the source sentence, and test sentences of that length{beyond}", fontsize=9)
        figure.supylabel(readable(f"test/{_leaf(analysis)}"), fontsize=9)
    return figure


def end_of_training(analysis: Analysis) -> float | None:
    """Return where training ends among the places of the buckets, between two of them.

    None where no bucket lies beyond it, or one bucket holds lengths on both sides.
    """
    longest = analysis.frames.experiment.get("data", {}).get("longest_in_train")
    table = bucket_scores(analysis)
    lows = sorted(set(table["low"]))
    if longest is None or longest + 1 not in lows or longest + 1 == lows[0]:
        return None
    return lows.index(longest + 1) - 0.5


def bucket_scores(analysis: Analysis) -> pd.DataFrame:
    """Return variant, bucket, n, mean, min, max of the primary metric, short sentences first.

    Buckets are of the test split, also where the primary metric is of the validation split.
    """
    frames, leaf = analysis.frames, _leaf(analysis)
    buckets = frames.buckets
    if leaf not in buckets or buckets.empty:
        return pd.DataFrame(columns=["variant", "bucket", "n", "mean", "min", "max"])
    rows = buckets.dropna(subset=[leaf])
    rows = rows.assign(variant=frames.runs["variant"].reindex(rows["run"]).to_numpy())
    grouped = rows.groupby(["variant", "low", "bucket"], sort=True)
    table = grouped.agg(n=("n", "first"), mean=(leaf, "mean"), min=(leaf, "min"), max=(leaf, "max"))
    return table.reset_index().sort_values(["low", "variant"], kind="stable")


def _leaf(analysis: Analysis) -> str:
    """Return the primary metric without its split."""
    return analysis.metric.rsplit("/", 1)[-1]

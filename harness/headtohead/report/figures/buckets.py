"""Figure of the score by source length."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.panels import panels_figure, select_variants
from headtohead.storage.metrics import readable


def buckets_figure(analysis: Analysis) -> Figure | None:
    """Draw each variant's mean over seeds per length bucket, with the range over seeds as a band."""
    table = bucket_scores(analysis)
    if table.empty:
        return None
    positions = {bucket: x for x, bucket in enumerate(dict.fromkeys(table["bucket"]))}
    slugs = select_variants(analysis, list(dict.fromkeys(table["variant"])))
    groups = dict(tuple(table.groupby("variant", sort=False)))

    def draw(axes: Axes, slug: str, colour: str) -> None:
        rows = groups[slug]
        x = [positions[bucket] for bucket in rows["bucket"]]
        axes.fill_between(x, rows["min"], rows["max"], color=colour, alpha=0.18, linewidth=0)
        axes.plot(x, rows["mean"], "o-", color=colour, linewidth=1.5, markersize=3.5)

    figure = panels_figure(analysis, slugs, draw)
    counts = table.groupby("bucket", sort=False)["n"].first()
    boundary = end_of_training(analysis)
    with style.drawing():
        for axes in figure.axes:
            names = [f"{bucket}\nn {round(counts[bucket])}" for bucket in positions]
            axes.set_xticks(list(positions.values()), names, fontsize=7.5)
            if boundary is not None:
                axes.axvline(boundary, color=style.MUTED, linewidth=1, linestyle="--")
        longer = "; right of the line: longer than every training source" * (boundary is not None)
        number = "mean number" if analysis.frames.has_draws else "number"
        figure.supxlabel(f"source length in tokens, and {number} n of test sentences{longer}", fontsize=9)
        figure.supylabel(readable(f"test/{_leaf(analysis)}"), fontsize=9)
    return figure


def end_of_training(analysis: Analysis) -> float | None:
    """Return the x position between the buckets of training lengths and of longer sources.

    None if no bucket is longer than the training sources, a bucket contains both kinds of lengths, or each seed has
    its own training sources.
    """
    if analysis.frames.has_draws:
        return None
    longest = analysis.frames.record.data.get("longest_in_train")
    table = bucket_scores(analysis)
    starts = sorted(set(table["low"]))
    if longest is None or longest + 1 not in starts or longest + 1 == starts[0]:
        return None
    return starts.index(longest + 1) - 0.5


def bucket_scores(analysis: Analysis) -> pd.DataFrame:
    """Return variant, bucket, n, mean, min and max of the primary metric, short sentences first.

    The buckets are of the test split even if the primary metric is of the validation split.
    """
    frames, leaf = analysis.frames, _leaf(analysis)
    buckets = frames.buckets
    if leaf not in buckets or buckets.empty:
        return pd.DataFrame(columns=["variant", "bucket", "n", "mean", "min", "max"])
    rows = buckets.dropna(subset=[leaf])
    rows = rows.assign(variant=frames.runs["variant"].reindex(rows["run"]).to_numpy())
    grouped = rows.groupby(["variant", "low", "bucket"], sort=True)
    table = grouped.agg(n=("n", "mean"), mean=(leaf, "mean"), min=(leaf, "min"), max=(leaf, "max"))
    return table.reset_index().sort_values(["low", "variant"], kind="stable")


def _leaf(analysis: Analysis) -> str:
    """Return the primary metric without its split."""
    return analysis.metric.rsplit("/", 1)[-1]

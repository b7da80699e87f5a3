"""Figures of lines in panels: training curves and scores by source length, a panel per setting of the other axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.storage.metrics import is_loss, readable
from headtohead.storage.states import DIVERGED

METRICS = ("valid/loss", "train/loss")
MOST_PANELS = 8
MOST_LINES = 24
"""Maximum number of variants; with more, the best and the baseline are drawn."""


def curves_figure(analysis: Analysis) -> Figure | None:
    """Draw the validation loss over steps, or the training loss if there was no validation."""
    histories = analysis.frames.histories
    metric = next((metric for metric in METRICS if (histories["metric"] == metric).any()), None)
    if metric is None:
        return None
    table = curves(analysis, metric)
    figure = _band_figure(analysis, table, "step", "-")
    with style.drawing():
        for axes in figure.axes:
            if is_loss(metric) and (table["mean"] > 0).all():
                axes.set_yscale("log")
                axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5)))
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
    runs, histories = analysis.frames.runs, analysis.frames.histories
    # A diverged run would cut the curve of its variant; it is left out where another run of the variant is not.
    sound = runs.index[runs["state"] != DIVERGED]
    shown = runs.index[(runs["state"] != DIVERGED) | ~runs["variant"].isin(runs.loc[sound, "variant"])]
    rows = histories[histories["metric"] == metric].dropna(subset=["value"])
    rows = rows[rows["run"].isin(shown)]
    rows = rows.assign(variant=runs["variant"].reindex(rows["run"].astype(str)).to_numpy())
    table = rows.groupby(["variant", "step"], sort=True)["value"].agg(["mean", "min", "max", "count"]).reset_index()
    return table[table["count"] == table.groupby("variant")["count"].transform("max")]


def buckets_figure(analysis: Analysis) -> Figure | None:
    """Draw each variant's mean over seeds per length bucket, with the range over seeds as a band."""
    table = bucket_scores(analysis)
    if table.empty:
        return None
    positions = {bucket: x for x, bucket in enumerate(dict.fromkeys(table["bucket"]))}
    figure = _band_figure(analysis, table.assign(x=table["bucket"].map(positions)), "x", "o-")
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
        figure.supxlabel(f"source length in tokens, n: {number} of sentences{longer}", fontsize=9)
        figure.supylabel(readable(f"test/{_leaf(analysis)}"), fontsize=9)
    return figure


def end_of_training(analysis: Analysis) -> float | None:
    """Return the position between two buckets where training ends, or None if it ends within a bucket.

    None also if the longest training source is not recorded or differs by seed.
    """
    if analysis.frames.has_draws:
        return None
    longest = analysis.frames.record.data.get("longest_in_train")
    starts = sorted(set(bucket_scores(analysis)["low"]))
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
        return pd.DataFrame(columns=["variant", "low", "bucket", "n", "mean", "min", "max"])
    rows = buckets.dropna(subset=[leaf])
    rows = rows.assign(variant=frames.runs["variant"].reindex(rows["run"]).to_numpy())
    grouped = rows.groupby(["variant", "low", "bucket"], sort=True)
    table = grouped.agg(n=("n", "mean"), mean=(leaf, "mean"), min=(leaf, "min"), max=(leaf, "max"))
    return table.reset_index().sort_values(["low", "variant"], kind="stable")


def _leaf(analysis: Analysis) -> str:
    """Return the primary metric without its split."""
    return analysis.metric.rsplit("/", 1)[-1]


def _band_figure(analysis: Analysis, table: pd.DataFrame, x: str, line: str) -> Figure:
    """Draw mean, min and max of each variant against the column ``x`` in panels with a common legend.

    With more variants than colours, or more than ``MOST_PANELS`` settings, each variant has a separate panel in
    which the baseline is grey.
    """
    palette = Palette(analysis.frames)
    groups = {str(slug): rows for slug, rows in table.groupby("variant", sort=False)}
    slugs = _selected(analysis, groups)

    def draw(axes: Axes, slug: str, colour: str) -> None:
        rows = groups[slug]
        axes.fill_between(rows[x], rows["min"], rows["max"], color=colour, alpha=0.18, linewidth=0)
        axes.plot(rows[x], rows["mean"], line, color=colour, linewidth=1.5, markersize=3.5)

    names = list(dict.fromkeys(palette.panel(slug) for slug in slugs))
    if not palette.is_coloured or len(names) > MOST_PANELS:
        return _facets(analysis, slugs, draw)
    columns = min(len(names), 4)
    with style.drawing():
        figure, grid = _grid(len(names), columns, 2.5)
        for axes, name in zip(grid, names, strict=False):
            axes.set_title(_wrapped(name, columns))
            for slug in slugs:
                if palette.panel(slug) == name:
                    draw(axes, slug, palette.colour(slug))
        colours = palette.legend(slugs)
        style.line_legend(
            figure,
            colours,
            ncols=min(len(colours), 5 if palette.colour_axis else 3),
            title=palette.colour_axis,
            alignment="left",
            title_fontsize=8.5,
        )
    return figure


def _facets(analysis: Analysis, slugs: Sequence[str], draw: Callable[[Axes, str, str], None]) -> Figure:
    """Draw each variant in a separate panel, with the baseline for comparison."""
    baseline = analysis.frames.baseline
    with style.drawing():
        figure, grid = _grid(len(slugs), 6, 1.5)
        titles = style.shortened([analysis.frames.by_slug[slug].title for slug in slugs], 26)
        for axes, slug, title in zip(grid, slugs, titles, strict=False):
            axes.set_title(title, fontsize=7.5)
            axes.tick_params(labelsize=7.5)
            if baseline in slugs:
                draw(axes, baseline, style.MUTED)
            if slug != baseline:
                draw(axes, slug, style.PALETTE[0])
        style.line_legend(figure, {"baseline": style.MUTED, "variant of the panel": style.PALETTE[0]}, ncols=2)
    return figure


def _grid(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of ``height`` inches, and its visible panels."""
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(style.WIDTH, 0.7 + height * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel())
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid[:count]


def _wrapped(name: str, columns: int) -> str:
    """Return the title on two lines if it would overlap the next panel's title."""
    parts = name.split(" · ")
    if columns < 3 or len(name) < 24 or len(parts) < 2:
        return name
    half = (len(parts) + 1) // 2
    return " · ".join(parts[:half]) + " ·\n" + " · ".join(parts[half:])


def _selected(analysis: Analysis, slugs: Collection[str]) -> list[str]:
    """Return at most `MOST_LINES` of the variants, the best and the baseline, in the order of the design."""
    ordered = [slug for slug in analysis.order if slug in slugs]
    best = ordered[:MOST_LINES]
    if analysis.frames.baseline in ordered and analysis.frames.baseline not in best:
        best[-1] = analysis.frames.baseline
    return [slug for slug in analysis.frames.by_slug if slug in best]

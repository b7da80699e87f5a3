"""Figures of lines in panels: training curves and scores by source length, a panel per setting of the other axes."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.config.labels import text
from headtohead.figures import style
from headtohead.storage.metrics import is_loss, readable, stored, with_unit
from headtohead.storage.palette import Palette
from headtohead.storage.states import DIVERGED

METRICS = ("valid/loss", "train/loss")
MAX_PANELS = 8
MAX_LINES = 24
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
                axes.yaxis.set_minor_formatter(
                    LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5))
                )
                axes.yaxis.set_major_formatter("{x:g}")
                axes.tick_params(axis="y", which="minor", labelsize=9)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        figure.supxlabel("step", fontsize=9)
        figure.supylabel(with_unit(metric), fontsize=9)
    return figure


def sweep_figure(analysis: Analysis) -> Figure | None:
    """Draw the score of every variant against the swept number, a panel per size, the best setting as a star.

    The bars are one standard deviation over seeds on both sides. None without a sweep.
    """
    found = analysis.sweep
    if found is None:
        return None
    panels, names = (
        found.rows["panel"].unique(),
        list(dict.fromkeys(found.rows["variant"]))[:MAX_LINES],
    )
    values = sorted(found.rows["x"].unique().tolist())
    with style.drawing():
        height = 2.6 * math.ceil(len(panels) / 2) + 0.25 * len(names)
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        grid = figure.subplots(
            math.ceil(len(panels) / 2), min(len(panels), 2), sharey=True, squeeze=False
        ).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            for number, name in enumerate(names):
                rows = found.rows[(found.rows["variant"] == name) & (found.rows["panel"] == panel)]
                options = {"color": style.PALETTE[number % len(style.PALETTE)], "linewidth": 1.5}
                line = ("-", "--", ":")[number // len(style.PALETTE) % 3]
                axes.errorbar(
                    rows["x"],
                    rows["mean"],
                    rows["sd"].fillna(0),
                    linestyle=line,
                    label=name,
                    **options,
                )
                star = rows[rows["best"]].head(1)
                axes.plot(star["x"], star["mean"], "*", markersize=11, **options)
            axes.set_title(panel)
            if values[0] > 0:
                axes.set_xscale("log")
            axes.set_xticks(values, [text(value) for value in values])
            axes.minorticks_off()
        handles, labels = grid[0].get_legend_handles_labels()
        labels, columns = style.legend_names(labels, most=2)
        figure.legend(handles, labels, loc="outside upper left", ncols=columns)
        figure.supxlabel(found.field, fontsize=9)
        figure.supylabel(readable(found.metric), fontsize=9)
    return figure


def curves(analysis: Analysis, metric: str) -> pd.DataFrame:
    """Return mean, min and max over seeds by variant and step, without steps that a seed lacks.

    Otherwise the mean would jump at each step at which a seed stops.
    """
    runs, histories = analysis.frames.runs, analysis.frames.histories
    # A diverged run would cut the curve of its variant; it is left out where another run of the variant is not.
    sound = runs.index[runs["state"] != DIVERGED]
    shown = runs.index[
        (runs["state"] != DIVERGED) | ~runs["variant"].isin(runs.loc[sound, "variant"])
    ]
    rows = histories[histories["metric"] == metric].dropna(subset=["value"])
    rows = rows[rows["run"].isin(shown)]
    rows = rows.assign(variant=runs["variant"].reindex(rows["run"].astype(str)).to_numpy())
    table = (
        rows.groupby(["variant", "step"], sort=True)["value"]
        .agg(["mean", "min", "max", "count"])
        .reset_index()
    )
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
            names = [f"{bucket}\nn {int(counts[bucket])}" for bucket in positions]
            axes.set_xticks(list(positions.values()), names)
            if boundary is not None:
                axes.axvline(boundary, color=style.MUTED, linewidth=1, linestyle="--")
        longer = "; right of the line: longer than every training source" * (boundary is not None)
        figure.supxlabel(f"source length in tokens, n: number of sentences{longer}", fontsize=9)
        figure.supylabel(readable(f"test/{bucket_metric(analysis)}"), fontsize=9)
    return figure


def end_of_training(analysis: Analysis) -> float | None:
    """Return the position between two buckets where training ends, or None if it ends within a bucket.

    None also if the longest training source is not recorded.
    """
    longest = analysis.frames.record.data.get("longest_in_train")
    starts = sorted(set(bucket_scores(analysis)["low"]))
    if longest is None or longest + 1 not in starts or longest + 1 == starts[0]:
        return None
    return starts.index(longest + 1) - 0.5


def bucket_scores(analysis: Analysis) -> pd.DataFrame:
    """Return variant, bucket, n, mean, min and max of the primary metric, short sentences first; empty for one bucket.

    The buckets are of the test split even if the primary metric is of the validation split.
    """
    frames, name = analysis.frames, bucket_metric(analysis)
    buckets = frames.buckets
    has_sources = analysis.frames.record.data.get("longest", {}).get("source", 1)
    if (
        name not in buckets
        or not has_sources
        or buckets.dropna(subset=[name])["bucket"].nunique() < 2
    ):
        return pd.DataFrame(columns=["variant", "low", "bucket", "n", "mean", "min", "max"])
    rows = buckets.dropna(subset=[name])
    rows = rows.assign(variant=frames.runs["variant"].reindex(rows["run"]).to_numpy())
    grouped = rows.groupby(["variant", "low", "bucket"], sort=True)
    table = grouped.agg(n=("n", "first"), mean=(name, "mean"), min=(name, "min"), max=(name, "max"))
    return table.reset_index().sort_values(["low", "variant"], kind="stable")


def bucket_metric(analysis: Analysis) -> str:
    """Return the primary metric without its split, or the stored metric from which it is computed."""
    return stored(analysis.metric).rsplit("/", 1)[-1]


def _band_figure(analysis: Analysis, table: pd.DataFrame, x: str, line: str) -> Figure:
    """Draw mean, min and max of each variant against the column ``x`` in panels with a common legend.

    With more variants than colours, or more than ``MAX_PANELS`` settings, each variant has a separate panel in
    which the baseline is grey.
    """
    palette, baseline = Palette(analysis.frames.record), analysis.frames.baseline
    groups = {str(slug): rows for slug, rows in table.groupby("variant", sort=False)}
    best = analysis.leading(MAX_LINES, groups)
    slugs = [slug for slug in analysis.frames.by_slug if slug in best]
    names = list(dict.fromkeys(palette.panel(slug) for slug in slugs))
    if palette.is_coloured and len(names) <= MAX_PANELS:
        columns, height, size = min(len(names), 2), 2.3, None
        width = 28 if columns > 1 else 60  # longer titles overlap those of the next panel
        panels = [
            (
                textwrap.fill(name, width, break_long_words=False, break_on_hyphens=False),
                {slug: palette.colour(slug) for slug in slugs if palette.panel(slug) == name},
            )
            for name in names
        ]
        legend = palette.legend(slugs)
        labels, ncols = style.legend_names(
            [*legend], most=min(len(legend), 3) if palette.colour_axis else 1
        )
        options: dict[str, Any] = {"ncols": ncols}
        options |= {"title": palette.colour_axis, "alignment": "left", "title_fontsize": 9}
    else:
        columns, height, size = 3, 1.5, 9
        titles = style.shortened([analysis.frames.by_slug[slug].title for slug in slugs], 22)
        beside = {baseline: style.MUTED} if baseline in slugs else {}
        panels = [
            (title, {slug: style.PALETTE[0]} | beside if slug != baseline else beside)
            for slug, title in zip(slugs, titles, strict=True)
        ]
        legend, options = (
            {"baseline": style.MUTED, "variant of the panel": style.PALETTE[0]},
            {"ncols": 2},
        )
        labels = [*legend]
    rows = math.ceil(len(panels) / columns)
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 0.7 + height * rows), layout="constrained")
        grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel())
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, lines) in zip(grid, panels, strict=False):
            axes.set_title(title, fontsize=size)
            axes.tick_params(labelsize=9)
            for slug, colour in reversed(lines.items()):
                found = groups[slug]
                axes.fill_between(
                    found[x], found["min"], found["max"], color=colour, alpha=0.18, linewidth=0
                )
                axes.plot(
                    found[x], found["mean"], line, color=colour, linewidth=1.5, markersize=3.5
                )
        handles = [Line2D([], [], color=colour, linewidth=2.4) for colour in legend.values()]
        figure.legend(handles, labels, loc="outside upper left", **options)
    return figure

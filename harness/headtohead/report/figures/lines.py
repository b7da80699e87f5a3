"""Figures of lines in panels: training curves and scores by source length, a panel per setting of the other axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from headtohead.analysis.study import Analysis
from headtohead.analysis.sweep import Sweep
from headtohead.config.labels import text
from headtohead.config.phrases import axis_name
from headtohead.figures import style
from headtohead.storage.metrics import is_loss, readable, stored, with_unit
from headtohead.storage.palette import Palette
from headtohead.storage.states import DIVERGED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("valid/loss", "train/loss")
MAX_PANELS = 8
MAX_LINES = 24
"""Maximum number of variants; with more, the best and the baseline are drawn."""


def curves_figure(analysis: Analysis) -> Figure | None:
    """Draw the validation loss over steps, or the training loss if there is no validation loss; None without both.

    Losses that are all positive have a logarithmic axis.
    """
    tables = {metric: curves(analysis, metric) for metric in METRICS}
    drawable = [metric for metric in METRICS if len(tables[metric])]
    if not drawable:
        return None
    from matplotlib.ticker import MaxNLocator

    metric = drawable[0]
    table = tables[metric]
    figure = _band_figure(analysis, table, "step", "-")
    is_positive = bool((table["mean"] > 0).all())
    with style.drawing():
        for axes in figure.axes:
            if is_loss(metric) and is_positive:
                _use_log_scale(axes)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        figure.supxlabel("step", fontsize=9)
        figure.supylabel(with_unit(metric), fontsize=9)
    return figure


def _use_log_scale(axes: Axes) -> None:
    """Use a logarithmic vertical axis; between powers of ten, it has numbers if at most one power of ten is in view."""
    from matplotlib.ticker import LogFormatter

    most_powers = 1.5  # with more powers of ten in view, minor ticks have no numbers
    all_decades = 0.5  # above this range in powers of ten, only some minor ticks have numbers
    minor = LogFormatter(labelOnlyBase=False, minor_thresholds=(most_powers, all_decades))
    axes.set_yscale("log")  # sets formatters, too, so it comes first
    axes.yaxis.set_minor_formatter(minor)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="y", which="minor", labelsize=9)


def sweep_figure(analysis: Analysis) -> Figure | None:
    """Draw the score of each variant against the swept number, a panel per size, the chosen value as a star.

    The bars are one standard deviation over seeds on both sides; without one, they have no length. Variants after the
    first `MAX_LINES` are left out. The axis is logarithmic if all values are positive. None without a sweep.
    """
    sweep = analysis.sweep
    if sweep is None:
        return None
    from matplotlib.figure import Figure

    panels = sweep.rows["panel"].unique()
    lines = _sweep_lines(analysis, sweep)
    names = list(lines)[:MAX_LINES]
    values = sorted(sweep.rows["x"].unique().tolist())
    value_labels = [text(value) for value in values]
    num_rows = math.ceil(len(panels) / 2)
    num_columns = min(len(panels), 2)
    with style.drawing():
        height = 2.6 * num_rows + 0.25 * len(names)
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        grid = figure.subplots(num_rows, num_columns, sharey=True, squeeze=False)
        all_axes = grid.ravel()
        for axes in all_axes[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(all_axes, panels, strict=False):
            for name in names:
                rows = _of_line(sweep.rows, name, panel)
                _draw_sweep(axes, rows, _of_line(sweep.chosen, name, panel), lines[name])
            axes.set_title(panel)
            if values[0] > 0:
                axes.set_xscale("log")
            axes.set_xticks(values, value_labels)
            axes.minorticks_off()
        handles: dict[str, Any] = {}  # by name; a variant may be in some panels only
        for axes in all_axes[: len(panels)]:
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(name, handle)
        labels, columns = style.legend_names(list(handles), most=2)
        figure.legend(handles.values(), labels, loc="outside upper left", ncols=columns)
        figure.supxlabel(axis_name(sweep.field.split(".")), fontsize=9)
        figure.supylabel(readable(sweep.metric), fontsize=9)
    return figure


def _of_line(rows: pd.DataFrame, variant: str, panel: str) -> pd.DataFrame:
    """Return the rows of a variant in a panel."""
    return rows[(rows["variant"] == variant) & (rows["panel"] == panel)]


class SweepLine(NamedTuple):
    """The colour and the style of a line of a sweep."""

    colour: str
    style: str


def _sweep_lines(analysis: Analysis, sweep: Sweep) -> dict[str, SweepLine]:
    """Return the colour and style of each line of a sweep by name.

    Lines of tuned variants are best first and have the colours of the other figures, if variants have colours. Other
    lines are in the order of the rows, with colours by number, such as those of an axis of learning rates, which stand
    for several variants each.
    """
    names = list(dict.fromkeys(sweep.rows["variant"]))
    palette = Palette(analysis.frames.record)
    lines = {}
    if palette.is_coloured and sweep.is_tuned:
        for slug in analysis.order:
            title = analysis.frames.by_slug[slug].title
            if title in names:
                lines[title] = SweepLine(palette.colour(slug), "-")
    styles = ("-", "--", ":")
    for number, name in enumerate(names):
        colour = style.PALETTE[number % len(style.PALETTE)]
        line_style = styles[number // len(style.PALETTE) % len(styles)]
        lines.setdefault(name, SweepLine(colour, line_style))
    return lines


def _draw_sweep(axes: Axes, rows: pd.DataFrame, chosen: pd.DataFrame, line: SweepLine) -> None:
    """Draw the scores of a variant as a line with bars, and its first chosen value as a star; nothing without rows.

    Args:
        axes: Where to draw.
        rows: The rows of the variant in `Sweep.rows`.
        chosen: Its rows in `Sweep.chosen`; none for no star.
        line: Colour and style of the line.
    """
    if rows.empty:
        return
    name = rows["variant"].iloc[0]
    axes.errorbar(
        rows["x"],
        rows["mean"],
        rows["sd"].fillna(0),
        linestyle=line.style,
        label=name,
        color=line.colour,
        linewidth=1.5,
    )
    star = chosen.head(1)
    axes.plot(star["x"], star["mean"], "*", markersize=11, color=line.colour, linewidth=1.5)


def curves(analysis: Analysis, metric: str) -> pd.DataFrame:
    """Return the columns variant, step, mean, min, max and count over seeds of a metric in the training histories.

    Of each variant, only the steps with the most values are kept: the mean would jump at each step at which a seed
    stops. Diverged runs of a variant with other runs are left out, since they would cut its curve. A variant without a
    value has no row.
    """
    runs, histories = analysis.frames.runs, analysis.frames.histories
    is_sound = runs["state"] != DIVERGED
    has_sound_run = runs["variant"].isin(runs.loc[is_sound, "variant"])
    shown_runs = runs.index[is_sound | ~has_sound_run]
    rows = histories[histories["metric"] == metric].dropna(subset=["value"])
    rows = rows[rows["run"].isin(shown_runs)]
    variants = runs["variant"].reindex(rows["run"].astype(str))
    rows = rows.assign(variant=variants.to_numpy())
    values = rows.groupby(["variant", "step"], sort=True)["value"]
    table = values.agg(["mean", "min", "max", "count"]).reset_index()
    num_seeds = table.groupby("variant")["count"].transform("max")
    return table[table["count"] == num_seeds]


LENGTHS = "source length in tokens, n: number of sentences"
LENGTHS_WITH_LINE = (
    "source length in tokens, n: number of sentences; right of the line: longer than every training "
    "source"
)


def buckets_figure(analysis: Analysis) -> Figure | None:
    """Draw the mean over seeds per bucket of source lengths, with the range over seeds as a band.

    Only the best `MAX_LINES` variants are drawn, the baseline among them. A dashed line separates the sources that are
    longer than every training source, if that boundary is between two buckets. None with fewer than two buckets, or
    without scores by length.
    """
    table = bucket_scores(analysis)
    if table.empty:
        return None
    buckets = list(dict.fromkeys(table["bucket"]))
    positions = {bucket: position for position, bucket in enumerate(buckets)}
    table = table.assign(x=table["bucket"].map(positions))
    figure = _band_figure(analysis, table, "x", "o-")
    counts = table.groupby("bucket", sort=False)["n"].first()
    names = [f"{bucket}\nn {int(counts[bucket])}" for bucket in buckets]
    boundary = end_of_training(analysis)
    label = LENGTHS if boundary is None else LENGTHS_WITH_LINE
    metric = f"test/{bucket_metric(analysis)}"
    with style.drawing():
        for axes in figure.axes:
            axes.set_xticks(range(len(buckets)), names)
            if boundary is not None:
                axes.axvline(boundary, color=style.MUTED, linewidth=1, linestyle="--")
        figure.supxlabel(label, fontsize=9)
        figure.supylabel(readable(metric), fontsize=9)
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
    """Return variant, low, bucket, n, mean, min and max over seeds of the primary metric by length, short ones first.

    The buckets are those of the test split, even if the primary metric is of the validation split. The table is empty
    for data without sources, for a metric without scores by length, and with fewer than two buckets.
    """
    frames, name = analysis.frames, bucket_metric(analysis)
    empty = pd.DataFrame(columns=["variant", "low", "bucket", "n", "mean", "min", "max"])
    has_sources = frames.record.data.get("longest", {}).get("source", 1)
    if name not in frames.buckets or not has_sources:
        return empty
    rows = frames.buckets.dropna(subset=[name])
    if rows["bucket"].nunique() < 2:
        return empty
    variants = frames.runs["variant"].reindex(rows["run"])
    rows = rows.assign(variant=variants.to_numpy())
    grouped = rows.groupby(["variant", "low", "bucket"], sort=True)
    table = grouped.agg(n=("n", "first"), mean=(name, "mean"), min=(name, "min"), max=(name, "max"))
    return table.reset_index().sort_values(["low", "variant"], kind="stable")


def bucket_metric(analysis: Analysis) -> str:
    """Return the primary metric without its split, or the stored metric from which it is computed."""
    return stored(analysis.metric).rsplit("/", 1)[-1]


class BandLayout(NamedTuple):
    """How lines with bands are laid out: titled panels of variants with their colours, and the legend of all panels."""

    panels: list[tuple[str, dict[str, str]]]
    legend: dict[str, str]
    labels: list[str]
    legend_options: dict[str, Any]
    columns: int
    height: float
    title_size: float | None


def _band_figure(analysis: Analysis, table: pd.DataFrame, x: str, line: str) -> Figure:
    """Draw mean, min and max of each variant in panels with a common legend.

    Only the best `MAX_LINES` variants of the table are drawn; the baseline is one of them if it is in the table, and
    every panel has it in grey. Each setting of the axes without colours has a panel. With more variants than colours,
    or more than ``MAX_PANELS`` settings, each variant has a separate panel. The first colour of a panel is drawn last,
    on top.

    Args:
        analysis: The study.
        table: Columns variant, mean, min, max and ``x``; at least one row. Its variants are those of the study.
        x: The column of the horizontal axis.
        line: The format of the lines, as in `Axes.plot`.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    palette = Palette(analysis.frames.record)
    groups = {str(slug): rows for slug, rows in table.groupby("variant", sort=False)}
    best = analysis.leading(MAX_LINES, groups)
    slugs = [slug for slug in analysis.order if slug in best]
    in_design = [slug for slug in analysis.frames.by_slug if slug in best]
    settings = list(dict.fromkeys(map(palette.panel, in_design)))
    if palette.is_coloured and len(settings) <= MAX_PANELS:
        layout = _panels_of_settings(palette, slugs, settings)
    else:
        layout = _panels_of_variants(analysis, slugs)
    num_panels = len(layout.panels)
    num_rows = math.ceil(num_panels / layout.columns)
    with style.drawing():
        legend_rows = math.ceil(len(layout.labels) / layout.legend_options["ncols"])
        height = 0.7 + layout.height * num_rows + style.LEGEND_ROW_HEIGHT * legend_rows
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        grid = figure.subplots(num_rows, layout.columns, sharex=True, sharey=True, squeeze=False)
        all_axes = grid.ravel()
        for axes in all_axes[num_panels:]:
            axes.set_visible(False)
        for axes, (title, colours) in zip(all_axes, layout.panels, strict=False):
            axes.set_title(title, fontsize=layout.title_size)
            axes.tick_params(labelsize=9)
            for slug, colour in reversed(colours.items()):
                _draw_band(axes, groups[slug], x, line, colour)
        handles = []
        for colour in layout.legend.values():
            handle = Line2D([], [], color=colour, linewidth=2.4)
            handles.append(handle)
        options = layout.legend_options
        figure.legend(handles, layout.labels, loc="outside upper left", **options)
    return figure


def _draw_band(axes: Axes, rows: pd.DataFrame, x: str, line: str, colour: str) -> None:
    """Draw the mean as a line and the range over seeds as a band."""
    axes.fill_between(rows[x], rows["min"], rows["max"], color=colour, alpha=0.18, linewidth=0)
    axes.plot(rows[x], rows["mean"], line, color=colour, linewidth=1.5, markersize=3.5)


def _panels_of_settings(
    palette: Palette, slugs: Sequence[str], settings: Sequence[str]
) -> BandLayout:
    """Return a panel for each setting of the axes without colours, with its variants in their colours.

    The baseline, if it is drawn, is in every panel.

    Args:
        palette: The colours.
        slugs: The drawn variants; at least one.
        settings: The distinct values of ``palette.panel`` of these variants, which are the titles of the panels.
    """
    columns = min(len(settings), 2)
    width = 28 if columns > 1 else 60  # longer titles overlap those of the next panel
    panels = []
    for setting in settings:
        title = textwrap.fill(setting, width, break_long_words=False, break_on_hyphens=False)
        baseline = palette.baseline
        members = [slug for slug in slugs if palette.panel(slug) == setting and slug != baseline]
        colours = {slug: palette.colour(slug) for slug in members}
        if baseline in slugs:
            colours[baseline] = palette.colour(baseline)
        panels.append((title, colours))
    legend = palette.legend(slugs)
    labels, legend_columns = style.legend_names([*legend], most=min(len(legend), 3))
    options = {
        "ncols": legend_columns,
        "title": palette.colour_axis and palette.axis_name(palette.colour_axis),
        "alignment": "left",
        "title_fontsize": 9,
    }
    return BandLayout(panels, legend, labels, options, columns, height=2.3, title_size=None)


def _panels_of_variants(analysis: Analysis, slugs: Sequence[str]) -> BandLayout:
    """Return a panel for each variant, in which the baseline is grey, if it is one of the variants.

    Raises:
        KeyError: If the study has no variant of a slug.
    """
    baseline = analysis.frames.baseline
    titles = [analysis.frames.by_slug[slug].title for slug in slugs]
    panels = []
    for slug, title in zip(slugs, style.shortened_names(titles, 22), strict=True):
        colours = {}
        if slug != baseline:
            colours[slug] = style.PALETTE[0]
        if baseline in slugs:
            colours[baseline] = style.MUTED
        panels.append((title, colours))
    legend = {"baseline": style.MUTED, "variant of the panel": style.PALETTE[0]}
    options = {"ncols": 2}
    return BandLayout(panels, legend, [*legend], options, columns=3, height=1.5, title_size=9)

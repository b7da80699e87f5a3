import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.ticker import MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.figures.colours import themed
from headtohead.figures.rows import Row, magnified_range, row_figure
from headtohead.figures.style import MUTED, PALETTE
from headtohead.report.chart import _numbers
from headtohead.report.content import Report
from headtohead.report.figures.interaction import interaction_figure
from headtohead.report.figures.lines import (
    bucket_scores,
    buckets_figure,
    curves,
    curves_figure,
    end_of_training,
)
from headtohead.report.figures.rows import MAX_ROWS, forest_figure, forest_rows, strip_figure
from headtohead.report.sections import opening_section
from headtohead.storage.frames import load_frames
from headtohead.storage.palette import Palette
from made import case_table

FIGURES = [strip_figure, interaction_figure, forest_figure, curves_figure, buckets_figure]


@pytest.fixture(scope="module")
def analysis(quickstart):
    return Analysis(load_frames(quickstart))


@pytest.fixture(
    scope="module",
    params=[True, pytest.param(False, marks=pytest.mark.slow)],
    ids="partial={}".format,
)
def with_holes(messy, request):
    """A study with missing runs, with and without ranks of its incomplete variants."""
    return Analysis(load_frames(messy), allow_partial=request.param)


@case_table("draw", FIGURES, default=1, ids=lambda draw: draw.__name__)
def test_a_figure_has_the_same_bytes_each_time_and_reaches_out_for_nothing(analysis, draw):
    first, second = (style.to_svg(draw(analysis), "salt", title="Scores") for _ in range(2))
    assert first == second
    ET.fromstring(first)
    outside = [url for url in re.findall(r'(?:href|src)="([^"]+)"', first) if url[0] != "#"]
    assert outside == []
    assert "url(http" not in first


def test_there_are_no_curves_while_every_run_with_a_loss_diverged_and_others_have_not_begun(
    analysed,
):
    states = {("rotary", 1): "DIVERGED", ("rotary", 2): "PLANNED"}
    study = analysed(axes={"positional": ["rotary"]}, seeds=(1, 2), states=states)
    assert len(study.frames.histories)
    assert curves_figure(study) is None


@case_table("draw", FIGURES, default=1, ids=lambda draw: draw.__name__)
def test_a_figure_is_drawn_for_a_study_with_holes(with_holes, draw):
    figure = draw(with_holes)
    if figure is not None:
        ET.fromstring(style.to_svg(figure, "salt", title="Scores"))
    assert figure is not None or draw is interaction_figure or not with_holes.allow_partial


def test_every_seed_of_every_variant_is_a_point_that_names_itself(analysis):
    strip = style.to_svg(strip_figure(analysis), "salt", title="Scores")
    titles = re.findall(r"<title>(.*?)</title>", strip)
    for slug, variant in analysis.frames.by_slug.items():
        for seed, score in analysis.frames.scores(slug, analysis.metric).items():
            assert f"{variant.title}, seed {seed}: {score:.3f}" in titles
    assert "best possible without positions in the encoder, 0.530" in strip
    assert "var(--c1, #0072b2)" in themed(strip)


def test_a_value_of_the_coloured_axis_has_one_colour_everywhere(analysis):
    palette = Palette(analysis.frames.record)
    assert palette.colour_axis == "positional"
    colours = {}
    for slug, variant in analysis.frames.by_slug.items():
        if slug != analysis.frames.baseline:
            colours.setdefault(variant.axes["positional"], set()).add(palette.colour(slug))
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == 3
    assert palette.colour(analysis.frames.baseline) == MUTED


def test_curves_leave_out_steps_that_some_seed_did_not_reach(analysed):
    states = {("sinusoidal", 2): "FAILED"}
    table = curves(
        analysed(axes={"positional": ["sinusoidal"]}, seeds=(1, 2), states=states), "valid/loss"
    )
    assert table["step"].max() == 300
    assert (table["count"] == 2).all()


def test_bucket_scores_are_means_over_seeds_short_sentences_first(analysis):
    table = bucket_scores(analysis)
    buckets = analysis.frames.buckets
    runs = analysis.frames.rows("rotary-split-heads-causal").index
    row = table[(table["variant"] == "rotary-split-heads-causal") & (table["bucket"] == "6-8")]
    chosen = buckets[buckets["run"].isin(runs) & (buckets["bucket"] == "6-8")]["exact_match"]
    assert row["mean"].item() == pytest.approx(sum(chosen) / 6)
    assert list(dict.fromkeys(table["bucket"])) == ["1-5", "6-8", "9-11", "12-14"]


def test_a_large_study_draws_the_best_and_the_baseline(analysed):
    analysis = analysed(
        axes={"train.lr": [round(0.001 * k, 3) for k in range(1, MAX_ROWS + 3)]},
        seeds=(1, 2),
        one_at_a_time=True,
        score=lambda axes, seed: 0.3 + axes["train.lr"] + 0.001 * seed,
    )
    rows = analysis.leading(MAX_ROWS)
    assert len(rows) == MAX_ROWS
    assert float(rows[0]) == pytest.approx(0.001 * (MAX_ROWS + 2))
    assert analysis.frames.baseline in rows


@pytest.mark.parametrize("axis", ["train.lr", "data"])
def test_a_large_study_draws_the_variants_with_values_where_the_first_have_none(analysed, axis):
    values = (
        [f"set-{k:02}" for k in range(30)]
        if axis == "data"
        else [round(0.001 * k, 3) for k in range(1, 31)]
    )
    states = {
        (str(value), seed): "PLANNED" if number < 26 else "RUNNING"
        for number, value in enumerate(values)
        for seed in (1, 2)
    }
    analysis = analysed(axes={axis: values}, seeds=(1, 2), one_at_a_time=True, states=states)
    shown = list(analysis.frames.by_slug.values())[26:]
    panels = [panel for panel in curves_figure(analysis).axes if panel.get_visible()]
    assert [panel.get_title("left") for panel in panels] == [variant.title for variant in shown]


LONG = [f"copy(split=length, longest=10, test_lengths=1,15, size={size}000)" for size in range(5)]


@pytest.mark.parametrize(
    "axes", [{"positional": ["rotary", "alibi"], "attention": LONG}, {"attention": LONG}], ids=len
)
def test_legends_of_long_names_are_inside_their_figure(analysed, axes):
    """Matplotlib warns if a legend leaves no room for its axes, and warnings are errors."""
    analysis = analysed(axes=axes, seeds=(1, 2), one_at_a_time=len(axes) == 1)
    drawn = [
        figure
        for draw in (interaction_figure, curves_figure, buckets_figure)
        if (figure := draw(analysis))
    ]
    assert len(drawn) == 1 + len(axes)
    for figure in drawn:
        style.to_svg(figure, "salt", title="Scores")
        legends = [axes.get_legend() for axes in figure.axes] + figure.legends
        extents = [legend.get_window_extent() for legend in legends if legend]
        assert extents
        assert all(
            figure.bbox.x0 <= extent.x0 and extent.x1 <= figure.bbox.x1 for extent in extents
        )


def test_intervals_of_an_interaction_end_at_the_bound_of_the_metric(analysed):
    analysis = analysed(axes=AXES, seeds=(1, 2), score=lambda axes, seed: 0.01 * seed)
    (panel,) = interaction_figure(analysis).axes
    lows = [low for bars in panel.containers for ((_, low), _) in bars.lines[2][0].get_segments()]
    assert lows == [0.0] * 4


AXES = {"positional": ["sinusoidal", "rotary"], "attention": ["split-heads", "single"]}
CUBE = {
    "positional": ["sinusoidal", "rotary"],
    "attention": ["split-heads", "single"],
    "match": ["params", "none"],
}


def test_an_interaction_is_drawn_of_fully_crossed_axes_only(analysed):
    frames = analysed(
        axes=CUBE,
        score=lambda axes, seed: 0.5 + 0.01 * seed + 0.2 * (axes["attention"] != "split-heads"),
    ).frames

    def part(is_kept):
        kept = [variant for variant in frames.by_slug.values() if is_kept(variant.axes)]
        return Analysis(
            replace(frames, record=frames.record.model_copy(update={"variants": tuple(kept)}))
        )

    # Averages over different settings are not comparable.
    assert (
        interaction_figure(
            part(lambda axes: (axes["attention"], axes["match"]) != ("single", "none"))
        )
        is None
    )
    # In a half fraction, each pair of axes is complete, but the third axis is the product of both.
    half = part(lambda axes: sum(axes[axis] == values[1] for axis, values in CUBE.items()) % 2 == 0)
    assert (len(half.frames.by_slug), interaction_figure(half)) == (4, None)
    assert interaction_figure(part(lambda axes: True)) is not None
    (panel,) = interaction_figure(part(lambda axes: axes["match"] == "params")).axes
    points = {bars.get_label(): bars.lines[0].get_xydata()[:, 1] for bars in panel.containers}
    assert list(points.values()) == [pytest.approx([0.535, 0.735])] * 2 or points == {
        "split-heads": pytest.approx([0.535, 0.535]),
        "single": pytest.approx([0.735, 0.735]),
    }


@case_table(("tokens", "place"), [(8, 1.5), (7, None), (5, 0.5), (14, None)], default=1)
def test_a_line_stands_where_training_ends_if_it_ends_between_two_buckets(analysis, tokens, place):
    """Buckets are 1-5, 6-8, 9-11 and 12-14."""
    record = analysis.frames.record
    data = {**record.data, "longest_in_train": tokens}
    trained = Analysis(replace(analysis.frames, record=record.model_copy(update={"data": data})))
    assert end_of_training(trained) == place
    label = buckets_figure(trained).get_supxlabel()
    assert ("longer than every training source" in label) == (place is not None)


def test_contrasts_are_sorted_and_small_differences_are_magnified_beside_a_large_one(analysis):
    means = [row.mean for row in forest_rows(analysis)]
    assert means == sorted(means, key=abs, reverse=True)
    low, high = magnified_range(forest_rows(analysis))
    figure = forest_figure(analysis)
    full, magnified = figure.axes
    assert full.get_xlim()[0] < means[0] < low
    assert magnified.get_xlim() == (low, high)
    assert all(low < mean < high for mean in means[1:])
    assert "The second panel zooms in" in opening_section(Report(analysis)).caption
    assert magnified_range([Row("a", "", 0.1), Row("b", "", 0.3)]) is None
    axis = row_figure([Row("a", "", 0.0, -1e-17, 0.0), Row("b", "", 0.0)], "score")[1][0].get_xlim()
    assert axis == pytest.approx((-0.05, 0.05))  # equal values up to rounding


@pytest.mark.slow
def test_more_variants_than_colours_have_a_panel_each(analysed):
    analysis = analysed(axes={"attention": list("abcdefghij")}, seeds=(1, 2), one_at_a_time=True)
    palette = Palette(analysis.frames.record)
    assert not palette.is_coloured
    assert {palette.colour(slug) for slug in analysis.frames.by_slug} == {MUTED, PALETTE[0]}
    for draw in (curves_figure, buckets_figure):
        panels = [axes for axes in draw(analysis).axes if axes.get_visible()]
        assert [axes.get_title("left") for axes in panels] == [*analysis.order]
        lines = {axes.get_title("left"): len(axes.lines) for axes in panels}
        assert lines == {"a": 1} | dict.fromkeys("bcdefghij", 2)  # the baseline and the variant


def test_the_numbers_below_a_panel_are_those_of_matplotlib():
    draws = np.random.default_rng(3)
    for _ in range(1000):
        low, high = np.array([-1.0, 1.0]) * draws.random(2) * 10 ** draws.uniform(-6, 4)
        room = 0.06 * (high - low)
        for most in (2, 4):
            ticks = MaxNLocator(most).tick_values(low, high)
            shown = [tick for tick in ticks if low + room <= tick <= high - room]
            assert _numbers(low, high, most) == pytest.approx(shown, abs=1e-9 * (high - low))

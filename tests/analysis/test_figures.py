import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.figures.rows import magnified_range
from headtohead.report.content import Report
from headtohead.report.figures.cost import cost_figure
from headtohead.report.figures.interaction import interaction_figure
from headtohead.report.figures.lines import bucket_scores, buckets_figure, curves, curves_figure, end_of_training
from headtohead.report.figures.palette import Palette
from headtohead.report.figures.rows import MOST_ROWS, drawn_contrasts, forest_figure, forest_rows, strip_figure
from headtohead.report.sections import opening_section
from headtohead.storage.frames import load_frames
from made import case_table

FIGURES = [strip_figure, interaction_figure, forest_figure, curves_figure, buckets_figure, cost_figure]


@pytest.fixture(scope="module")
def analysis(quickstart):
    return Analysis(load_frames(quickstart))


@pytest.fixture(scope="module")
def strip(analysis):
    return style.to_svg(strip_figure(analysis), "salt")


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.slow)], ids="partial={}".format)
def with_holes(messy, request):
    """A study with missing runs, with and without ranks of its incomplete variants."""
    return Analysis(load_frames(messy), allow_partial=request.param)


@case_table("draw", FIGURES, default=2, ids=lambda draw: draw.__name__)
def test_a_figure_has_the_same_bytes_each_time_and_reaches_out_for_nothing(analysis, draw):
    first, second = (style.to_svg(draw(analysis), "salt") for _ in range(2))
    assert first == second
    ET.fromstring(first)
    outside = [url for url in re.findall(r'(?:href|src)="([^"]+)"', first) if url[0] != "#"]
    assert outside == []
    assert "url(http" not in first


@case_table("draw", FIGURES, default=2, ids=lambda draw: draw.__name__)
def test_a_figure_is_drawn_for_a_study_with_holes(with_holes, draw):
    figure = draw(with_holes)
    if figure is not None:
        ET.fromstring(style.to_svg(figure, "salt"))
    assert figure is not None or not with_holes.allow_partial


def test_every_seed_of_every_variant_is_a_point_that_names_itself(analysis, strip):
    titles = re.findall(r"<title>(.*?)</title>", strip)
    for slug, variant in analysis.frames.by_slug.items():
        for seed, score in analysis.frames.scores(slug, analysis.metric).items():
            assert f"{variant.title}, seed {seed}: {score:.3f}" in titles


def test_the_upper_bound_is_drawn_where_the_data_states_one(strip):
    assert "bag-of-words upper bound 0.530" in strip


def test_a_value_of_the_coloured_axis_has_one_colour_everywhere(analysis):
    palette = Palette(analysis.frames)
    assert palette.colour_axis == "positional"
    colours = {}
    for slug, variant in analysis.frames.by_slug.items():
        colours.setdefault(variant.axes["positional"], set()).add(palette.colour(slug))
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == 3


def test_curves_leave_out_steps_that_some_seed_did_not_reach(made, tmp_path):
    study = made.Study(
        axes={"positional": ["sinusoidal"]}, seeds=(1, 2), maps=False, states={("sinusoidal", 2): "FAILED"}
    )
    table = curves(Analysis(load_frames(made.write_study(tmp_path, study))), "valid/loss")
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


@pytest.mark.slow
def test_a_large_study_draws_the_best_and_the_baseline(made, tmp_path):
    study = made.Study(
        axes={"train.lr": [round(0.001 * k, 3) for k in range(1, 61)]},
        seeds=(1, 2),
        maps=False,
        one_at_a_time=True,
        score=lambda axes, seed: 0.3 + axes["train.lr"] + 0.001 * seed,
    )
    analysis = Analysis(load_frames(made.write_study(tmp_path, study)))
    rows = analysis.leading(MOST_ROWS)
    assert len(rows) == MOST_ROWS
    assert rows[0] == "0.06"
    assert analysis.frames.baseline in rows
    for draw in (strip_figure, forest_figure, curves_figure, buckets_figure, cost_figure):
        ET.fromstring(style.to_svg(draw(analysis), "salt"))


def panel_title(panel):
    return panel.get_legend().get_title().get_text()


def drawn_lines(figure, title):
    """Return the panel of this title, and the points of each of its lines by its name."""
    (panel,) = (panel_axes for panel_axes in figure.axes if panel_title(panel_axes).startswith(title))
    points = {bars.get_label(): bars.lines[0].get_xydata() for bars in panel.containers}
    return panel, points


def test_an_interaction_averages_over_settings_that_all_its_points_have(made, tmp_path):
    """As tatoeba-heads: independent heads have no variant without matched parameters."""
    axes = {
        "positional": ["sinusoidal", "rotary"],
        "attention": ["split-heads", "independent-heads"],
        "match": ["parameters", "none"],
    }
    study = made.Study(
        axes=axes,
        maps=False,
        excluded=[
            {"axes": {"positional": value, "attention": "independent-heads", "match": "none"}, "reason": "no"}
            for value in axes["positional"]
        ],
        score=lambda axes, seed: 0.5 + 0.01 * seed + 0.2 * (axes["attention"] != "split-heads"),
    )
    figure = interaction_figure(Analysis(load_frames(made.write_study(tmp_path, study))))
    panel, lines = drawn_lines(figure, "positional, by match")
    assert panel_title(panel) == "positional, by match\nat attention split-heads"
    for points in lines.values():
        assert points[:, 1] == pytest.approx([0.535, 0.535])
    panel, lines = drawn_lines(figure, "match, by attention")
    assert panel_title(panel) == "match, by attention"
    assert lines["parameters"][:, 1] == pytest.approx([0.535, 0.735])
    assert lines["none"][:, 1] == pytest.approx([0.535, math.nan], nan_ok=True)  # the line ends at the missing cell


def test_an_interaction_without_a_common_setting_draws_the_largest_table(made, tmp_path):
    axes = {
        "positional": ["sinusoidal", "rotary"],
        "attention": ["split-heads", "single"],
        "masking": ["padding-causal", "causal"],
    }
    kept = {
        "padding-causal": {("sinusoidal", "split-heads"), ("rotary", "split-heads"), ("sinusoidal", "single")},
        "causal": {("rotary", "single"), ("sinusoidal", "split-heads")},
    }
    excluded = [
        {"axes": {"positional": value, "attention": other, "masking": mask}, "reason": "no"}
        for mask, pairs in kept.items()
        for value in axes["positional"]
        for other in axes["attention"]
        if (value, other) not in pairs
    ]
    study = made.Study(
        axes=axes, excluded=excluded, maps=False, score=lambda axes, seed: 0.5 + 0.3 * (axes["masking"] == "causal")
    )
    figure = interaction_figure(Analysis(load_frames(made.write_study(tmp_path, study))))
    panel, lines = drawn_lines(figure, "positional, by attention")
    assert panel_title(panel).endswith("at masking padding-causal")
    scores = {name: points[:, 1].tolist() for name, points in lines.items()}
    assert scores["sinusoidal"] == [0.5, 0.5]
    assert scores["rotary"] == pytest.approx([0.5, math.nan], nan_ok=True)


def test_colours_become_variables_of_the_page_and_keep_their_value(analysis):
    themed = style.themed(style.to_svg(strip_figure(analysis), "salt"))
    assert "var(--c1, #0072b2)" in themed
    assert "var(--ink, #1f2328)" in themed


def trained_up_to(analysis, tokens):
    record = analysis.frames.record
    data = {**record.data, "longest_in_train": tokens}
    frames = replace(analysis.frames, record=record.model_copy(update={"data": data}))
    return Analysis(frames)


@pytest.mark.parametrize(
    ("tokens", "place"),
    [
        (8, 1.5),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((7, None), (5, 0.5), (11, 2.5), (14, None), (20, None))
        ),
    ],
)
def test_a_line_stands_where_training_ends_if_it_ends_between_two_buckets(analysis, tokens, place):
    """Buckets are 1-5, 6-8, 9-11 and 12-14."""
    trained = trained_up_to(analysis, tokens)
    assert end_of_training(trained) == place
    svg = style.to_svg(buckets_figure(trained), "salt")
    assert ("longer than every training source" in svg) == (place is not None)


def test_contrasts_are_sorted_and_small_differences_are_magnified_beside_a_large_one(analysis):
    contrasts = drawn_contrasts(analysis)
    means = [contrast.paired.mean for contrast in contrasts]
    assert means == sorted(means, reverse=True)
    low, high = magnified_range(forest_rows(analysis))
    figure = forest_figure(analysis)
    full, magnified = figure.axes
    assert full.get_xlim()[0] < means[-1] < low
    assert magnified.get_xlim() == (low, high)
    assert all(low < mean < high for mean in means[:-1])
    assert "Triangles" in opening_section(Report(analysis)).caption


def test_differences_of_similar_size_are_not_magnified(made, tmp_path):
    def score(axes, seed):
        return 0.5 + 0.02 * ["a", "b", "c"].index(axes["attention"]) + 0.002 * math.sin(seed * len(str(axes)))

    study = made.Study(axes={"attention": ["a", "b", "c"]}, one_at_a_time=True, maps=False, score=score)
    analysis = Analysis(load_frames(made.write_study(tmp_path, study)))
    assert magnified_range(forest_rows(analysis)) is None
    assert len(forest_figure(analysis).axes) == 1
    assert "Triangles" not in opening_section(Report(analysis)).caption


@pytest.mark.slow
def test_more_variants_than_colours_have_a_panel_each(made, tmp_path):
    study = made.Study(axes={"attention": list("abcdefghi")}, seeds=(1, 2), maps=False, one_at_a_time=True)
    analysis = Analysis(load_frames(made.write_study(tmp_path, study)))
    palette = Palette(analysis.frames)
    assert not palette.is_coloured
    assert len({palette.colour(slug) for slug in analysis.frames.by_slug}) == 1
    for draw in (curves_figure, buckets_figure):
        panels = [axes for axes in draw(analysis).axes if axes.get_visible()]
        assert [axes.get_title("left") for axes in panels] == list("abcdefghi")
        assert [len(axes.lines) for axes in panels] == [1] + [2] * 8  # the baseline, and each variant beside it

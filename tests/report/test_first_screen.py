"""The page of a report: its order, the figure below the answer, colours, captions, and labels of tokens."""

import json
import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from headtohead.analysis.study import Analysis
from headtohead.figures.style import MUTED
from headtohead.report.attention import Gallery, VariantMaps, attention_figure, caption, payload
from headtohead.report.chart import contrast_chart
from headtohead.report.content import Report
from headtohead.report.differences import shown_contrasts
from headtohead.report.figures.lines import curves_figure, sweep_figure
from headtohead.report.figures.rows import strip_figure
from headtohead.report.sections import report_sections
from headtohead.report.writing import write_report
from headtohead.storage.attention_maps import ProbeMaps
from headtohead.storage.examples import read_examples, write_examples
from headtohead.storage.frames import load_frames
from headtohead.storage.palette import Palette
from made.fake_study import Study, edit, record_checksums, write_study

CROSSED = {
    "positional": ["sinusoidal", "rotary", "none"],
    "attention": ["split-heads", "independent-heads"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    study = Study(axes=CROSSED, seeds=(1, 2, 3), margin=0.03, interactions=True)
    return write_study(tmp_path_factory.mktemp("runs"), study)


@pytest.fixture(scope="module")
def report(folder):
    return Report(Analysis(load_frames(folder)))


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    return write_report(folder, tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def html(written):
    return written.html.read_text(encoding="utf-8")


def outside_details(html: str) -> str:
    """Return the page without its folded sections."""
    return re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL)


def test_question_answer_figure_setup_tables_and_details_follow_each_other(html):
    marks = [
        "<h1>",
        'class="answer"',
        '<figure class="chart">',
        "Set-up: ",
        "<h2 id=",
        "Details</h2>",
    ]
    places = [html.index(mark) for mark in marks]
    assert places == sorted(places)
    assert html.index("<details") > places[-1]


def test_every_table_of_contrasts_has_an_adjusted_p_and_the_number_of_seeds(report):
    tables = report_sections(report).tables
    assert [section.title for section in tables] == [
        "Each variant against the baseline",
        "Interactions",
    ]
    for section in tables:
        assert section.columns == ["contrast", "difference", "verdict", "adjusted p", "seeds"]


def test_the_interval_of_a_difference_is_printed_once_outside_the_details(html, report):
    without_answer = re.sub(r'<p class="answer">.*?</p>', "", html, flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]+>", " ", outside_details(without_answer)))
    families = report.analysis.families
    intervals = set()
    for family in (families.factors, families.variants, families.interactions):
        for contrast in family.contrasts:
            interval = contrast.judgement.interval
            ends = (f"{interval.low:+.3f}", f"{interval.high:+.3f}")
            intervals.add(" to ".join(ends).replace("-", "−"))
    assert len(intervals) > 7
    assert {interval: text.count(interval) for interval in intervals} == dict.fromkeys(intervals, 1)


def test_contrasts_of_the_figure_are_in_no_table_below(report):
    below = [row[1] for section in report_sections(report).tables for row in section.rows]
    (group,) = contrast_chart(report.analysis).groups
    shown = [row.cells["difference"] for row in group.rows]
    assert len(shown) == 3
    assert len(below) == 5 + 2
    assert set(below).isdisjoint(shown)


def test_differences_that_two_families_share_have_one_row(analysed):
    report = Report(analysed(axes={"positional": CROSSED["positional"]}, seeds=(1, 2, 3)))
    assert len(report.analysis.families.variants.contrasts) == 2
    assert report_sections(report).tables == []
    declared = [{"name": "c", "variant": "rotary", "against": "sinusoidal"}]
    axes = {"positional": CROSSED["positional"]}
    report = Report(analysed(name="declared", axes=axes, seeds=(1, 2, 3), declared=declared))
    (section,) = report_sections(report).tables
    assert section.title == "One change at a time"
    assert [row[0] for row in section.rows] == ["without positions"]


def position(text: str) -> float:
    return float(text.rstrip("%"))


def test_the_band_ends_at_the_margin(report):
    (group,) = contrast_chart(report.analysis).groups
    assert len(group.axes) == 2
    for axis in group.axes:
        first, last = axis.ticks[0], axis.ticks[-1]
        values = [
            0.0 if tick.text == "0" else float(tick.text.replace("−", "-"))
            for tick in (first, last)
        ]
        scale = (position(last.x) - position(first.x)) / (values[1] - values[0])
        left, width = map(position, axis.band)
        assert width / scale == pytest.approx(2 * 0.03, abs=0.3 / scale)
        assert values[0] + (left - position(first.x)) / scale == pytest.approx(
            -0.03, abs=0.3 / scale
        )


def test_the_band_is_drawn_on_the_page_behind_every_row(html, report):
    rows = len(shown_contrasts(report.analysis))
    assert html.count('<rect class="band"') == 2 * rows
    assert "within ±0.030, the margin" in html


def test_without_a_margin_there_is_no_band(analysed):
    analysis = analysed(axes={"positional": ["sinusoidal", "rotary"]}, seeds=(1, 2, 3))
    (group,) = contrast_chart(analysis).groups
    assert [axis.band for axis in group.axes] == [None]
    assert group.margin == ""


def test_a_far_contrast_has_its_points_in_the_first_panel_and_an_arrow_in_the_second(report):
    (group,) = contrast_chart(report.analysis).groups
    (far,) = [row for row in group.rows if row.marks[1].arrow]
    full, magnified = far.marks
    assert far.cells["contrast"].startswith("without positions")
    assert (len(full.points), full.arrow, bool(full.interval)) == (3, "", True)
    assert (len(magnified.points), magnified.arrow, magnified.interval) == (0, "left", ())
    for row in group.rows:
        if row is not far:
            places = [position(point.x) for point in row.marks[1].points]
            assert max(places) - min(places) > 2


def test_points_intervals_and_means_stand_at_their_values(report):
    chart = contrast_chart(report.analysis)
    rows = chart.groups[0].rows
    for row, contrast in zip(rows, shown_contrasts(report.analysis), strict=True):
        marks = row.marks[0]
        axis = marks.axis
        interval = contrast.judgement.interval

        def place(value, axis=axis):
            return 100 * (value - axis.low) / (axis.high - axis.low)

        assert position(marks.mean) == pytest.approx(place(contrast.paired.mean), abs=0.06)
        assert [*map(position, marks.interval)] == pytest.approx(
            [place(interval.low), place(interval.high)], abs=0.06
        )
        expected = [place(value) for value in contrast.by_seed.values()]
        assert [position(point.x) for point in marks.points] == pytest.approx(expected, abs=0.06)


def test_contrasts_of_two_metrics_have_axes_of_their_own(analysed):
    sides = {"variant": "rotary", "against": "sinusoidal"}
    declared = [sides | {"name": "score"}, sides | {"name": "loss", "metric": "valid/loss"}]
    axes = {"positional": ["sinusoidal", "rotary"]}
    analysis = analysed(axes=axes, seeds=(1, 2, 3), declared=declared)
    groups = contrast_chart(analysis).groups
    assert {group.metric: group.sides for group in groups} == {
        "exact match": ("worse", "better"),
        "validation loss (nats per token)": ("better", "worse"),
    }


def test_contrasts_of_the_same_name_have_marks_of_their_own(analysed):
    declared = [
        {"name": "position", "variant": variant, "against": "sinusoidal"}
        for variant in ("rotary", "none")
    ]
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    analysis = analysed(axes=axes, seeds=(1, 2, 3), declared=declared)
    (group,) = contrast_chart(analysis).groups
    first, second = (row.marks[0].mean for row in group.rows)
    assert first != second


def test_a_variant_has_one_colour_and_one_order_in_tables_and_figures(html, report):
    chips = re.findall(r'<td[^>]*><span class="chip" style="color: ([^"]+)"></span>([^<]+)<', html)
    colours: dict[str, set[str]] = {}
    for colour, title in chips:
        colours.setdefault(title, set()).add(colour)
    assert {title: {colour} for title, colour in report.colours.items()} == colours
    baseline = report.title(report.analysis.frames.baseline)
    assert report.colours.pop(baseline) == f"var(--muted, {MUTED})"
    titles = [report.title(slug) for slug in report.analysis.order]
    tables = re.findall(r"<th[^>]*>variant</th>.*?</table>", html, re.DOTALL)
    assert len(tables) > 3
    for table in tables:
        shown = re.findall(r'class="chip"[^>]*></span>([^<]+)<', table)
        assert shown == [title for title in titles if title in shown]
    drawn = [text.get_text() for text in strip_figure(report.analysis).axes[0].texts]
    assert [text for text in drawn if text in titles] == titles


def test_every_panel_of_curves_has_the_baseline_in_grey(report):
    figure = curves_figure(report.analysis)
    palette = Palette(report.record)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == 2
    for axes in panels:
        colours = [line.get_color() for line in axes.lines]
        assert colours.count(MUTED) == 1
        assert len(colours) == len(set(colours)) > 3 - (axes is panels[0])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert set(legend) == {"baseline", *palette.names}


def test_every_figure_has_a_caption_and_a_name(html, report, written):
    figures = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert len(figures) > 4
    for figure in figures:
        assert re.search(r"<figcaption>\S.{20}", figure)
    drawn = [path.stem for path in (written.folder / "figures").glob("*.svg")]
    sections = report_sections(report, drawn)
    captions = {
        section.figure: section.caption
        for section in (sections.opening, *sections.details)
        if section.figure in drawn
    }
    assert captions.keys() == set(drawn)
    assert all(captions.values())
    images = re.findall(r'<svg [^>]*role="img" aria-labelledby="([\w-]+) ([\w-]+)"', html)
    assert len(images) == len(drawn) - 1
    for title, description in images:
        assert re.search(rf'<title id="{title}">\S', html)
        assert re.search(rf'<desc id="{description}">\S.{{20}}', html)
    for file in (written.folder / "figures").glob("*.svg"):
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        title, description, *_ = root
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        assert description.text == captions[file.stem]


def test_an_odd_number_of_panels_of_a_sweep_leaves_no_empty_axes(analysed):
    rates = [0.001, 0.003, 0.01]
    analysis = analysed(
        axes={"train.lr": rates, "size": ["width=8", "width=16", "width=32"]},
        seeds=(1, 2),
        score=lambda axes, seed: 0.5 + axes["train.lr"] + 0.001 * seed,
    )
    axes = sweep_figure(analysis).axes
    assert len(axes) == 4
    assert [own.get_visible() for own in axes] == [True, True, True, False]


def test_a_report_on_a_validation_metric_does_not_call_its_examples_test_examples(
    tmp_path, no_figures
):
    axes = {"positional": ["sinusoidal", "rotary"]}
    study = Study(axes=axes, seeds=(1, 2, 3, 4), maps=False, primary="valid/loss", margin=0.01)
    folder = write_study(tmp_path / "runs", study)
    for results in folder.glob("*-s*/results.json"):
        run = results.parent
        metrics = json.loads(results.read_text())["metrics"]
        edit(results, metrics=metrics | {"valid/loss": metrics["test/loss"]})
        split = read_examples(run)["test"]
        write_examples(run / "examples.safetensors", {"valid": split, "test": split})
        record_checksums(run)
    with no_figures():
        paths = write_report(folder, tmp_path / "reports")
    (contrast, *_) = json.loads(paths.json.read_text())["contrasts"]
    assert [source["name"] for source in contrast["sources"]] == ["training seeds", "examples"]
    for path in (paths.html, paths.markdown, paths.json):
        text = path.read_text(encoding="utf-8")
        others = text.replace("Test examples on which the variants differ", "")
        assert "test example" not in others.lower()


def gallery_of(weights: np.ndarray, tokens: list[str], *, is_text: bool) -> Gallery:
    """Return a gallery of two variants, the second with half the weights."""
    variants = []
    for title, factor in (("a", 1.0), ("b", 0.5)):
        probe = {
            "source": "",
            "target": "the end",
            "target_from": "file",
            "source_tokens": [],
            "target_tokens": tokens,
            "heads": {"decoder": []},
        }
        maps = ProbeMaps(0, probe, None)
        maps.__dict__["weights"] = {"decoder": factor * weights}
        variants.append(VariantMaps(title, 1, [maps]))
    return Gallery(tuple(variants), 0, is_text)


def test_tokens_of_a_text_are_readable_and_maps_share_one_scale():
    weights = np.full((1, 1, 3, 3), 0.1)
    weights[0, 0, 2, 1] = 0.4
    gallery = gallery_of(weights, ["the", "Ġend", "Ċ"], is_text=True)
    (decoder,) = payload(gallery)["variants"][0]["probes"]
    assert decoder["target"] == ["the", "␣end", "⏎"]
    assert caption(gallery).endswith("Full colour is a weight of 0.40, in every map.")
    images = [axes.images[0] for axes in attention_figure(gallery).axes]
    assert [image.get_clim() for image in images] == [(-0.4, 0.4)] * 2
    labels = [label.get_text() for label in attention_figure(gallery).axes[0].get_yticklabels()]
    assert labels == ["the", "␣end", "⏎"]
    words = gallery_of(weights, ["Ġ", "é", "<eos>"], is_text=False)
    assert payload(words)["variants"][0]["probes"][0]["target"] == ["Ġ", "é", "<eos>"]

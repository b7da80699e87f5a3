"""A swept number has a figure and a sentence with the best setting of each variant."""

import math

import pytest

from headtohead.analysis.study import Analysis
from headtohead.report.content import Report
from headtohead.report.figures.lines import sweep_figure
from headtohead.report.writing import write_files
from headtohead.storage.frames import load_frames

RATES = [0.001, 0.003, 0.01]
BEST = {"sinusoidal": 0.003, "rotary": 0.01}


def score(axes, seed):
    """Return a score that falls with the distance from the best rate; rotary varies much at its lowest rate."""
    steps = abs(RATES.index(axes["train.lr"]) - RATES.index(BEST[axes["positional"]]))
    is_near = axes == {"positional": "sinusoidal", "train.lr": 0.001}
    noise = 0.3 if axes == {"positional": "rotary", "train.lr": 0.001} else 0.005
    return 0.6 - (0.001 if is_near else 0.1 * steps) + noise * math.sin(7 * seed)


@pytest.fixture
def analysis(analysed):
    return analysed(axes={"positional": [*BEST], "train.lr": RATES}, score=score)


def test_the_sentence_names_the_best_rates(analysis, tmp_path):
    expected = "Best train.lr: sinusoidal 0.003; rotary 0.01."
    assert analysis.sweep.sentence == expected
    text = write_files(Report(analysis), tmp_path / "reports").markdown.read_text(encoding="utf-8")
    assert (
        text.index("## Sweep of train.lr") < text.index("figures/sweep.svg") < text.index(expected)
    )


def test_rates_with_the_same_mean_share_the_best_and_the_figure_has_a_single_star(analysed):
    analysis = analysed(
        axes={"train.lr": [0.001, 0.003, 10000.0]},
        score=lambda a, seed: 1.0 - (a["train.lr"] < 0.002),
    )
    assert (
        analysis.sweep.sentence
        == "Best train.lr: all variants 0.003 and 10000, which share the best mean."
    )
    (axes,) = sweep_figure(analysis).axes
    assert [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "*"] == [
        [0.003]
    ]


def test_the_figure_has_a_curve_per_variant_with_a_star_at_its_best_rate(analysis):
    (axes,) = sweep_figure(analysis).axes
    assert axes.get_xscale() == "log"
    stars = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "*"]
    assert stars == [[rate] for rate in BEST.values()]


def test_each_size_has_a_panel_and_a_best_rate(analysed):
    best = {"width=8": 0.01, "width=16": 0.001}
    analysis = analysed(
        axes={"train.lr": RATES, "size": [*best]},
        score=lambda a, seed: (
            0.6 - 0.1 * abs(math.log(a["train.lr"] / best[a["size"]])) + 0.001 * math.sin(seed)
        ),
    )
    assert [axes.get_title(loc="left") for axes in sweep_figure(analysis).axes] == [
        "width=8",
        "width=16",
    ]
    assert "width=8 0.01; all variants · width=16 0.001." in analysis.sweep.sentence


def test_a_study_without_a_swept_number_has_no_figure(quickstart):
    assert sweep_figure(Analysis(load_frames(quickstart))) is None

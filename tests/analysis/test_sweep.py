"""A swept number has a figure and a sentence with the best setting of each variant."""

import math
import shutil

import pytest

from headtohead.analysis.study import Analysis
from headtohead.report.content import Report
from headtohead.report.figures.lines import sweep_figure
from headtohead.report.writing import write_files
from headtohead.storage.frames import load_frames
from made.fake_study import edit, tuning_trial

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
    expected = "Best learning rate: sinusoidal 0.003; rotary 0.01."
    assert analysis.sweep.sentence == expected
    text = write_files(Report(analysis), tmp_path / "reports").markdown.read_text(encoding="utf-8")
    assert (
        text.index("### Sweep of train.lr") < text.index("figures/sweep.svg") < text.index(expected)
    )


def test_rates_with_the_same_mean_share_the_best_and_the_figure_has_a_single_star(analysed):
    analysis = analysed(
        axes={"train.lr": [0.001, 0.003, 10000.0]},
        score=lambda a, seed: 1.0 - (a["train.lr"] < 0.002),
    )
    assert (
        analysis.sweep.sentence
        == "Best learning rate: all variants 0.003 and 10000, which share the best mean."
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


def test_a_rate_between_those_of_the_sweep_has_a_star_on_its_parabola(quickstart, tmp_path):
    folder = tmp_path / "runs" / quickstart.name
    shutil.copytree(quickstart, folder)
    rates = (0.001, 0.002, 0.004, 0.008)
    tried = [tuning_trial(rate, [1 + math.log(rate / 0.003) ** 2] * 2) for rate in rates]
    curve = {
        "centre": 0.003,
        "offset": 1.0,
        "slope": 0.0,
        "curvature": 1.0,
        "lack_of_fit_p": 0.5,
        "residual_sd": 0.1,
        "degrees": 4,
    }
    between = {
        "chosen": {"train.lr": 0.003},
        "rule": "curve",
        "curve": curve,
        "at_the_edge": [],
        "tried": tried,
    }
    of_means = between | {"chosen": {"train.lr": 0.002}, "rule": "more seeds", "reason": "r"}
    first, second, *_ = load_frames(folder).by_slug
    tuning = {
        "experiment": "quickstart-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001, 1002],
        "variants": {first: between, second: of_means},
    }
    edit(folder, tuning=tuning)
    analysis = Analysis(load_frames(folder))
    assert analysis.sweep.sentence.startswith("Chosen learning rate: ")
    assert "0.003; " in analysis.sweep.sentence
    (axes,) = sweep_figure(analysis).axes
    stars = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "*"]
    assert stars == [[[0.003, 1.0]], [[0.002, 1 + math.log(0.002 / 0.003) ** 2]]]

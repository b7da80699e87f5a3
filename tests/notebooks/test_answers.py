"""Answers in plain words equal differences and intervals computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy import stats

from headtohead.analysis.study import Analysis
from headtohead.storage.frames import load_frames
from headtohead_notebooks.page import EXPERIMENTS
from headtohead_notebooks.page.answers import Answer, answer

SEEDS = (1, 2, 3, 4)
HEADS = {"attention": ["split-heads", "independent-heads"], "model.heads": [2, 4], "match": ["none", "parameters"]}


def noise(axes: Mapping[str, Any], seed: int) -> float:
    return 0.05 * math.sin(7 * seed + sum(map(ord, "".join(map(str, axes.values())))))


def heads_score(axes: Mapping[str, Any], seed: int) -> float:
    better = 0.2 * (axes["attention"] == "independent-heads") * (axes["match"] == "none")
    return 0.5 + better + noise(axes, seed)


def answered(made: ModuleType, folder: Path, name: str, **study: Any) -> Answer:
    written = made.write_study(folder, made.Study(name=name, seeds=SEEDS, maps=False, **study))
    experiment = next(experiment for experiment in EXPERIMENTS if experiment.name == name)
    return answer(experiment, Analysis(load_frames(written), allow_partial=True))


def by_hand(differences: list[float]) -> str:
    n = len(differences)
    mean = sum(differences) / n
    sd = math.sqrt(sum((difference - mean) ** 2 for difference in differences) / (n - 1))
    half = float(stats.t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    shown = [f"{number:+.3f}".replace("-", "−") for number in (mean, mean - half, mean + half)]
    return f"{shown[0]} (95 % interval {shown[1]} to {shown[2]})"


def test_heads_are_compared_at_equal_width_and_at_equal_parameters(made: ModuleType, tmp_path: Path) -> None:
    found = answered(made, tmp_path, "heads-split-or-independent", axes=HEADS, score=heads_score)
    width, parameters = found.lines
    settings = {}
    for line, match in ((width, "none"), (parameters, "parameters")):
        settings[match] = []
        for heads in (2, 4):
            sides = [
                {"attention": style, "model.heads": heads, "match": match}
                for style in ("independent-heads", "split-heads")
            ]
            settings[match].append([heads_score(sides[0], seed) - heads_score(sides[1], seed) for seed in SEEDS])
        averaged = [sum(over_heads) / 2 for over_heads in zip(*settings[match], strict=True)]
        assert line.number == by_hand(averaged)
    assert (width.is_significant, parameters.is_significant) == (True, False)
    # At equal parameters one number of heads differs significantly, the average does not.
    p_values = [stats.ttest_1samp(differences, 0).pvalue for differences in settings["parameters"]]
    assert 2 * min(p_values) <= 0.05
    ends = sorted(sum(differences) / len(differences) for differences in settings["parameters"])
    low, high = (f"{end:+.3f}".replace("-", "−") for end in ends)
    cost = ", with 1.41 times the parameters"
    assert found.sentence == (
        f"Independent heads instead of split heads, at equal width: exact match {width.number}"
        f"{cost}; independent heads instead of split heads, at equal parameters: inconclusive on "
        f"average, exact match {parameters.number}, {low} to {high} in single settings{cost}."
    )


def test_sides_that_are_the_same_by_construction_are_marked(made: ModuleType, tmp_path: Path) -> None:
    axes = {
        "masking.encoder": ["padding", "none"],
        "masking.cross": ["padding", "none"],
        "masking.decoder": ["padding-causal", "causal", "padding"],
    }
    found = answered(
        made,
        tmp_path,
        "masks-what-they-protect",
        axes=axes,
        one_at_a_time=True,
        equal_to={"padding-padding-causal": "padding-padding-padding-causal"},
        score=lambda axes, seed: 0.5 * (axes["masking.decoder"] != "padding") + noise(axes, seed) + 0.1,
    )
    lines = {line.description: line for line in found.lines}
    assert lines["removing the padding mask of the decoder"].number == ("same by construction")
    assert lines["removing both of these padding masks"].number == "not part of these runs"
    future = lines["removing the causal mask (generated translations)"]
    assert future.is_significant
    assert found.sentence.startswith(f"Removing the causal mask (generated translations): exact match {future.number}")


def test_the_difference_between_notebooks_and_its_largest_changes_are_named(
    between: ModuleType, tmp_path: Path, cache: Path
) -> None:
    names = ("model.norm", "model.activation", "train.lr", "model.bias")

    def score(applied: frozenset[str], seed: int) -> float:
        wobble = 0.002 * math.sin(11 * seed + sum(map(ord, "".join(sorted(applied)))))
        return 0.2 + 0.4 * ("model.norm" in applied) + 0.1 * ("train.lr" in applied) + wobble

    folder = between.write_between(tmp_path, between.BetweenStudy(names, score, seeds=SEEDS), cache)
    found = answer(EXPERIMENTS[0], Analysis(load_frames(folder)))
    assert found.sentence.startswith("From start to end: validation token accuracy +0.5")
    assert "model.norm added to start: validation token accuracy +0.4" in found.sentence
    assert len(found.lines) == 2 * len(names)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda value: value.name)
def test_every_comparison_names_variants_of_the_design(experiment: Any) -> None:
    """Every value of a comparison is an axis value of the experiment."""
    from headtohead.config.loading import load_text
    from headtohead.planning.design import expand
    from headtohead.plugins.registry import current
    from headtohead_notebooks.page.answers import axes_key
    from headtohead_notebooks.page.editions import experiment_text

    loaded = load_text(experiment_text(experiment.name), Path(f"{experiment.name}.yaml"))
    axes = [variant.axes for variant in expand(loaded, current()).variants]
    known = {axes_key(variant) for variant in axes}
    for compared in experiment.comparisons:
        pairs = [
            variant
            for variant in axes
            if all(str(variant.get(name)) == str(value) for name, value in compared["left"].items())
            and axes_key({**variant, **compared["right"]}) in known
        ]
        assert pairs, compared["description"]

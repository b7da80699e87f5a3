"""Contrasts as weighted sums: all that follows from the weights, against naive sums and the oracle of the tests."""

import math

import numpy as np
import pytest

from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from made.block_oracle import expected_test

METRIC = "test/exact_match"
SEEDS = range(1, 7)
VARIANTS = ("a", "b", "c", "d", "e")


def side(variant: str, metric: str = METRIC) -> Side:
    return Side(variant, metric)


def contrast(*settings: dict[str, float], name: str = "c") -> Contrast:
    weighted = [{side(slug): weight for slug, weight in setting.items()} for setting in settings]
    return Contrast(name, "declared", tuple(weighted))


@pytest.fixture
def scores() -> dict[Side, dict[int, float]]:
    random = np.random.default_rng(5)
    shared = random.normal(0, 0.02, size=len(SEEDS))
    found = {}
    for number, slug in enumerate(VARIANTS):
        values = 0.5 + 0.01 * number + shared + random.normal(0, 0.01, size=len(SEEDS))
        found[side(slug)] = dict(zip(SEEDS, values.tolist(), strict=True))
    return found


KINDS = {
    "difference": contrast({"a": 1, "b": -1}),
    "interaction": contrast({"a": 1, "b": -1, "c": -1, "d": 1}),
    "average": contrast({"a": 1, "b": -1}, {"c": 1, "d": -1}),
    "averaged interaction": contrast({"a": 1, "b": -1, "c": -1, "d": 1}, {"b": 1, "e": -1}),
    "mean against one": contrast({"a": 0.5, "b": 0.5, "e": -1}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_every_kind_is_that_of_its_weights(
    kind: str, scores: dict[Side, dict[int, float]]
) -> None:
    tested = KINDS[kind]
    table = ScoreTable(scores, (tuple(scores),))
    (estimate,) = estimate_family([tested], table)
    weights: dict[str, float] = {}
    for setting in tested.settings:
        for weighted, weight in setting.items():
            share = weight / len(tested.settings)
            weights[weighted.variant] = weights.get(weighted.variant, 0.0) + share
    for seed in SEEDS:
        naive = sum(weight * scores[side(slug)][seed] for slug, weight in weights.items())
        assert estimate.by_seed[seed] == pytest.approx(naive, abs=1e-12)
    by_slug = {slug: [*scores[side(slug)].values()] for slug in VARIANTS}
    expected = expected_test(by_slug, weights)
    difference = estimate.difference
    assert (difference.mean, difference.error, difference.degrees, difference.p) == pytest.approx(
        expected, rel=1e-9
    )
    assert tested.squared_weight == pytest.approx(sum(weight**2 for weight in weights.values()))
    assert len(estimate.settings) == (len(tested.settings) if len(tested.settings) > 1 else 0)


def test_contrasts_with_exchanged_sides_share_a_key_and_have_opposite_signs() -> None:
    one, exchanged = contrast({"a": 1, "b": -1}), contrast({"b": 1, "a": -1})
    assert one.key == exchanged.key
    assert one.sign == -exchanged.sign
    assert one.key != contrast({"a": 1, "c": -1}).key
    assert one.key != one.with_sides(lambda other: other._replace(metric="test/loss")).key


def test_an_interaction_is_the_same_difference_in_either_order_of_its_axes() -> None:
    by_second = contrast({"both": 1, "second": -1}, {"neither": 1, "first": -1})
    by_first = contrast({"both": 1, "first": -1}, {"neither": 1, "second": -1})
    assert by_second.key == by_first.key


def test_weights_of_equal_variants_cancel_and_leave_no_setting() -> None:
    equal = {"b": "a", "d": "c"}
    interaction = contrast({"a": 1, "b": -1, "c": -1, "d": 1}, {"a": 1, "e": -1})
    trained = interaction.of_trained(lambda slug: equal.get(slug, slug))
    assert trained.settings[0] == {}
    assert trained.without_empty_settings().weights == {side("a"): 1.0, side("e"): -1.0}
    nothing = contrast({"a": 1, "b": -1}).of_trained(lambda slug: equal.get(slug, slug))
    assert (nothing.weights, nothing.squared_weight, nothing.key) == ({}, 0.0, ())


def test_seeds_without_a_score_of_a_side_do_not_count(
    scores: dict[Side, dict[int, float]],
) -> None:
    scores[side("a")][2] = math.nan
    del scores[side("b")][5]
    seeds, values = KINDS["interaction"].values(scores)
    assert seeds == [1, 3, 4, 6]
    assert values.shape == (1, 4)


def test_a_side_outside_the_blocks_leaves_a_contrast_its_own_variance(
    scores: dict[Side, dict[int, float]],
) -> None:
    inside = tuple(side(slug) for slug in VARIANTS[:4])
    table = ScoreTable(scores, (inside,))
    moderated, own = estimate_family(
        [contrast({"a": 1, "b": -1}), contrast({"a": 1, "e": -1})], table
    )
    assert moderated.difference.degrees > len(SEEDS) - 1
    assert own.difference.degrees == len(SEEDS) - 1

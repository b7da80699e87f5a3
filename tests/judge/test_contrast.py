"""Contrasts as weighted sums: all that follows from the weights, against naive sums."""

import math

import numpy as np
import pytest

from headtohead_judge.block_model import block_model
from headtohead_judge.contrast import Contrast, ScoreTable, Selection, Side, estimate_family
from headtohead_judge.examples import Examples, ratio_values

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


def naive_values(tested: Contrast, scores: dict[Side, dict[int, float]]) -> list[float]:
    """Return the value of a contrast in each seed, by loops."""
    values = []
    for seed in SEEDS:
        total = 0.0
        for setting in tested.settings:
            for weighted, weight in setting.items():
                total += weight * scores[weighted][seed]
        values.append(total / len(tested.settings))
    return values


def squared_weight(tested: Contrast) -> float:
    """Return the sum of the squared weights of the variants, by loops."""
    weights: dict[Side, float] = {}
    for setting in tested.settings:
        for weighted, weight in setting.items():
            weights[weighted] = weights.get(weighted, 0.0) + weight / len(tested.settings)
    return sum(weight**2 for weight in weights.values())


def test_the_variance_of_a_family_is_moderated_towards_the_larger_common_variance(
    scores: dict[Side, dict[int, float]],
) -> None:
    family = [*KINDS.values()]
    model = block_model([[*by_seed.values()] for by_seed in scores.values()])
    variances = [np.var(naive_values(tested, scores), ddof=1) for tested in family]
    mean = np.mean(np.divide(variances, [squared_weight(tested) for tested in family]))
    common = max(mean, model.residual_variance)
    estimates = estimate_family(family, ScoreTable(scores, (tuple(scores),)))
    for tested, own, estimate in zip(family, variances, estimates, strict=True):
        assert [*estimate.by_seed.values()] == pytest.approx(naive_values(tested, scores))
        assert tested.squared_weight == pytest.approx(squared_weight(tested))
        pooled = model.prior * squared_weight(tested) * common + 5 * own
        (seeds,) = estimate.difference.sources
        assert seeds.variance == pytest.approx(pooled / (model.prior + 5) / 6)
        assert seeds.degrees == pytest.approx(min(model.prior + 5, model.degrees))
        assert estimate.model.ratio == pytest.approx(mean / model.residual_variance)
        assert len(estimate.settings) == (len(tested.settings) if len(tested.settings) > 1 else 0)


def test_seed_effects_that_differ_between_variants_enter_by_the_contrasts(
    scores: dict[Side, dict[int, float]],
) -> None:
    """The effect of a seed on c to e is opposite to that on a and b."""
    for slug in "cde":
        for seed in SEEDS:
            scores[side(slug)][seed] += 0.2 * (-1) ** seed
    table = ScoreTable(scores, (tuple(scores),))
    family = [contrast({slug: 1, "a": -1}) for slug in "cde"]
    estimates = estimate_family(family, table)
    assert estimates[0].model.ratio > 1.2
    assert estimates[0].model.variance == estimates[0].model.contrast_variance
    (alone,) = estimate_family([contrast({"b": 1, "a": -1})], table)
    assert alone.model.ratio < 0.1
    assert alone.model.variance == alone.model.residual_variance


def test_the_variance_of_few_contrasts_has_their_degrees_of_freedom(
    scores: dict[Side, dict[int, float]],
) -> None:
    scores[side("e")] = {seed: 2 * score for seed, score in scores[side("e")].items()}
    table = ScoreTable(scores, (tuple(scores),))
    (alone,) = estimate_family([KINDS["mean against one"]], table)
    assert alone.model is not None
    assert alone.model.ratio > 1
    assert alone.difference.degrees == 5
    several = [KINDS["mean against one"], contrast({"a": 1, "e": -1}), contrast({"b": 1, "e": -1})]
    for estimate in estimate_family(several, table):
        assert estimate.difference.degrees == pytest.approx(estimate.model.prior + 5)


def test_contrasts_of_the_same_difference_contribute_once(
    scores: dict[Side, dict[int, float]],
) -> None:
    table = ScoreTable(scores, (tuple(scores),))
    one, other = contrast({"a": 1, "b": -1}), contrast({"c": 1, "b": -1})
    exchanged = contrast({"b": 1, "a": -1})
    twice = estimate_family([one, exchanged, other], table)
    assert twice[0].model == estimate_family([one, other], table)[0].model


def test_the_settings_of_an_average_are_a_family_of_their_own(
    scores: dict[Side, dict[int, float]],
) -> None:
    table = ScoreTable(scores, (tuple(scores),))
    average = KINDS["average"]
    (estimate,) = estimate_family([average], table)
    settings = estimate_family(average.single_settings(), table)
    assert list(estimate.settings) == [setting.difference for setting in settings]


def test_a_noisy_variant_leaves_both_means_and_has_a_paired_t_test() -> None:
    random = np.random.default_rng(8)
    rows = random.normal(size=(6, 6)) * [[1], [1], [1], [1], [1], [30]]
    by_side = {
        side(slug): dict(zip(SEEDS, row, strict=True))
        for slug, row in zip("abcdef", rows, strict=True)
    }
    calm = {weighted: by_side[weighted] for weighted in [*by_side][:-1]}
    family = [contrast({slug: 1, "a": -1}) for slug in "bcde"]
    found = estimate_family(
        [*family, contrast({"f": 1, "a": -1})], ScoreTable(by_side, (tuple(by_side),))
    )
    expected = estimate_family(family, ScoreTable(calm, (tuple(calm),)))
    assert [estimate.difference for estimate in found[:-1]] == [
        estimate.difference for estimate in expected
    ]
    assert found[-1].model is None
    assert found[-1].difference.p == found[-1].difference.paired_p
    assert found[-1].difference.degrees == 5


def crossed_variance(values: np.ndarray) -> float:
    """Return the variance of a mean over its columns by the two-way mean squares, by loops."""
    rows, columns = values.shape
    mean = values.mean()
    between = sum((values[:, j].mean() - mean) ** 2 for j in range(columns)) * rows / (columns - 1)
    residual = 0.0
    for i in range(rows):
        for j in range(columns):
            residual += (values[i, j] - values[i].mean() - values[:, j].mean() + mean) ** 2
    residual /= (rows - 1) * (columns - 1)
    return max(0.0, (between - residual) / (rows * columns))


def examples_of(effect: float, sizes: list[int]) -> tuple[dict[Side, dict[int, float]], Examples]:
    """Return scores and examples of two sides; ``effect`` is the spread of the difference over groups."""
    random = np.random.default_rng(11)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    values: dict[Side, dict[int, np.ndarray]] = {}
    for slug in "ab":
        spread = random.normal(0, effect, size=len(sizes))
        values[side(slug)] = {}
        for seed in SEEDS:
            noise = random.normal(0, 0.1, size=len(groups))
            values[side(slug)][seed] = 3 + 0.01 * seed + spread[groups] + noise
    scores = {}
    for weighted, by_seed in values.items():
        scores[weighted] = {seed: float(row.mean()) for seed, row in by_seed.items()}
    return scores, Examples(groups, values)


def test_the_test_examples_are_a_source_of_variance_by_their_groups() -> None:
    scores, examples = examples_of(0.2, [4] * 25)
    tested = contrast({"a": 1, "b": -1})
    (estimate,) = estimate_family([tested], ScoreTable(scores, examples=(examples,)))
    seeds, source = estimate.difference.sources
    rows = []
    for seed in SEEDS:
        row = examples.values[side("a")][seed] - examples.values[side("b")][seed]
        rows.append(row.reshape(25, 4).mean(axis=1))
    assert (source.name, source.degrees) == ("examples", 24)
    assert source.variance == pytest.approx(crossed_variance(np.array(rows)))
    assert source.variance > seeds.variance
    assert estimate.difference.error == pytest.approx((seeds.variance + source.variance) ** 0.5)


def test_values_of_groups_of_different_sizes_have_the_score_as_their_mean() -> None:
    scores, examples = examples_of(0.2, [1, 2, 9, 30] * 5)
    found = examples.by_group({side("a"): 1.0}, [*SEEDS])
    assert found.shape == (6, 20)
    assert found.mean(axis=1) == pytest.approx([*scores[side("a")].values()])
    constant = Examples(examples.groups, {side("a"): {1: np.full(len(examples.groups), 2.5)}})
    assert constant.by_group({side("a"): 1.0}, [1]) == pytest.approx(np.full((1, 20), 2.5))


def test_values_of_a_ratio_have_the_ratio_as_their_mean_and_no_spread_of_their_sizes() -> None:
    sizes = np.array([3.0, 10.0, 7.0])
    totals = np.array([9.0, 12.0, 30.0])
    assert ratio_values(totals, sizes).mean() == pytest.approx(51 / 20)
    assert ratio_values(2.5 * sizes, sizes) == pytest.approx([2.5] * 3)


def test_a_side_without_values_leaves_the_seeds_as_the_only_source() -> None:
    scores, examples = examples_of(0.2, [4] * 25)
    del examples.values[side("b")][3]
    (estimate,) = estimate_family(
        [contrast({"a": 1, "b": -1})], ScoreTable(scores, examples=(examples,))
    )
    assert len(estimate.difference.sources) == 1


def test_two_test_sets_are_two_sources() -> None:
    scores, first = examples_of(0.2, [4] * 25)
    rename = {side("a"): side("c"), side("b"): side("d")}
    second = Examples(first.groups, {rename[old]: values for old, values in first.values.items()})
    scores |= {rename[old]: scores[old] for old in rename}
    tested = contrast({"a": 1, "b": -1, "c": -0.5, "d": 0.5})
    (estimate,) = estimate_family([tested], ScoreTable(scores, examples=(first, second)))
    _, one, two = estimate.difference.sources
    assert two.variance == pytest.approx(one.variance / 4)


def test_the_choices_of_tuned_values_add_up_with_the_degrees_of_satterthwaite(
    scores: dict[Side, dict[int, float]],
) -> None:
    chosen = {side("a"): Selection(4e-4, 3.0), side("b"): Selection(1e-4, 5.0)}
    table = ScoreTable(scores, selection=chosen)
    both, one, neither = estimate_family(
        [contrast({"a": 1, "b": -1}), contrast({"a": 2, "c": -2}), contrast({"c": 1, "d": -1})],
        table,
    )
    source = both.difference.sources[-1]
    assert (source.name, source.variance) == ("tuning", pytest.approx(5e-4))
    assert source.degrees == pytest.approx(5**2 / (4**2 / 3 + 1 / 5))
    assert one.difference.sources[-1].variance == pytest.approx(1.6e-3)
    assert one.difference.sources[-1].degrees == pytest.approx(3)
    assert len(neither.difference.sources) == 1


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
    assert moderated.model is not None
    assert own.model is None
    assert own.difference.degrees == len(SEEDS) - 1

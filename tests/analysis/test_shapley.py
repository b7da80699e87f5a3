"""Shapley values against naive loops, and on made-up studies with known values."""

import hashlib
import itertools
import math
import statistics as plain

import pytest
from scipy import optimize, stats

from headtohead.analysis.shapley import analyse_path
from headtohead.analysis.study import analyse
from headtohead.statistics.shapley import pair_effects, sampled_difference
from headtohead.storage.frames import load_frames
from headtohead.storage.records import PathStep

FOUR = ("model.norm", "model.activation", "model.bias", "train.lr")
FIVE = (*FOUR, "model.init")
EFFECTS = {"model.norm": 0.25, "model.activation": -0.0625, "model.bias": 0.03125, "train.lr": 0.0}


def noise(*parts):
    """Return a number in [0, 1) that depends on its arguments only."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def additive(applied, seed):
    return 0.25 + 0.03125 * seed + sum(EFFECTS[name] for name in applied)


def random_game(applied, seed):
    return 0.5 + 0.1 * noise("game", sorted(applied)) + 0.005 * noise("seed", sorted(applied), seed)


@pytest.fixture
def study(paths, cache, tmp_path):
    """Write a made-up study and analyse its path."""

    def study(names, score, *, allow_partial=False, **changes):
        folder = paths.write_path(tmp_path, paths.PathStudy(names, score, **changes), cache)
        frames = load_frames(folder)
        found = analyse_path(frames, frames.record.metrics.primary, allow_partial=allow_partial)
        return frames, found, {value.name: value for value in found.values}

    return study


def changes_by_permutation(frames, score, seed):
    """Return the change of each group of choices, a dictionary per permutation."""
    changes = []
    for permutation in frames.record.path.permutations:
        applied, by_group = frozenset(), {}
        for step in permutation:
            after = applied | set(step.choices)
            by_group[frozenset(step.choices)] = score(after, seed) - score(applied, seed)
            applied = after
        changes.append(by_group)
    return changes


def naive_values(frames, score, seeds):
    """Return Shapley values by group of choices and seed: sums over permutations, divided by their number."""
    values = {}
    for seed in seeds:
        changes = changes_by_permutation(frames, score, seed)
        for by_group in changes:
            for group, change in by_group.items():
                values.setdefault(group, dict.fromkeys(seeds, 0.0))
                values[group][seed] += change / len(changes)
    return values


def draws_of(frames, choices, seeds):
    """Return the mean change of a permutation and its reverse, by draw and seed."""
    orders = [tuple(step.choices for step in permutation) for permutation in frames.record.path.permutations]
    changes = {seed: changes_by_permutation(frames, random_game, seed) for seed in seeds}
    by_order = {
        order: [changes[seed][number][frozenset(choices)] for seed in seeds] for number, order in enumerate(orders)
    }
    return [
        [(left + right) / 2 for left, right in zip(by_order[order], by_order[order[::-1]], strict=True)]
        for order in orders
        if order < order[::-1]
    ]


def crossed_p(draws, factor):
    """Return the p of a mean of ``[draw][seed]`` with both as crossed random effects, by plain loops."""
    t, s = len(draws), len(draws[0])
    mean = plain.fmean(plain.fmean(draw) for draw in draws)
    by_seed = [plain.fmean(draw[seed] for draw in draws) for seed in range(s)]
    by_draw = [plain.fmean(draw) for draw in draws]
    rest = sum((draws[i][j] - by_draw[i] - by_seed[j] + mean) ** 2 for i in range(t) for j in range(s))
    sampling = factor * (plain.variance(by_draw) - rest / ((t - 1) * (s - 1)) / s) / t
    seed = plain.variance(by_seed) / s
    if sampling <= 0:
        return stats.ttest_1samp(by_seed, 0).pvalue
    half = math.sqrt(stats.t.ppf(0.975, s - 1) ** 2 * seed + stats.t.ppf(0.975, t - 1) ** 2 * sampling)
    error = math.sqrt(seed + sampling)
    degrees = optimize.brentq(lambda degrees: stats.t.ppf(0.975, degrees) - half / error, 1, 1e6, xtol=1e-12)
    return 2 * stats.t.sf(abs(mean) / error, degrees)


def test_shapley_values_of_additive_effects_are_the_effects(study):
    _, found, values = study(FOUR, additive)
    assert {name: value.mean for name, value in values.items()} == EFFECTS
    for name, value in values.items():
        assert value.contrast.spread == (EFFECTS[name], EFFECTS[name])
        assert value.sampled.sampling_variance == 0
        assert value.alone.paired.mean == value.without.paired.mean == EFFECTS[name]
    assert [value.name for value in found.values] == ["model.norm", "model.activation", "model.bias", "train.lr"]


def test_an_interaction_of_two_choices_is_split_evenly_over_all_permutations(study):
    def score(applied, seed):
        return 0.5 + 0.25 * (len(applied) == 2) + 0.0625 * seed

    _, found, values = study(FOUR[:2], score)
    assert found.num_permutations == found.possible == 2
    assert {name: value.mean for name, value in values.items()} == {"model.norm": 0.125, "model.activation": 0.125}
    for value in values.values():
        assert value.contrast.spread == (0.0, 0.25)
        assert value.alone.paired.mean == 0.0
        assert value.without.paired.mean == 0.25


@pytest.mark.slow
def test_a_sample_with_reversed_permutations_splits_an_interaction_of_two_evenly(study):
    def score(applied, seed):
        return 0.5 * ("model.norm" in applied and "train.lr" in applied) + 0.125 * seed

    _, found, values = study(FIVE, score)
    assert (found.num_permutations, found.possible) == (8, 120)
    assert {name: value.mean for name, value in values.items() if value.mean} == {"model.norm": 0.25, "train.lr": 0.25}


def test_values_intervals_and_p_equal_those_of_naive_loops(study):
    seeds = (1, 2, 3, 4)
    frames, found, values = study(FIVE, random_game, seeds=seeds)
    naive = naive_values(frames, random_game, seeds)
    assert {frozenset(value.choices) for value in found.values} == set(naive)
    p_values = {}
    for value in found.values:
        expected = list(naive[frozenset(value.choices)].values())
        paired = value.contrast.paired
        assert paired.mean == pytest.approx(plain.fmean(expected), abs=1e-12)
        interval = stats.t.interval(0.95, 3, plain.fmean(expected), stats.sem(expected))
        assert (paired.low, paired.high) == pytest.approx(interval, abs=1e-12)
        p_values[value.name] = crossed_p(draws_of(frames, value.choices, seeds), 1 - 8 / 120)
    ranked = sorted(p_values.items(), key=lambda item: item[1])
    running = 0.0
    for rank, (name, p) in enumerate(ranked):
        running = max(running, min(1.0, (len(ranked) - rank) * p))
        assert values[name].contrast.judgement.holm_p == pytest.approx(running, rel=1e-6)


@pytest.mark.slow
def test_the_range_is_that_of_means_over_seeds_by_permutation(study):
    seeds = (1, 2, 3)
    frames, _, values = study(FIVE, random_game, seeds=seeds)
    for name, value in values.items():
        each = [
            plain.fmean(changes_by_permutation(frames, random_game, seed)[number][frozenset([name])] for seed in seeds)
            for number in range(8)
        ]
        assert value.by_permutation == pytest.approx(each, abs=1e-12)
        assert value.contrast.spread == pytest.approx((min(each), max(each)), abs=1e-12)


@pytest.mark.slow
def test_values_add_up_to_the_total_difference_in_every_seed(study):
    frames, found, _ = study(FIVE, random_game)
    all_choices = frozenset(FIVE)
    for seed in frames.seeds:
        total = random_game(all_choices, seed) - random_game(frozenset(), seed)
        assert math.fsum(value.by_seed[seed] for value in found.values) == pytest.approx(total, abs=1e-12)
    total = math.fsum(value.mean for value in found.values)
    assert total == pytest.approx(found.total.paired.mean, abs=1e-12)
    assert found.remainder == 0.0


@pytest.mark.slow
def test_first_and_last_changes_are_single_differences_at_the_ends(study):
    seeds = (1, 2, 3)
    _, _, values = study(FIVE, random_game, seeds=seeds)
    all_choices = frozenset(FIVE)
    for name, value in values.items():
        first_changes = [random_game(frozenset([name]), s) - random_game(frozenset(), s) for s in seeds]
        last = [random_game(all_choices, s) - random_game(all_choices - {name}, s) for s in seeds]
        assert value.alone.paired.mean == pytest.approx(plain.fmean(first_changes), abs=1e-12)
        assert value.without.paired.mean == pytest.approx(plain.fmean(last), abs=1e-12)


def test_a_group_has_a_single_value_and_all_values_add_up(study):
    group = {"model.norm", "model.bias"}

    def score(applied, seed):
        return additive(applied, seed) + 0.001 * noise("joint", sorted(applied), seed)

    frames, found, values = study(FOUR, score, is_incompatible=lambda applied: len(applied & group) == 1)
    naive = naive_values(frames, score, frames.seeds)
    assert {frozenset(value.choices) for value in found.values} == set(naive)
    assert not any(set(value.choices) & group and len(value.choices) == 1 for value in found.values)
    for value in found.values:
        expected = list(naive[frozenset(value.choices)].values())
        assert value.mean == pytest.approx(plain.fmean(expected), abs=1e-12)
    assert sum(value.num_permutations for value in found.values if len(value.choices) > 1) == 8
    assert math.fsum(value.mean for value in found.values) == pytest.approx(found.total.paired.mean, abs=1e-12)
    assert values["model.norm with model.bias"].mean > 0
    assert found.remainder == 0.0


@pytest.mark.slow
def test_a_fraction_of_the_permutations_scales_the_value_and_keeps_its_p(study):
    group = {"model.norm", "model.bias"}

    def score(applied, seed):
        return additive(applied, seed) + 0.01 * noise("joint", sorted(applied), seed)

    frames, _, values = study(FOUR, score, is_incompatible=lambda applied: len(applied & group) == 1)
    value = next(value for value in values.values() if 1 < value.num_permutations < 8)
    first_changes = [
        plain.fmean(
            by_group[frozenset(value.choices)]
            for by_group in changes_by_permutation(frames, score, seed)
            if frozenset(value.choices) in by_group
        )
        for seed in frames.seeds
    ]
    fraction = value.num_permutations / 8
    assert list(value.by_seed.values()) == pytest.approx([fraction * change for change in first_changes])
    assert value.mean == pytest.approx(fraction * plain.fmean(first_changes), abs=1e-12)
    assert value.contrast.paired.p == pytest.approx(stats.ttest_1samp(first_changes, 0).pvalue, rel=1e-9)
    assert value.contrast.paired.sd == pytest.approx(fraction * plain.stdev(first_changes), rel=1e-9)


def test_without_differences_every_value_is_identical(study):
    _, found, values = study(FOUR, lambda applied, seed: 0.125 * seed)
    assert found.total.verdict == "identical"
    assert {value.contrast.verdict for value in values.values()} == {"identical"}
    assert {value.mean for value in values.values()} == {0.0}


def test_a_choice_that_cannot_make_a_difference_is_equal_by_construction(study):
    names = ("model.norm", "masking.decoder")
    effects = {"model.norm": 0.25, "masking.decoder": 0.0}
    _, found, values = study(names, lambda applied, seed: 0.125 * seed + sum(effects[name] for name in applied))
    assert values["masking.decoder"].equal_by_construction
    assert values["masking.decoder"].mean == 0.0
    assert found.family.tested == 1
    assert found.remainder == 0.0


@pytest.mark.slow
def test_verdicts_are_those_of_other_contrasts(study):
    def score(applied, seed):
        return additive(applied, seed) + 0.004 * noise("v", sorted(applied), seed)

    _, found, values = study(FOUR, score, seeds=(1, 2, 3, 4, 5, 6))
    assert values["model.norm"].contrast.verdict == "better"
    assert values["model.activation"].contrast.verdict == "worse"
    assert values["train.lr"].contrast.verdict_text == "inconclusive"
    assert found.family.tested == 4
    assert found.exceeds(values["model.norm"], 0.5)
    assert not found.exceeds(values["model.bias"], 0.5)


def test_most_requires_the_interval_to_be_above_half(study):
    def score(applied, seed):
        spread = 0.2 if seed % 2 else -0.2
        return 0.5 * ("model.norm" in applied) + (0.3 + spread) * ("model.bias" in applied)

    _, found, values = study(FOUR[:1] + FOUR[2:3], score, seeds=(1, 2, 3, 4, 5, 6))
    assert values["model.norm"].mean > found.total.paired.mean / 2
    assert not found.exceeds(values["model.norm"], 0.5)


def test_the_choices_around_a_coalition_without_a_result_are_not_tested(study):
    states = {("from-plus-model.norm", 2): "DIVERGED"}
    frames, found, values = study(FIVE[:4], additive, states=states)
    passed = {
        name
        for permutation in frames.record.path.permutations
        for before, after in itertools.pairwise([PathStep(choices=(), slug="from"), *permutation])
        if "from-plus-model.norm" in (before.slug, after.slug)
        for name in after.choices
    }
    assert {name for name, value in values.items() if not value.known} == passed
    assert "from + model.norm: 1 diverged of 3 seeds" in values["model.norm"].contrast.reason
    lost = sum(EFFECTS[name] for name in passed)
    assert found.remainder == pytest.approx(lost, abs=1e-12)
    assert [value.known for value in found.values] == [True] * (4 - len(passed)) + [False] * len(passed)


@pytest.mark.slow
def test_partial_runs_are_tested_on_the_seeds_that_all_their_coalitions_have(study):
    states = {("from-plus-model.norm", 2): "DIVERGED"}
    _, _, values = study(FIVE[:4], additive, states=states, allow_partial=True)
    value = values["model.norm"]
    assert value.contrast.seeds == (1, 3)
    assert value.mean == EFFECTS["model.norm"]
    assert value.contrast.reason.startswith("partial: ")


def test_a_single_seed_gives_values_and_no_test(study):
    _, found, values = study(FOUR, additive, seeds=(1,))
    assert {name: value.mean for name, value in values.items()} == EFFECTS
    assert {value.contrast.verdict for value in values.values()} == {"no verdict"}
    assert not found.exceeds(values["model.norm"], 0.5)


@pytest.mark.default_cases(1)
@pytest.mark.parametrize(("metric", "known"), [("valid/loss", True), ("train/loss", False)])
def test_losses_that_are_not_comparable_have_no_value(study, metric, known):
    names = ("model.norm", "train.label_smoothing")
    _, _, values = study(names, lambda applied, seed: 1.0 + seed, primary=metric)
    reason = "losses are not comparable: label smoothing values differ"
    assert values["train.label_smoothing"].known == known
    assert (values["train.label_smoothing"].contrast.reason == reason) != known
    assert values["model.norm"].known


def test_the_variants_of_a_path_are_ordered_ends_first_then_single_differences(paths, cache, tmp_path):
    folder = paths.write_path(tmp_path, paths.PathStudy(FOUR, additive), cache)
    found = analyse(load_frames(folder))
    assert found.order[:4] == ("from", "to", "from-plus-model.norm", "from-plus-model.activation")
    assert all(slug.startswith("permutation-") for slug in found.order[10:])
    assert len(found.order) == len(found.frames.by_slug)


# the uncertainty from permutations that were not evaluated


def test_the_sampling_variance_is_right_on_average_over_all_samples_of_pairs():
    names = "abcd"
    orders = list(itertools.permutations(names))
    pairs = [(order, order[::-1]) for order in orders if order < order[::-1]]
    change = {order: noise("order", order) for order in orders}
    truth = plain.fmean(change.values())
    squares, variances = [], []
    for sample in itertools.combinations(pairs, 4):
        evaluated = [order for pair in sample for order in pair]
        changes = [[change[order]] * 2 for order in evaluated]
        squares.append((plain.fmean(change[order] for order in evaluated) - truth) ** 2)
        variances.append(sampled_difference(evaluated, changes, 24).sampling_variance)
    assert plain.fmean(variances) == pytest.approx(plain.fmean(squares), rel=1e-9)


def test_seed_noise_is_no_sampling_variance():
    orders = list(itertools.permutations("abcd"))[:9]
    variances = [
        sampled_difference(orders, [[noise(study, order, seed) for seed in range(4)] for order in orders], 24)
        for study in range(400)
    ]
    assert abs(plain.fmean(found.sampling_variance for found in variances)) < 0.0005  # 1 / 12 / 36 for the mean of all


def test_without_reverses_the_sampling_variance_is_that_of_sampling_without_replacement():
    changes = [0.1, 0.4, 0.2]
    orders = ["abcd", "bacd", "cabd"]
    expected = plain.variance(changes) / 3 * (1 - 3 / 24)
    found = sampled_difference(orders, [[change] * 4 for change in changes], 24)
    assert found.sampling_variance == pytest.approx(expected)
    assert (found.draws, found.degrees) == (3, pytest.approx(2, rel=1e-6))
    low, high = stats.t.interval(0.95, 2, plain.fmean(changes), math.sqrt(expected))
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6)


def test_over_all_permutations_the_interval_is_that_over_seeds():
    changes = [[0.1, 0.2, 0.15], [0.5, 0.4, 0.6]]
    found = sampled_difference(["ab", "ba"], changes, 2)
    means = [0.3, 0.3, 0.375]
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 2, plain.fmean(means), stats.sem(means)))
    assert found.sampling_variance == 0.0


def test_a_single_draw_has_no_test():
    found = sampled_difference(["abc", "cba"], [[0.1, 0.2], [0.3, 0.3]], 6)
    assert found.draws == 1
    assert math.isnan(found.p)
    assert math.isnan(found.low)


def test_the_needed_draws_give_the_half_width():
    orders = [tuple(order) for order in itertools.permutations("abcdefg")][:10]
    changes = [[noise("c", order) + 0.01 * noise("s", order, seed) for seed in range(5)] for order in orders]
    found = sampled_difference(orders, changes, 5040)
    needed = found.draws_needed(0.1, 5040)

    def half(draws):
        seeds = stats.t.ppf(0.975, 4) ** 2 * found.seed_variance
        return math.sqrt(seeds + stats.t.ppf(0.975, draws - 1) ** 2 * 10 * found.sampling_variance / draws)

    assert half(needed) <= 0.1 < half(needed - 2)
    assert found.draws_needed(0.0001, 5040) is None


# pairs of choices that work only together


def test_choices_that_work_only_together_are_a_group_and_their_joint_effect_does_not_depend_on_the_order(study):
    def score(applied, seed):
        together = 0.5 * ({"model.norm", "train.lr"} <= applied)
        return 0.2 + together + 0.05 * ("model.bias" in applied) + 0.01 * noise("run", sorted(applied), seed)

    _, found, values = study(FIVE, score, seeds=(1, 2, 3, 4, 5, 6))
    (group,) = found.groups
    assert group.choices == ("model.norm", "train.lr")
    assert group.detected
    assert found.exceeds(group, 0.5)
    assert group.sampled.mean == pytest.approx(0.5, abs=0.01)
    assert group.sampled.high - group.sampled.low < 0.02
    assert (*group.first, *group.last) == pytest.approx((0, 0, 0.5, 0.5), abs=0.015)
    assert not any(found.exceeds(value, 0.5) for value in values.values())


def test_an_additive_study_has_no_group(study):
    def score(applied, seed):
        return additive(applied, seed) + 0.01 * noise("run", sorted(applied), seed)

    _, found, _ = study(FIVE[:4], score, seeds=(1, 2, 3, 4, 5, 6))
    assert (found.effects, found.groups) == ((), ())


@pytest.mark.slow
def test_choices_with_an_effect_each_and_a_smaller_joint_effect_are_no_group(study):
    def score(applied, seed):
        single = 0.3 * ("model.norm" in applied) + 0.3 * ("train.lr" in applied)
        together = 0.2 * ({"model.norm", "train.lr"} <= applied)
        return single + together + 0.01 * noise("run", sorted(applied), seed)

    _, found, _ = study(FIVE, score, seeds=(1, 2, 3, 4, 5, 6), orders=12)
    assert [effect.pair for effect in found.effects] == [("model.norm", "train.lr")]
    assert found.effects[0].low < 0.2 < found.effects[0].high
    assert found.groups == ()


@pytest.mark.slow
def test_a_choice_whose_effect_depends_on_the_permutation_has_a_wide_interval(study):
    def score(applied, seed):
        three = 0.5 * ({"model.norm", "train.lr", "model.bias"} <= applied)
        return three + 0.01 * noise("run", sorted(applied), seed)

    _, found, values = study(FIVE, score, seeds=(1, 2, 3, 4, 5, 6))
    value = values["model.norm"]
    assert value.contrast.paired.p < 1e-4
    assert value.sampled.sampling_variance > 100 * value.sampled.seed_variance
    assert value.sampled.high - value.sampled.low > 5 * (value.contrast.paired.high - value.contrast.paired.low)
    assert found.permutations_needed(value.sampled, 0.05) > found.num_permutations


def coalition_scores(score, names, count, seeds=(1, 2, 3, 4, 5, 6)):
    """Return coalitions along sampled permutations and their scores."""
    orders = sorted(itertools.permutations(names), key=lambda order: noise("sample", order))[:count]
    coalitions = list(dict.fromkeys(frozenset(order[:k]) for order in orders for k in range(len(names) + 1)))
    return coalitions, [[score(applied, seed) for seed in seeds] for applied in coalitions]


def test_a_pair_that_works_only_together_is_found_with_its_effect():
    def score(applied, seed):
        together = 0.5 * ("a" in applied and "d" in applied)
        return together + 0.1 * ("b" in applied) + 0.02 * noise("run", sorted(applied), seed)

    coalitions, scores = coalition_scores(score, "abcdefg", 8)
    (effect,) = pair_effects(coalitions, scores, "abcdefg")
    assert effect.pair == ("a", "d")
    assert effect.low < 0.5 < effect.high
    assert effect.high - effect.low < 0.1


def test_over_all_coalitions_the_effect_of_a_pair_is_its_banzhaf_index():
    names = "abc"
    coalitions = [frozenset(c) for k in range(4) for c in itertools.combinations(names, k)]
    game = {applied: noise("game", sorted(applied)) + 10 * ({"a", "c"} <= applied) for applied in coalitions}
    scores = [[game[applied] + 1e-6 * noise("r", sorted(applied), seed) for seed in range(6)] for applied in coalitions]
    (effect, *_) = pair_effects(coalitions, scores, names)
    rest = [frozenset(), frozenset("b")]
    index = plain.fmean(game[s | {"a", "c"}] - game[s | {"a"}] - game[s | {"c"}] + game[s] for s in rest)
    assert effect.pair == ("a", "c")
    assert effect.mean == pytest.approx(index, abs=1e-5)


@pytest.mark.slow
def test_additive_studies_rarely_have_an_effect_of_a_pair():
    effects = dict(zip("abcdefg", (1.0, -0.5, 0.3, 0.0, 2.0, 0.1, -1.0), strict=True))
    wrong = 0
    for study in range(100):

        def score(applied, seed, study=study):
            return sum(effects[name] for name in applied) + noise(study, sorted(applied), seed)

        wrong += bool(pair_effects(*coalition_scores(score, "abcdefg", 8), "abcdefg"))
    assert wrong <= 10  # 5 % expected


def test_the_joint_effect_of_two_choices_has_the_interval_and_p_of_a_paired_t_test():
    coalitions = [(), ("a",), ("b",), ("a", "b")]
    scores = [[0.02 * (len(c) == 2) + 0.01 * noise("two", c, seed) for seed in range(6)] for c in coalitions]
    (effect,) = pair_effects(coalitions, scores, "ab")
    oracle = stats.ttest_1samp([both - b - a + none for none, a, b, both in zip(*scores, strict=True)], 0)
    interval = oracle.confidence_interval(0.95)
    assert effect.p == pytest.approx(oracle.pvalue, rel=1e-4)
    assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high), rel=1e-6)


def test_a_path_of_two_choices_has_finite_intervals(study):
    def score(applied, seed):
        return 0.4 + 0.3 * (len(applied) == 2) + 0.01 * noise("run", sorted(applied), seed)

    _, found, _ = study(FOUR[:2], score, seeds=(1, 2, 3, 4, 5, 6))
    (effect,) = found.effects
    (group,) = found.groups
    numbers = (effect.low, effect.high, effect.p, group.sampled.low, group.sampled.high, group.sampled.p)
    assert all(map(math.isfinite, numbers))

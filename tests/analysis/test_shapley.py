"""Shapley values against naive loops, and on made-up studies with known values."""

import hashlib
import itertools
import math
import statistics as plain

import pytest
from scipy import stats

from headtohead.analysis.shapley import analyse_path
from headtohead.analysis.study import analyse
from headtohead.statistics.shapley import permutation_error
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


def test_shapley_values_of_additive_effects_are_the_effects(study):
    _, found, values = study(FOUR, additive)
    assert {name: value.mean for name, value in values.items()} == EFFECTS
    for name, value in values.items():
        assert value.contrast.spread == (EFFECTS[name], EFFECTS[name])
        assert value.permutation_error == 0
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
        p_values[value.name] = stats.ttest_1samp(expected, 0).pvalue
    ranked = sorted(p_values.items(), key=lambda item: item[1])
    running = 0.0
    for rank, (name, p) in enumerate(ranked):
        running = max(running, min(1.0, (len(ranked) - rank) * p))
        assert values[name].contrast.judgement.holm_p == pytest.approx(running, rel=1e-9)


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


def test_values_add_up_to_the_total_difference_in_every_seed(study):
    frames, found, _ = study(FIVE, random_game)
    all_choices = frozenset(FIVE)
    for seed in frames.seeds:
        total = random_game(all_choices, seed) - random_game(frozenset(), seed)
        assert math.fsum(value.by_seed[seed] for value in found.values) == pytest.approx(total, abs=1e-12)
    total = math.fsum(value.mean for value in found.values)
    assert total == pytest.approx(found.total.paired.mean, abs=1e-12)
    assert found.remainder == 0.0


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
    assert math.isnan(value.permutation_error)


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


def test_verdicts_are_those_of_other_contrasts(study):
    def score(applied, seed):
        return additive(applied, seed) + 0.004 * noise("v", sorted(applied), seed)

    _, found, values = study(FOUR, score, seeds=(1, 2, 3, 4, 5, 6))
    assert values["model.norm"].contrast.verdict == "better"
    assert values["model.activation"].contrast.verdict == "worse"
    assert values["train.lr"].contrast.verdict_text == "inconclusive"
    assert found.family.tested == 4
    assert found.is_most(values["model.norm"])
    assert not found.is_most(values["model.bias"])


def test_most_requires_the_interval_to_be_above_half(study):
    def score(applied, seed):
        spread = 0.2 if seed % 2 else -0.2
        return 0.5 * ("model.norm" in applied) + (0.3 + spread) * ("model.bias" in applied)

    _, found, values = study(FOUR[:1] + FOUR[2:3], score, seeds=(1, 2, 3, 4, 5, 6))
    assert values["model.norm"].mean > found.total.paired.mean / 2
    assert not found.is_most(values["model.norm"])


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
    assert not found.is_most(values["model.norm"])


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


# the error from permutations that were not evaluated


def test_the_permutation_error_is_right_on_average_over_all_samples_of_pairs():
    names = "abcd"
    orders = list(itertools.permutations(names))
    pairs = [(order, order[::-1]) for order in orders if order < order[::-1]]
    change = {order: noise("order", order) for order in orders}
    truth = plain.fmean(change.values())
    squares, errors = [], []
    for sample in itertools.combinations(pairs, 4):
        evaluated = [order for pair in sample for order in pair]
        changes = [change[order] for order in evaluated]
        squares.append((plain.fmean(changes) - truth) ** 2)
        errors.append(permutation_error(evaluated, changes, 24) ** 2)
    assert plain.fmean(errors) == pytest.approx(plain.fmean(squares), rel=1e-9)


def test_the_permutation_error_without_reverses_is_that_of_sampling_without_replacement():
    changes = [0.1, 0.4, 0.2]
    orders = ["abcd", "bacd", "cabd"]
    expected = plain.stdev(changes) / math.sqrt(3) * math.sqrt(1 - 3 / 24)
    assert permutation_error(orders, changes, 24) == pytest.approx(expected)


def test_the_permutation_error_is_zero_over_all_permutations_and_unknown_from_one():
    assert permutation_error(["ab", "ba"], [0.1, 0.3], 2) == 0.0
    assert math.isnan(permutation_error(["abc", "cba"], [0.1, 0.3], 6))

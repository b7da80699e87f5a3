"""Shares of a path against naive loops, and studies whose truth is known."""

import hashlib
import itertools
import math
import statistics as plain

import pytest
from scipy import stats

from headtohead.analysis.shapley import analyse_path, order_error
from headtohead.analysis.study import analyse
from headtohead.storage.frames import load_frames

FOUR = ("model.norm", "model.activation", "model.bias", "train.lr")
FIVE = (*FOUR, "model.init")
EFFECTS = {"model.norm": 0.25, "model.activation": -0.0625, "model.bias": 0.03125, "train.lr": 0.0}


def noise(*parts):
    """Return a number in [0, 1) that depends on nothing but its parts."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def additive(applied, seed):
    return 0.5 + 0.125 * seed + sum(EFFECTS[name] for name in applied)


def random_game(applied, seed):
    return noise("game", sorted(applied)) + 0.05 * noise("seed", sorted(applied), seed)


@pytest.fixture
def walk(paths, cache, tmp_path):
    """Write a made-up study and analyse its path."""

    def walk(names, score, *, allow_partial=False, **changes):
        folder = paths.write_path(tmp_path, paths.PathStudy(names, score, **changes), cache)
        frames = load_frames(folder)
        metric = frames.experiment["metrics"]["primary"]
        found = analyse_path(frames, metric, allow_partial=allow_partial)
        return frames, found, {share.name: share for share in found.shares}

    return walk


def by_walk(frames, score, seed):
    """Return, for each walk, what each group of choices changes: a list of dictionaries."""
    changes = []
    for walk in frames.experiment["path"]["walks"]:
        applied, found = frozenset(), {}
        for step in walk:
            after = applied | set(step["choices"])
            found[frozenset(step["choices"])] = score(after, seed) - score(applied, seed)
            applied = after
        changes.append(found)
    return changes


def naive_shares(frames, score, seeds):
    """Return shares by group of choices and seed: sums over walks, divided by their number."""
    shares = {}
    for seed in seeds:
        changes = by_walk(frames, score, seed)
        for found in changes:
            for group, change in found.items():
                shares.setdefault(group, dict.fromkeys(seeds, 0.0))
                shares[group][seed] += change / len(changes)
    return shares


def test_of_additive_effects_each_choice_gets_its_own(walk):
    _, found, shares = walk(FOUR, additive)
    assert {name: share.mean for name, share in shares.items()} == EFFECTS
    for name, share in shares.items():
        assert share.contrast.spread == (EFFECTS[name], EFFECTS[name])
        assert share.order_error == 0
        assert share.alone.paired.mean == share.without.paired.mean == EFFECTS[name]
    assert [share.name for share in found.shares] == ["model.norm", "model.activation", "model.bias", "train.lr"]


def test_two_choices_that_only_work_together_share_evenly_over_all_orders(walk):
    def score(applied, seed):
        return 0.5 + 0.25 * (len(applied) == 2) + 0.0625 * seed

    _, found, shares = walk(FOUR[:2], score)
    assert found.walked == found.possible == 2
    assert {name: share.mean for name, share in shares.items()} == {"model.norm": 0.125, "model.activation": 0.125}
    for share in shares.values():
        assert share.contrast.spread == (0.0, 0.25)
        assert share.alone.paired.mean == 0.0
        assert share.without.paired.mean == 0.25


def test_with_reverses_an_interaction_of_two_is_split_evenly_in_a_sample_too(walk):
    def score(applied, seed):
        return 0.5 * ("model.norm" in applied and "train.lr" in applied) + 0.125 * seed

    _, found, shares = walk(FIVE, score)
    assert (found.walked, found.possible) == (8, 120)
    assert {name: share.mean for name, share in shares.items() if share.mean} == {"model.norm": 0.25, "train.lr": 0.25}


def test_shares_intervals_and_p_are_those_of_naive_loops(walk):
    seeds = (1, 2, 3, 4)
    frames, found, shares = walk(FIVE, random_game, seeds=seeds)
    naive = naive_shares(frames, random_game, seeds)
    assert {frozenset(share.choices) for share in found.shares} == set(naive)
    p_values = {}
    for share in found.shares:
        values = list(naive[frozenset(share.choices)].values())
        paired = share.contrast.paired
        assert paired.mean == pytest.approx(plain.fmean(values), abs=1e-12)
        interval = stats.t.interval(0.95, 3, plain.fmean(values), stats.sem(values))
        assert (paired.low, paired.high) == pytest.approx(interval, abs=1e-12)
        p_values[share.name] = stats.ttest_1samp(values, 0).pvalue
    ranked = sorted(p_values.items(), key=lambda item: item[1])
    running = 0.0
    for rank, (name, p) in enumerate(ranked):
        running = max(running, min(1.0, (len(ranked) - rank) * p))
        assert shares[name].contrast.holm_p == pytest.approx(running, rel=1e-9)


def test_the_range_is_that_of_the_orders_means_over_seeds(walk):
    seeds = (1, 2, 3)
    frames, _, shares = walk(FIVE, random_game, seeds=seeds)
    for name, share in shares.items():
        each = [
            plain.fmean(by_walk(frames, random_game, seed)[number][frozenset([name])] for seed in seeds)
            for number in range(8)
        ]
        assert share.by_order == pytest.approx(each, abs=1e-12)
        assert share.contrast.spread == pytest.approx((min(each), max(each)), abs=1e-12)


def test_shares_add_up_to_the_whole_distance_in_every_seed(walk):
    frames, found, _ = walk(FIVE, random_game)
    everything = frozenset(FIVE)
    for seed in frames.seeds:
        whole = random_game(everything, seed) - random_game(frozenset(), seed)
        assert math.fsum(s.by_seed[seed] for s in found.shares) == pytest.approx(whole, abs=1e-12)
    total = math.fsum(share.mean for share in found.shares)
    assert total == pytest.approx(found.distance.paired.mean, abs=1e-12)
    assert found.remainder == 0.0


def test_alone_and_last_are_single_differences_at_the_ends(walk):
    seeds = (1, 2, 3)
    _, _, shares = walk(FIVE, random_game, seeds=seeds)
    everything = frozenset(FIVE)
    for name, share in shares.items():
        alone = [random_game(frozenset([name]), s) - random_game(frozenset(), s) for s in seeds]
        last = [random_game(everything, s) - random_game(everything - {name}, s) for s in seeds]
        assert share.alone.paired.mean == pytest.approx(plain.fmean(alone), abs=1e-12)
        assert share.without.paired.mean == pytest.approx(plain.fmean(last), abs=1e-12)


def test_a_joint_step_is_reported_as_one_and_the_sum_still_holds(walk):
    together = {"model.norm", "model.bias"}

    def score(applied, seed):
        return additive(applied, seed) + 0.001 * noise("joint", sorted(applied), seed)

    frames, found, shares = walk(FOUR, score, undefined=lambda applied: len(applied & together) == 1)
    naive = naive_shares(frames, score, frames.seeds)
    assert {frozenset(share.choices) for share in found.shares} == set(naive)
    assert not any(set(share.choices) & together and len(share.choices) == 1 for share in found.shares)
    for share in found.shares:
        values = list(naive[frozenset(share.choices)].values())
        assert share.mean == pytest.approx(plain.fmean(values), abs=1e-12)
    assert sum(share.orders for share in found.shares if len(share.choices) > 1) == 8
    assert math.fsum(share.mean for share in found.shares) == pytest.approx(found.distance.paired.mean, abs=1e-12)
    assert shares["model.norm with model.bias"].mean > 0
    assert found.remainder == 0.0


def test_a_part_of_the_orders_scales_the_share_and_keeps_its_p(walk):
    together = {"model.norm", "model.bias"}

    def score(applied, seed):
        return additive(applied, seed) + 0.01 * noise("joint", sorted(applied), seed)

    frames, _, shares = walk(FOUR, score, undefined=lambda applied: len(applied & together) == 1)
    share = next(one for one in shares.values() if 1 < one.orders < 8)
    alone = [
        plain.fmean(
            found[frozenset(share.choices)]
            for found in by_walk(frames, score, seed)
            if frozenset(share.choices) in found
        )
        for seed in frames.seeds
    ]
    part = share.orders / 8
    assert list(share.by_seed.values()) == pytest.approx([part * value for value in alone])
    assert share.mean == pytest.approx(part * plain.fmean(alone), abs=1e-12)
    assert share.contrast.paired.p == pytest.approx(stats.ttest_1samp(alone, 0).pvalue, rel=1e-9)
    assert share.contrast.paired.sd == pytest.approx(part * plain.stdev(alone), rel=1e-9)
    assert math.isnan(share.order_error)


def test_where_nothing_differs_every_share_is_identical(walk):
    _, found, shares = walk(FOUR, lambda applied, seed: 0.125 * seed)
    assert found.distance.verdict == "identical"
    assert {share.contrast.verdict for share in shares.values()} == {"identical"}
    assert {share.mean for share in shares.values()} == {0.0}


def test_a_choice_that_cannot_make_a_difference_is_equal_by_construction(walk):
    names = ("model.norm", "masking.decoder")
    effects = {"model.norm": 0.25, "masking.decoder": 0.0}
    _, found, shares = walk(names, lambda applied, seed: 0.125 * seed + sum(effects[name] for name in applied))
    assert shares["masking.decoder"].nothing
    assert shares["masking.decoder"].mean == 0.0
    assert found.family.tested == 1
    assert found.remainder == 0.0


def test_verdicts_are_in_the_words_of_other_contrasts(walk):
    def score(applied, seed):
        return additive(applied, seed) + 0.004 * noise("v", sorted(applied), seed)

    _, found, shares = walk(FOUR, score, seeds=(1, 2, 3, 4, 5, 6))
    assert shares["model.norm"].contrast.verdict == "better"
    assert shares["model.activation"].contrast.verdict == "worse"
    words = shares["train.lr"].contrast.words
    assert words.startswith("no difference detected (could have seen ≥ 0.00")
    assert found.family.tested == 4
    assert found.is_most(shares["model.norm"])
    assert not found.is_most(shares["model.bias"])


def test_more_than_half_needs_the_interval_to_say_so(walk):
    def score(applied, seed):
        spread = 0.2 if seed % 2 else -0.2
        return 0.6 * ("model.norm" in applied) + (0.4 + spread) * ("model.bias" in applied)

    _, found, shares = walk(FOUR[:1] + FOUR[2:3], score, seeds=(1, 2, 3, 4, 5, 6))
    assert shares["model.norm"].mean > found.distance.paired.mean / 2
    assert not found.is_most(shares["model.norm"])


def test_a_point_without_a_result_takes_its_choices_out_of_judgement(walk):
    states = {("from-plus-model.norm", 2): "DIVERGED"}
    frames, found, shares = walk(FIVE[:4], additive, states=states)
    passed = {
        name
        for walk in frames.experiment["path"]["walks"]
        for before, after in itertools.pairwise([{"choices": [], "slug": "from"}, *walk])
        if "from-plus-model.norm" in (before["slug"], after["slug"])
        for name in after["choices"]
    }
    assert {name for name, share in shares.items() if not share.known} == passed
    assert "from + model.norm: 1 diverged of 3 seeds" in shares["model.norm"].contrast.reason
    lost = sum(EFFECTS[name] for name in passed)
    assert found.remainder == pytest.approx(lost, abs=1e-12)
    assert [share.known for share in found.shares] == [True] * (4 - len(passed)) + [False] * len(passed)


def test_partial_runs_are_judged_on_the_seeds_that_all_their_points_have(walk):
    states = {("from-plus-model.norm", 2): "DIVERGED"}
    _, _, shares = walk(FIVE[:4], additive, states=states, allow_partial=True)
    share = shares["model.norm"]
    assert share.contrast.seeds == (1, 3)
    assert share.mean == EFFECTS["model.norm"]
    assert share.contrast.reason.startswith("partial: ")


def test_one_seed_gives_shares_and_no_test(walk):
    _, found, shares = walk(FOUR, additive, seeds=(1,))
    assert {name: share.mean for name, share in shares.items()} == EFFECTS
    assert {share.contrast.verdict for share in shares.values()} == {""}
    assert not found.is_most(shares["model.norm"])


@pytest.mark.parametrize(("metric", "known"), [("valid/loss", True), ("train/loss", False)])
def test_losses_that_do_not_compare_have_no_share(walk, metric, known):
    names = ("model.norm", "train.label_smoothing")
    _, _, shares = walk(names, lambda applied, seed: 1.0 + seed, primary=metric)
    reason = "losses do not compare: label smoothing values differ"
    assert shares["train.label_smoothing"].known == known
    assert (shares["train.label_smoothing"].contrast.reason == reason) != known
    assert shares["model.norm"].known


def test_the_variants_of_a_path_are_ordered_ends_first_then_single_differences(paths, cache, tmp_path):
    folder = paths.write_path(tmp_path, paths.PathStudy(FOUR, additive), cache)
    found = analyse(load_frames(folder))
    assert found.order[:4] == ("from", "to", "from-plus-model.norm", "from-plus-model.activation")
    assert all(slug.startswith("walk-") for slug in found.order[10:])
    assert len(found.order) == len(found.frames.variants)


# the error from orders that were not walked


def test_the_order_error_is_right_on_average_over_all_samples_of_pairs():
    names = "abcd"
    orders = list(itertools.permutations(names))
    pairs = [(order, order[::-1]) for order in orders if order < order[::-1]]
    change = {order: noise("order", order) for order in orders}
    truth = plain.fmean(change.values())
    squares, errors = [], []
    for sample in itertools.combinations(pairs, 4):
        walked = [order for pair in sample for order in pair]
        changes = [change[order] for order in walked]
        squares.append((plain.fmean(changes) - truth) ** 2)
        errors.append(order_error(walked, changes, 24) ** 2)
    assert plain.fmean(errors) == pytest.approx(plain.fmean(squares), rel=1e-9)


def test_the_order_error_of_single_orders_is_that_of_a_sample_without_replacement():
    changes = [0.1, 0.4, 0.2]
    orders = ["abcd", "bacd", "cabd"]
    expected = plain.stdev(changes) / math.sqrt(3) * math.sqrt(1 - 3 / 24)
    assert order_error(orders, changes, 24) == pytest.approx(expected)


def test_the_order_error_is_nothing_over_all_orders_and_unknown_from_one_draw():
    assert order_error(["ab", "ba"], [0.1, 0.3], 2) == 0.0
    assert math.isnan(order_error(["abc", "cba"], [0.1, 0.3], 6))

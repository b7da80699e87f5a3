"""Batch plans, for any lengths, budget and number of sentences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead.data.batches import BatchPlan, SentenceBatches, make_batches
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.loop import split_tensors

FIXED = (40, 39)
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)
BUDGETS = st.integers(1, 400)
CALM = settings(max_examples=25, deadline=None)


def plan_of(lengths, budget, exact=False):
    source, target = np.array(lengths).T
    return BatchPlan(source, target, budget, exact)


def rows_of(plan, seed, epoch):
    """Return the rows and the padded lengths of every batch of an epoch, in the order of training."""
    return [(rows[0].tolist(), *times) for rows, *times in plan.of_epoch([seed], epoch)]


@CALM
@given(LENGTHS, BUDGETS, st.booleans(), st.integers(1, 5), st.integers(0, 3))
def test_batches_hold_every_pair_once_within_their_padded_lengths_and_the_budget(
    lengths, budget, exact, seed, epoch
):
    plan = plan_of(lengths, budget, exact)
    batches = rows_of(plan, seed, epoch)
    assert sorted(row for rows, *_ in batches for row in rows) == list(range(len(lengths)))
    assert len(batches) == plan.steps_per_epoch
    for rows, *times in batches:
        assert len(rows) == 1 or len(rows) * max(times) <= budget
        assert all(lengths[row][0] <= times[0] and lengths[row][1] <= times[1] for row in rows)
    for bucket in plan.buckets:
        assert max(bucket.sizes) - min(bucket.sizes) <= 1
        assert sum(bucket.sizes) == len(bucket.rows)


def test_order_of_pairs_and_batches_differs_between_seeds_and_epochs():
    plan = plan_of([(1 + row % 12, 1 + row % 9) for row in range(200)], 100)
    first = rows_of(plan, 1, 0)
    assert first == rows_of(plan, 1, 0)
    assert first != rows_of(plan, 2, 0)
    assert first != rows_of(plan, 1, 1)
    assert [times for _, *times in first] != [times for _, *times in rows_of(plan, 1, 1)]


def test_exact_buckets_hold_pairs_of_equal_lengths():
    """Pairs of rare lengths share batches with pairs of an equal longer side."""
    lengths = [(5, 3)] * 200 + [(3, 5)] * 90 + [(5, 5)] * 60 + [(4, 4)] * 70 + [(5, 4)] * 2
    plan = plan_of(lengths, 200, exact=True)
    shapes = {(bucket.source_time, bucket.target_time) for bucket in plan.buckets}
    assert shapes == {(5, 4), (3, 5), (5, 5), (4, 4)}
    assert len(plan.buckets) == 4
    assert plan_of(lengths[:-2], 200, exact=True).padding() == {"source": 0.0, "target": 0.0}


def test_training_takes_its_batches_from_the_configured_buckets():
    found = []
    for kind in ("coarse", "exact"):
        config = tiny_config(train={"batch_tokens": 40, "length_buckets": kind})
        split = split_tensors(config, tiny_data(), torch.device("cpu"))["train"]
        lengths = split.source_lengths.numpy(), split.target_lengths.numpy()
        found.append(shapes_of(make_batches(config, *lengths, {"source": 12, "target": 12})))
        assert found[-1] == shapes_of(BatchPlan(*lengths, 40, kind == "exact"))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "train",
    [{"batch_tokens": 40}, {"batch_tokens": 40, "length_buckets": "exact"}, {"batch_size": 5}],
)
def test_both_architectures_train_on_the_same_batches(train):
    """A decoder-only model reads source and target as one sequence; only the padded length differs."""
    configs = [tiny_config(train=train), tiny_config(train=train, architecture="decoder-only")]
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 12, (2, 60))
    plans = [make_batches(config, *lengths, {"source": 12, "target": 12}) for config in configs]
    assert plans[0].steps_per_epoch == plans[1].steps_per_epoch
    for (rows, *times), (same_rows, *joined) in zip(
        *(plan.of_epoch([1, 2], 3) for plan in plans), strict=True
    ):
        assert rows.tolist() == same_rows.tolist()
        assert joined[1] == times[1]
        assert lengths.sum(0)[rows].max() <= joined[0] <= sum(times)


def shapes_of(plan):
    return [(len(rows[0]), *times) for rows, *times in plan.of_epoch([1], 0)]


def sentences_of(lengths, size, times=None):
    source, target = np.array(lengths).T
    return SentenceBatches(source, target, size, times)


TIMES = st.sampled_from([None, FIXED])
SIZES = st.integers(1, 50)


@CALM
@given(LENGTHS, SIZES, TIMES, st.integers(1, 5), st.integers(0, 3))
def test_shuffled_batches_hold_every_pair_once_and_all_but_the_last_are_full(
    lengths, size, times, seed, epoch
):
    plan = sentences_of(lengths, size, times)
    batches = [rows[0].tolist() for rows, *_ in plan.of_epoch([seed], epoch)]
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    assert all(len(rows) == size for rows in batches[:-1])
    assert 1 <= len(batches[-1]) <= size
    assert len(batches) == plan.steps_per_epoch


KINDS = st.sampled_from(["budget", "batch", "fixed"])


def plan_of_kind(lengths, size, kind):
    if kind == "budget":
        return plan_of(lengths, 4 * size)
    return sentences_of(lengths, size, FIXED if kind == "fixed" else None)


@CALM
@given(LENGTHS, SIZES, KINDS, st.integers(0, 3))
def test_batches_and_padding_of_a_member_do_not_depend_on_its_stack(lengths, size, kind, start):
    plan = plan_of_kind(lengths, size, kind)
    together = list(plan.of_epoch([4, 1, 99], 2, start))
    for member, seed in enumerate((4, 1, 99)):
        single = list(plan.of_epoch([seed], 2))[start:]
        assert [rows[0].tolist() for rows, *_ in single] == [
            rows[member].tolist() for rows, *_ in together
        ]
        assert [shape for _, *shape in single] == [shape for _, *shape in together]


@CALM
@given(LENGTHS, SIZES)
def test_batches_are_padded_to_their_longest_sentence_over_all_seeds(lengths, size):
    for rows, source_time, target_time in sentences_of(lengths, size).of_epoch([1, 2, 7], 0):
        for own in rows.tolist():
            assert max(lengths[row][0] for row in own) == source_time
            assert max(lengths[row][1] for row in own) == target_time


@CALM
@given(LENGTHS, SIZES, KINDS)
def test_the_padding_fraction_equals_a_count_over_tokens(lengths, size, kind):
    plan = plan_of_kind(lengths, size, kind)
    empty, whole = [0, 0], [0, 0]
    for rows, *times in plan.of_epoch([5], 0):
        for row in rows[0].tolist():
            for side in (0, 1):
                whole[side] += times[side]
                empty[side] += times[side] - lengths[row][side]
    found = plan.padding()
    assert abs(found["source"] - empty[0] / whole[0]) < 1e-12
    assert abs(found["target"] - empty[1] / whole[1]) < 1e-12

"""Batch plans, for any lengths and budget."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead.data.batches import STEP, BatchPlan

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)
BUDGETS = st.integers(1, 400)
CALM = settings(max_examples=60, deadline=None)


def plan_of(lengths, budget):
    source, target = np.array(lengths).T
    return BatchPlan(source, target, budget)


def rows_of(plan, seed, epoch):
    """Return the rows of every batch of an epoch, in the order of training."""
    order = plan.permuted_rows(seed, epoch)
    return [
        (slot.bucket, order[slot.bucket][slot.start : slot.start + slot.size].tolist())
        for slot in plan.slots(epoch)
    ]


@CALM
@given(LENGTHS, BUDGETS, st.integers(1, 5), st.integers(0, 3))
def test_every_pair_is_visited_once_an_epoch(lengths, budget, seed, epoch):
    plan = plan_of(lengths, budget)
    visited = [row for _, rows in rows_of(plan, seed, epoch) for row in rows]
    assert sorted(visited) == list(range(len(lengths)))


@CALM
@given(LENGTHS, BUDGETS)
def test_budget_is_kept_by_batches_of_more_than_one_pair(lengths, budget):
    plan = plan_of(lengths, budget)
    for index, rows in rows_of(plan, 1, 0):
        bucket = plan.buckets[index]
        assert len(rows) == 1 or len(rows) * max(bucket.source_time, bucket.target_time) <= budget


@CALM
@given(LENGTHS, BUDGETS)
def test_every_pair_fits_the_times_of_its_batch(lengths, budget):
    plan = plan_of(lengths, budget)
    for index, rows in rows_of(plan, 2, 1):
        bucket = plan.buckets[index]
        for row in rows:
            assert lengths[row][0] <= bucket.source_time
            assert lengths[row][1] <= bucket.target_time


@CALM
@given(LENGTHS, BUDGETS, st.integers(0, 3))
def test_shapes_are_the_same_for_every_seed(lengths, budget, epoch):
    plan = plan_of(lengths, budget)
    shapes = [
        [(index, len(rows)) for index, rows in rows_of(plan, seed, epoch)] for seed in (1, 2, 99)
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == plan.steps_per_epoch


@CALM
@given(LENGTHS, BUDGETS)
def test_batches_of_a_bucket_are_of_nearly_equal_size(lengths, budget):
    for bucket in plan_of(lengths, budget).buckets:
        assert max(bucket.sizes) - min(bucket.sizes) <= 1
        assert sum(bucket.sizes) == len(bucket.rows)


def test_seeds_and_epochs_order_pairs_and_batches_anew():
    plan = plan_of([(1 + row % 12, 1 + row % 9) for row in range(200)], 100)
    first = rows_of(plan, 1, 0)
    assert first == rows_of(plan, 1, 0)
    assert first != rows_of(plan, 2, 0)
    assert first != rows_of(plan, 1, 1)
    assert [index for index, _ in first] != [index for index, _ in rows_of(plan, 1, 1)]


def test_plenty_of_pairs_are_grouped_by_length():
    """With enough pairs of every length, no batch pads by a whole step or more."""
    lengths = [(1 + row % 20, 1 + row % 20) for row in range(4000)]
    plan = plan_of(lengths, 200)
    for _, rows in rows_of(plan, 1, 0):
        longest = [max(lengths[row]) for row in rows]
        assert max(longest) - min(longest) < STEP

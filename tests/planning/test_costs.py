import math

import numpy as np
import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.model import counting
from headtohead.planning.costs import DataSizes, Finished, Work, count_model, estimate, seconds_of, training_flops
from headtohead.planning.power import Power, typical_sd
from headtohead.statistics.block_model import block_model
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.paired_tests import paired
from headtohead.storage.run import ExecutionRecord
from headtohead.training.loop import StackTraining

SIZES = DataSizes(source_words=10, target_words=12, source_length=5.0, target_length=6.0, pairs=100)


@pytest.mark.parametrize(
    "train", [{"batch_tokens": 64}, {"batch_size": 7}, {"batch_tokens": 64, "length_buckets": "exact"}]
)
def test_the_plan_states_the_steps_that_training_takes(plan, train):
    found = plan("", *(f"train.{name}={value}" for name, value in {"epochs": 2, **train}.items()))
    (variant,) = found.variants
    training = StackTraining(variant.config, [1], found.data, torch.device("cpu"))
    record = found.record().variants[0]
    assert record.steps == variant.record.steps == training.steps
    assert record.evaluate_every == training.evaluate_every


def test_training_takes_three_forward_passes_over_every_target_token():
    assert training_flops(1000.0, 2.0, SIZES) == pytest.approx(3 * 1000.0 * 2 * 100 * 6.0)


def test_the_estimated_time_uses_the_median_of_finished_runs():
    finished = [Finished(100.0, 10.0, 1), Finished(100.0, 20.0, 1), Finished(100.0, 50.0, 1)]
    found = estimate([Work(50.0, 32)] * 2, finished, cores=4)
    assert found.seconds == pytest.approx(10.0)
    assert found.summary == "10 s (from 3 finished runs, 2 in parallel)"


def test_stacks_share_the_cores():
    finished = [Finished(100.0, 10.0, 1)]
    remaining = [Work(100.0, 32)] * 4
    assert estimate(remaining, finished, cores=2).seconds == pytest.approx(20.0)
    assert estimate(remaining, [Finished(100.0, 10.0, 2)], cores=2).seconds == pytest.approx(40.0)


def test_a_run_without_a_time_does_not_affect_the_estimate():
    assert estimate([Work(1.0, 32)], [Finished(100.0, 0.0, 1)], cores=2).basis.startswith("rough")


def test_the_time_of_a_member_is_its_fraction_of_the_stack():
    metrics = {"system/wall_seconds": 12.0}
    execution = ExecutionRecord(stack=("a", "b", "c"), member=0, threads=1, device="cpu", dtype="float32")
    assert seconds_of(metrics, execution) == 4.0
    assert seconds_of({}, execution) == 0.0


def test_the_detectable_difference_is_detected_with_the_stated_power():
    """The oracle is a simulation: the test of the first of four contrasts, of that size."""

    found = Power("variant", 4, 6, 5, "test/bleu")
    detected = 0
    for scores in np.random.default_rng(1).normal(0, math.sqrt(0.5), size=(4000, 5, 6)):
        scores[1] += found.effect
        model, difference = block_model(scores), paired(scores[1], scores[0])
        assert model is not None
        detected += model.moderated(difference, 2.0).p <= 0.05 / 4
    assert detected / 4000 == pytest.approx(0.8, abs=0.03)


def test_the_standard_deviation_is_that_of_differences_within_seeds():
    scores = {"a": {1: 1.0, 2: 2.0, 3: 4.0}, "b": {1: 0.0, 2: 1.0, 3: 3.0}, "c": {3: 0.0}}
    differences = {other: pair_differences(scores, [("a", other)])[1][0] for other in "bc"}
    assert typical_sd([differences["b"], differences["c"]]) == 0.0
    assert typical_sd([differences["c"]]) is None


@pytest.mark.parametrize(
    "change",
    [
        {"quirks.decoder_feed_forward": "after-each"},
        {"quirks.min_vocab_size": 5000},
        {"quirks.shared_modules": ["norm", "feed-forward"]},
        {"quirks.cross_attention_memory": "decoder"},
        {"attention": "linear", "positional": "none", "model.dropout_attention": 0.0},
        {"attention": "linear", "positional": "none", "model.dropout_attention": 0.0, "masking": "none"},
        {"model.tie_embeddings": "output"},
    ],
    ids=str,
)
def test_a_counter_that_knows_another_variant_counts_the_built_model(registry, change):
    base = {"train": {"epochs": 1}, "model": {"d_model": 8, "heads": 2, "d_ff": 4}}
    counts = {}
    linear = base | {"attention": "linear", "positional": "none"}
    for known in (base, linear, linear | {"model.dropout_attention": 0.0}):
        count_model(resolve(known, registry), SIZES, counts)
    config = resolve(base | change, registry)
    sizes = SIZES.source_words, SIZES.target_words, SIZES.source_length, SIZES.target_length
    assert count_model(config, SIZES, counts) == counting.count(config, *sizes)

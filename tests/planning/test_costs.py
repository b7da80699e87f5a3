import math

import numpy as np
import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.model import counting
from headtohead.planning.estimate import estimate_time
from headtohead.planning.power import Power
from headtohead.planning.record import experiment_record
from headtohead.planning.validation import evaluation_interval
from headtohead.schema.run_config import changed
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.loop import StackTraining
from headtohead_judge.block_model import block_model
from headtohead_judge.paired_tests import paired

SIZES = (10, 12, 5.0, 6.0)
"""Words and mean lengths of source and target."""


@pytest.mark.parametrize(
    ("changes", "share_of_steps"),
    [
        (("train.batch_tokens=64",), 0.2),
        (("train.batch_size=7",), 0.2),
        (("train.batch_tokens=64", "train.length_buckets=exact"), 0.2),
        (("train.batch_size=7", "quirks.notebooks.shift_targets=false"), 0.2),
        (("model.architecture=decoder-only",), 0.2),
        (("train.batch_tokens=64", "train.epochs=20"), 0.1),
        (("train.batch_tokens=64", "train.early_stopping={}"), 0.1),
    ],
)
def test_the_plan_states_the_steps_and_the_interval_of_evaluations_of_training(
    plan, changes, share_of_steps
):
    """Ten validations of a tenth of the corpus cost 5 % of about 8 epochs."""
    found = plan("", "train.epochs=2", *changes)
    (variant,) = found.variants
    training = StackTraining(variant.config, [1], found.data, torch.device("cpu"))
    record = experiment_record(found).variants[0]
    assert record.steps == variant.record.steps == training.steps
    assert record.evaluate_every == training.evaluate_every
    assert record.evaluate_every == pytest.approx(share_of_steps * record.steps, abs=1)


def test_ten_validations_become_five_where_they_would_cost_more_than_a_twentieth_of_the_training():
    data = tiny_data()
    lengths = [len(target) - 1 for target in data.splits["valid"].target]
    assert len(set(lengths)) > 1
    tokens = len(lengths) * max(lengths)  # one padded batch
    limit = 10 * tokens / (3 * 0.05 * 100)
    config = tiny_config(train={"batch_size": 8, "steps": 100})
    assert evaluation_interval(config, data, 100, 1.001 * limit) == 10
    assert evaluation_interval(config, data, 100, 0.999 * limit) == 20
    explicit = changed(config, train={"evaluate_every": 7})
    assert evaluation_interval(explicit, data, 100, 1.0) == 7


def test_training_takes_three_forward_passes_over_every_decoder_input(plan):
    found = plan("", "train.epochs=2")
    (variant,), targets = found.variants, found.data.splits["train"].target
    passes = 3 * variant.record.counts.flops_per_token * sum(len(target) - 1 for target in targets)
    assert variant.training_flops(found.data) == pytest.approx(2 * passes)


@pytest.mark.parametrize(
    ("seconds", "threads", "cores", "expected"),
    [
        ([10.0, 20.0, 50.0], 1, 4, 12.5),
        ([10.0], 1, 2, 12.5),
        ([10.0], 2, 2, 25.0),
        ([0.0], 1, 2, None),
    ],
    ids=["median", "parallel", "threads", "no time"],
)
def test_the_estimated_time_uses_finished_runs(
    plan, record, monkeypatch, seconds, threads, cores, expected
):
    monkeypatch.setattr("headtohead.planning.estimate.cpu_cores", lambda: cores)
    first = plan(seeds=len(seconds) + 5)
    for run, measured in zip(first.runs, seconds, strict=False):
        execution = {
            "stack": ["a", "b"],
            "member": 0,
            "threads": threads,
            "device": "cpu",
            "dtype": "float32",
        }
        record(
            first, run, metrics={"system/wall_seconds": measured}, changes={"execution": execution}
        )
    found = plan(seeds=len(first.runs))
    assert (
        estimate_time(found).seconds == pytest.approx(expected)
        if expected
        else estimate_time(found).basis.startswith("rough")
    )


def test_the_detectable_difference_is_detected_with_the_stated_power():
    """The oracle is a simulation: the test of the first of four contrasts, of that size."""

    found = Power("variant", "abcd", 6, 5, "test/bleu")
    detected = 0
    for scores in np.random.default_rng(1).normal(0, math.sqrt(0.5), size=(600, 5, 6)):
        scores[1] += found.effect
        model, difference = block_model(scores), paired(scores[1], scores[0])
        assert model is not None
        detected += model.moderated(difference, 2.0).p <= 0.05 / 4
    assert detected / 600 == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize(
    "change",
    [
        {"quirks.notebooks.decoder_feed_forward": "after-each"},
        {"model.min_vocab_size": 5000},
        {"model.shared_modules": ["norm", "feed-forward"]},
        {"quirks.notebooks.cross_attention_memory": "decoder"},
        {"attention": "linear", "positional": "none", "model.dropout_attention": 0.0},
        {
            "attention": "linear",
            "positional": "none",
            "model.dropout_attention": 0.0,
            "masking": "none",
        },
        {"model.tie_embeddings": "output"},
    ],
    ids=str,
)
def test_a_counter_that_knows_another_variant_counts_the_built_model(change):
    base = {"train": {"epochs": 1}, "model": {"d_model": 8, "heads": 2, "d_ff": 4, "layers": 1}}
    linear = base | {"attention": "linear", "positional": "none"}
    for known in (base, linear, linear | {"model.dropout_attention": 0.0}):
        counting.count(resolve(known), *SIZES)
    config = resolve(base | change)
    counted = counting.count(config, *SIZES)
    counting._COUNTED.clear()
    assert counted == counting.count(config, *SIZES)

"""The estimated memory of a step against the allocations of torch on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.model.counting import training_bytes
from headtohead.planning.stacking import largest_batch
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.training.loop import StackTraining

TOLERANCE = 0.25
"""Allowed relative difference between estimate and measured peak; stacks leave this much memory free."""

SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "wide": {"model": {"d_model": 128, "heads": 4, "d_ff": 512, "layers": 1}},
    "deep": {"model": {"d_model": 32, "heads": 2, "d_ff": 64, "layers": 6, "dropout": 0.2}},
    "many words": {"quirks": {"min_vocab_size": 20000}, "train": {"batch_size": None, "batch_tokens": 512}},
    "doubles": {"train": {"precision": "float64"}},
    "explicit path": {"positional": "shaw-relative"},
    "pieces": {"train": {"num_microbatches": 4}},
}


def config_of(choices: dict[str, Any]) -> RunConfig:
    base: dict[str, dict[str, Any]] = {
        "data": {"dataset": "toy-grammar", "size": 300},
        "model": {"d_model": 64, "heads": 4, "layers": 2, "d_ff": 128},
        "train": {"steps": 3, "batch_size": 64, "evaluate_every": 3},
        "quirks": {"pad_to": "corpus"},
    }
    for name, part in choices.items():
        base[name] = base.get(name, {}) | part if isinstance(part, dict) else part
    return resolve(base, current())


def measured_peak(config: RunConfig, members: int) -> int:
    """Return the peak of a stack's weights and three steps in bytes."""
    data = prepare(config.data, cache_root())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        training = StackTraining(
            config, range(members), data, torch.device("cpu"), num_microbatches=config.train.num_microbatches
        )
        batches = training._batches()
        for _ in range(max(3, training.plan.steps_per_epoch)):
            training._step(next(batches))
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in profiled.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "members"),
    [
        ("small", 3),
        pytest.param("small", 1, marks=pytest.mark.slow),
        *(pytest.param(size, 3, marks=pytest.mark.slow) for size in SIZES if size != "small"),
    ],
)
def test_the_estimate_is_near_the_measured_peak(size: str, members: int) -> None:
    config = config_of(SIZES[size])
    data = prepare(config.data, cache_root())
    batch = largest_batch(config, data.record["longest"])
    vocab_sizes = len(data.source_vocabulary), len(data.target_vocabulary)
    estimate = members * training_bytes(config, *vocab_sizes, batch)
    assert estimate == pytest.approx(measured_peak(config, members), rel=TOLERANCE)

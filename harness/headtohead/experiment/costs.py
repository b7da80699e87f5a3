"""What a plan costs: weights and FLOPs of a variant, and the time of what is still to run."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headtohead.data import PreparedData
from headtohead.experiment.schema import EvaluateConfig, RunConfig, TrainConfig
from headtohead.model import counting
from headtohead.model.counting import Counts

TRAINING = 3.0
"""A training step costs about three forward passes."""

FLOPS_PER_CORE = 6e9
"""FLOPs per second and core that small models were seen to reach in float32, evaluation included;
only used while no run of the experiment has finished."""


@dataclass(frozen=True)
class DataSizes:
    """What costs depend on in the data."""

    source_words: int
    target_words: int
    source_length: float
    target_length: float
    pairs: int
    tokens: int

    @classmethod
    def of(cls, data: PreparedData) -> DataSizes:
        train = data.splits["train"]
        source = np.array([len(ids) for ids in train.source])
        target = np.array([len(ids) for ids in train.target])
        return cls(
            source_words=len(data.source_vocabulary),
            target_words=len(data.target_vocabulary),
            source_length=float(source.mean()),
            target_length=float(target.mean()),
            pairs=len(source),
            tokens=int(np.maximum(source, target).sum()),
        )


def count(config: RunConfig, sizes: DataSizes) -> Counts:
    """Count one variant's costs; what does not shape the model is left out of the look-up."""
    shape = config.model_copy(update={"train": TrainConfig(), "evaluate": EvaluateConfig()})
    return counting.count(
        shape, sizes.source_words, sizes.target_words, sizes.source_length, sizes.target_length
    )


def steps(config: RunConfig, sizes: DataSizes) -> int:
    """Return the optimizer steps of a run, padding left out of account."""
    if config.train.steps is not None:
        return config.train.steps
    return max(1, math.ceil((config.train.epochs or 0) * sizes.tokens / config.train.batch_tokens))


def work(config: RunConfig, flops_per_token: float, sizes: DataSizes) -> float:
    """Return the FLOPs of training one run."""
    passes = steps(config, sizes) * config.train.batch_tokens / sizes.tokens
    return TRAINING * flops_per_token * passes * sizes.pairs * sizes.target_length


@dataclass(frozen=True)
class Estimate:
    """Seconds that the remaining runs take on this machine, and what that is based on."""

    seconds: float
    basis: str

    @property
    def words(self) -> str:
        return f"{duration(self.seconds)} ({self.basis})"


def estimate(remaining: Iterable[float], finished: Iterable[tuple[float, float]]) -> Estimate:
    """Estimate from FLOPs of the runs to come and (FLOPs, seconds) of finished runs.

    A finished run's seconds are its share of its stack's wall time.
    """
    rates = [flops / seconds for flops, seconds in finished if seconds > 0 and flops > 0]
    total = sum(remaining)
    if rates:
        return Estimate(
            total / statistics.median(rates), f"from {len(rates)} finished runs, one after another"
        )
    cores = os.cpu_count() or 1
    return Estimate(total / (FLOPS_PER_CORE * cores), f"rough: no finished run yet, {cores} cores")


def seconds_of(results: Mapping[str, Any], record: Mapping[str, Any]) -> float:
    """Return a finished run's share of its stack's wall time."""
    wall = results.get("metrics", {}).get("system/wall_seconds") or 0.0
    members = len(record.get("execution", {}).get("stack") or [None])
    return float(wall) / members


def duration(seconds: float) -> str:
    """Write a duration with two units at most: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(1, round(seconds))
    for unit, size, smaller, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"

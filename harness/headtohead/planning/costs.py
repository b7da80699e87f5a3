"""What a plan costs: weights and FLOPs of a variant, and the time of what is still to run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from headtohead.data import PreparedData
from headtohead.model import counting
from headtohead.model.counting import Counts
from headtohead.planning.duration import duration
from headtohead.schema.run_config import RunConfig
from headtohead.storage.records import ExecutionRecord

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

    @classmethod
    def of(cls, data: PreparedData) -> DataSizes:
        """Measure the training part."""
        train = data.splits["train"]
        source = np.array([len(ids) for ids in train.source])
        target = np.array([len(ids) for ids in train.target])
        return cls(
            source_words=len(data.source_vocabulary),
            target_words=len(data.target_vocabulary),
            source_length=float(source.mean()),
            target_length=float(target.mean()),
            pairs=len(source),
        )


class CostCounter:
    """Counts variants, the model built no more often than needed.

    Masks, dropout and training do not change a count, and every count is linear in d_ff: two
    widths of one shape give all others.
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, DataSizes], dict[int, Counts]] = {}

    def count(self, config: RunConfig, sizes: DataSizes) -> Counts:
        """Return one variant's counts."""
        d_ff = config.model.d_ff
        known = self._shapes.setdefault((_shape(config), sizes), {})
        if d_ff not in known:
            known[d_ff] = _between(known, d_ff) if len(known) > 1 else _built(config, sizes)
        return known[d_ff]


def _shape(config: RunConfig) -> str:
    model = {name for name in type(config.model).model_fields if name.startswith("dropout")}
    return config.model_dump_json(include={"positional", "attention", "model"}, exclude={"model": model | {"d_ff"}})


def _built(config: RunConfig, sizes: DataSizes) -> Counts:
    return counting.count(config, sizes.source_words, sizes.target_words, sizes.source_length, sizes.target_length)


def _between(known: Mapping[int, Counts], d_ff: int) -> Counts:
    (first, low), (second, high) = list(known.items())[:2]
    part = Fraction(d_ff - first, second - first)
    return replace(
        low,
        total=int(low.total + part * (high.total - low.total)),
        non_embedding=int(low.non_embedding + part * (high.non_embedding - low.non_embedding)),
        flops_per_token=low.flops_per_token + float(part) * (high.flops_per_token - low.flops_per_token),
    )


def training_flops(flops_per_token: float, epochs: float, sizes: DataSizes) -> float:
    """Return the FLOPs of training one run for a number of passes over the data."""
    return TRAINING * flops_per_token * epochs * sizes.pairs * sizes.target_length


@dataclass(frozen=True)
class Estimate:
    """Seconds that the remaining runs take on this machine, and what that is based on."""

    seconds: float
    basis: str

    @property
    def words(self) -> str:
        """The time, and in brackets how it was found."""
        return f"{duration(self.seconds)} ({self.basis})"


@dataclass(frozen=True)
class Finished:
    """A finished run: FLOPs of its training, its share of its stack's wall time, its threads."""

    flops: float
    seconds: float
    threads: int


def estimate(
    remaining: Sequence[float], stacks: int, finished: Iterable[Finished], cores: int | None = None
) -> Estimate:
    """Estimate the time of runs to come.

    Args:
        remaining: FLOPs of each run to come.
        stacks: Processes that they are shared out to.
        finished: Runs of this experiment that are done.
        cores: Of this machine; default: all that this process may use.
    """
    cores = cores or _cores()
    known = [one for one in finished if one.seconds > 0 and one.flops > 0]
    if not known:
        rate, basis = FLOPS_PER_CORE * cores, f"rough: no finished run yet, {cores} cores"
    else:
        threads = round(statistics.median(one.threads for one in known))
        at_once = max(1, min(stacks, cores // max(1, threads)))
        rate = at_once * statistics.median(one.flops / one.seconds for one in known)
        basis = f"from {len(known)} finished runs, {at_once} at a time"
    return Estimate(sum(remaining) / rate, basis)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def seconds_of(metrics: Mapping[str, float | None], execution: ExecutionRecord | None) -> float:
    """Return a finished run's share of its stack's wall time."""
    wall = metrics.get("system/wall_seconds") or 0.0
    return float(wall) / max(1, len(execution.stack) if execution else 1)

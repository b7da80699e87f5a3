"""Costs of a plan: parameters, FLOPs and memory of a variant, and the estimated time of the remaining runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headtohead.config.entries import entries_of
from headtohead.config.loading import LoadedExperiment
from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError, PluginError, is_disk_error, machine_limit
from headtohead.model import counting
from headtohead.model.builder import build_components
from headtohead.planning.variants import Variant
from headtohead.plugins.launcher import cpu_cores, gpu_memory, machine_memory
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import ModelCounts
from headtohead.storage.progress import duration
from headtohead.storage.run import ExecutionRecord

TRAINING = 3.0
"""FLOPs of a training step, in forward passes."""

MAX_FLOPS_PER_CORE = 50e9
"""FLOPs per second and core in float32, evaluation included, that models of width 128 and more reached.

The committed reports have 5 to 10 GFLOP/s for width 32, 18 for 48 and 20 to 30 for 64: roughly 6 · (width / 32)².
"""


@dataclass(frozen=True)
class DataSizes:
    """Properties of prepared data that costs depend on: vocabulary sizes, mean lengths in tokens, totals."""

    source_words: int
    target_words: int
    source_length: float
    target_length: float
    pairs: int

    @classmethod
    def from_data(cls, data: PreparedData) -> DataSizes:
        """Measure the training split."""
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


def count_model(config: RunConfig, sizes: DataSizes, known: dict[tuple[str, DataSizes], ModelCounts]) -> ModelCounts:
    """Return parameters and FLOPs of a configuration.

    Training settings and dropout outside of attention do not change them; ``known`` has the counts of equal models.
    """
    key = _shape(config), sizes
    if key not in known:
        known[key] = _counted(config, sizes)
    return known[key]


def _shape(config: RunConfig) -> str:
    # Masks and dropout of attention weights decide whether an attention style uses its fast path.
    ignored = {"dropout_embedding", "dropout_ffn", "dropout_residual"}
    parts = {"positional", "attention", "masking", "model", "quirks"}
    return config.model_dump_json(include=parts, exclude={"model": ignored})


def _counted(config: RunConfig, sizes: DataSizes) -> ModelCounts:
    """Return the counts of a model, which is built and called: the first time that the code of a plugin runs."""
    used = [current().find(family, entry.name) for family, entry in entries_of(config)]
    own = sorted({f"{entry.family}/{entry.name}" for entry in used if not entry.is_built_in})
    try:
        if own:
            build_components(config, range(1, 5))
        return counting.count(config, sizes.source_words, sizes.target_words, sizes.source_length, sizes.target_length)
    except Exception as error:
        if not own or is_disk_error(error, of_plugin=True) or machine_limit(error):
            raise
        reason = str(error) if isinstance(error, HeadToHeadError) else current().describe(error)
        traceback = "" if isinstance(error, HeadToHeadError) else " (h2h run --try prints the traceback)"
        raise PluginError(
            f"a model with {' and '.join(own)} fails: {reason}; correct the plugin, and test it with 'h2h check "
            f"{own[0]}'{traceback}"
        ) from error


def training_flops(flops_per_token: float, epochs: float, sizes: DataSizes) -> float:
    """Return the FLOPs of training one run for a number of passes over the data."""
    return TRAINING * flops_per_token * epochs * sizes.pairs * sizes.target_length


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of the remaining runs on this machine, and the basis of the estimate."""

    seconds: float
    basis: str

    @property
    def summary(self) -> str:
        """The duration, with its basis in parentheses."""
        return f"{duration(self.seconds)} ({self.basis})"


class Work(NamedTuple):
    """A run to train: its training FLOPs and its width."""

    flops: float
    d_model: int


class Finished(NamedTuple):
    """A finished run: its training FLOPs, its share of its stack's wall time in seconds, and its CPU threads."""

    flops: float
    seconds: float
    threads: int


def estimate(remaining: Sequence[Work], finished: Iterable[Finished], cores: int | None = None) -> Estimate:
    """Estimate the time of the remaining runs.

    Args:
        remaining: The remaining runs.
        finished: Finished runs of this experiment.
        cores: CPU cores; default: all cores that this process may use.
    """
    cores = cores or cpu_cores()
    measured = [run for run in finished if run.seconds > 0 and run.flops > 0]
    if not measured:
        seconds = sum(work.flops / min(MAX_FLOPS_PER_CORE, 6e9 * (work.d_model / 32) ** 2) for work in remaining)
        return Estimate(seconds / cores, f"rough: no finished run, {cores} cores")
    threads = round(statistics.median(run.threads for run in measured))
    # Every process gets a stack if there are enough runs.
    parallel = max(1, min(len(remaining), cores // max(1, threads)))
    rate = parallel * statistics.median(run.flops / run.seconds for run in measured)
    basis = f"from {len(measured)} finished runs, {parallel} in parallel"
    return Estimate(sum(work.flops for work in remaining) / rate, basis)


def seconds_of(metrics: Mapping[str, float | None], execution: ExecutionRecord) -> float:
    """Return a finished run's share of its stack's wall time."""
    return float(metrics.get("system/wall_seconds") or 0.0) / max(1, len(execution.stack))


def least_parameters(config: RunConfig) -> int:
    """Return the weights of the feed-forward networks, without building a module."""
    model, quirks = config.model, config.quirks
    in_decoder = 2 if quirks.decoder_feed_forward == "after-each" else 1
    networks = model.encoder_layers + in_decoder * model.decoder_layers
    return 2 * model.d_model * model.d_ff * (1 if "feed-forward" in quirks.shared_modules else networks)


def refuse_oversized(
    loaded: LoadedExperiment, variants: Sequence[Variant], parameters: Callable[[RunConfig], int]
) -> None:
    """Raise if a run of a variant cannot fit into the memory of this machine or of its GPU.

    A run needs at least its weights, and in training gradients and two moments. Activations are left out: a run that
    is out of memory divides its batch.

    Args:
        loaded: The experiment file.
        variants: The variants.
        parameters: Returns the number of weights of a variant, or a lower bound.

    Raises:
        HeadToHeadError: With the size of the first such variant and the available memory.
    """
    import torch

    available = max(machine_memory(), gpu_memory() if torch.cuda.is_available() else 0)
    for variant in variants:
        train, number = variant.config.train, parameters(variant.config)
        copies = 1 if train.epochs == 0 or variant.config.quirks.trainable is not None else 4
        needed = number * (8 if train.precision == "float64" else 4) * copies
        if needed > available:
            raise loaded.location("base", "model").error(
                f"variant '{variant.slug}' has at least {number:,} parameters, which need {needed / 2**30:,.1f} GiB in "
                f"training; {available / 2**30:,.1f} GiB are available; reduce d_model, d_ff, layers or the vocabulary"
            )

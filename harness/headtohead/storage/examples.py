"""Values per example of a run: losses and counts of its validation and test examples, in ``examples.safetensors``.

Every array has the smallest type that holds its values exactly, so scores that are computed from the file are those of
``results.json``. A sentence takes about 50 bytes with exact match, BLEU and chrF, and a block of a text about 20.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.schema.metric import LOSS, PERPLEXITY, TOKEN_ACCURACY, Metric
from headtohead.storage.run import EXAMPLES
from headtohead.storage.run_directory import RunDirectory

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

TYPES = (np.uint8, np.uint16, np.uint32, np.float32, np.float64)
"""Types of stored arrays, the smallest first."""


@dataclass(frozen=True)
class SplitExamples:
    """The values of the examples of a split in a run.

    Args:
        examples_hash: `Split.examples_hash`, which is equal in runs with the same examples.
        groups: The number of the group of each example, from 0, ``[example]``.
        num_labels: Number of labels of each example, ``[example]``.
        losses: Loss in nats, summed over the labels of each example, ``[example]``.
        correct: Number of labels that are predicted correctly, ``[example]``.
        outputs: Indices of the examples with an output, ``[output]``; empty for validation.
        counts: Counts of the outputs or targets by metric of the dataset, ``[output, count]``.
    """

    examples_hash: str
    groups: Numbers
    num_labels: Numbers
    losses: Floats
    correct: Numbers
    outputs: Numbers
    counts: Mapping[str, NDArray[Any]]

    def counts_of(self, metric: Metric) -> Floats | None:
        """Return the counts of a metric by group, ``[group, count]``, ascending by the number of the group.

        ``metric.pool`` of their sum is the score of the run. None if runs store no counts of the metric.
        """
        if metric.name in (LOSS.name, PERPLEXITY.name):
            return _by_group(self.groups, np.stack([self.losses, self.num_labels], axis=1))
        if metric.name == TOKEN_ACCURACY.name:
            return _by_group(self.groups, np.stack([self.correct, self.num_labels], axis=1))
        counts = self.counts.get(metric.counts_of or metric.name)
        if counts is None:
            return None
        return _by_group(self.groups[self.outputs], counts)


def _by_group(groups: Numbers, counts: NDArray[Any]) -> Floats:
    """Return counts ``[example, count]`` summed over the examples of each group, ``[group, count]``."""
    numbers, indices = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(numbers), counts.shape[1]))
    np.add.at(sums, indices.reshape(-1), counts)
    return sums


def write_examples(path: Path, by_split: Mapping[str, SplitExamples]) -> None:
    """Write the values of the splits of a run to a file, atomically."""
    from safetensors.numpy import save

    arrays: dict[str, NDArray[Any]] = {}
    for name, split in by_split.items():
        arrays[f"{name}/groups"] = split.groups
        arrays[f"{name}/num_labels"] = split.num_labels
        arrays[f"{name}/losses"] = split.losses
        arrays[f"{name}/correct"] = split.correct
        arrays[f"{name}/outputs"] = split.outputs
        for metric, counts in split.counts.items():
            arrays[f"{name}/counts/{metric}"] = counts
    hashes = {name: split.examples_hash for name, split in by_split.items()}
    smallest = {name: _in_smallest_type(array) for name, array in arrays.items()}
    content = save(smallest, {"examples_hashes": json.dumps(hashes)})
    files.replace(path, lambda temporary: temporary.write_bytes(content))


def _in_smallest_type(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with the first of `TYPES` that holds its values exactly; float64 if no other does."""
    for kind in TYPES:
        with np.errstate(invalid="ignore", over="ignore"):
            converted = array.astype(kind)
        if np.array_equal(converted, array, equal_nan=kind in (np.float32, np.float64)):
            break
    contiguous: NDArray[Any] = np.ascontiguousarray(converted)
    return contiguous


def read_examples(run: Path) -> dict[str, SplitExamples]:
    """Return the values per example of a run directory by split; empty if the run stores none.

    Raises:
        HeadToHeadError: If the file is damaged, or has other arrays than `write_examples` writes.
    """
    from safetensors import SafetensorError, safe_open

    directory = RunDirectory(run)
    if not directory.has(EXAMPLES):
        return {}
    path = directory.verified(EXAMPLES)
    try:
        with safe_open(path, framework="numpy") as file:
            hashes = json.loads((file.metadata() or {})["examples_hashes"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        return {
            str(name): _split(str(name), str(sha256), arrays) for name, sha256 in hashes.items()
        }
    except (
        SafetensorError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        problem = f"not a file of values per example ({error})"
        raise HeadToHeadError(files.unreadable(path, problem)) from error


def _split(name: str, examples_hash: str, arrays: Mapping[str, NDArray[Any]]) -> SplitExamples:
    """Return the values of a split; a missing array is a KeyError, and a wrong shape or value a ValueError."""
    losses = arrays[f"{name}/losses"]
    size = len(losses)
    outputs = _indices(arrays[f"{name}/outputs"], size)
    prefix = f"{name}/counts/"
    counts = {}
    for array_name, array in arrays.items():
        if array_name.startswith(prefix):
            if array.ndim != 2 or len(array) != len(outputs) or not np.isfinite(array).all():
                raise ValueError(
                    f"{array_name} has the shape {list(array.shape)}, or values that are not finite"
                )
            counts[array_name.removeprefix(prefix)] = array.astype(np.float64)
    if losses.ndim != 1 or np.isnan(losses).any():
        raise ValueError(f"{name}/losses is not a list of numbers")
    return SplitExamples(
        examples_hash=examples_hash,
        groups=_indices(arrays[f"{name}/groups"], size, size),
        num_labels=_indices(arrays[f"{name}/num_labels"], 2**32, size),
        losses=losses.astype(np.float64),
        correct=_indices(arrays[f"{name}/correct"], 2**32, size),
        outputs=outputs,
        counts=counts,
    )


def _indices(array: NDArray[Any], end: int, size: int | None = None) -> Numbers:
    """Return a list of ``size`` whole numbers from 0 to below ``end``; any number of them with None."""
    is_list = array.ndim == 1 and array.dtype.kind == "u" and size in (None, len(array))
    if not is_list or (len(array) and int(array.max()) >= end):
        raise ValueError(
            f"an array of the shape {list(array.shape)} is not a list of numbers below {end:,}"
        )
    return array.astype(np.int64)

"""Values of the groups of examples of a variant, from which the variance between examples is estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headtohead.data.metrics import find_metric
from headtohead.schema.metric import UNPADDED, Metric
from headtohead.storage.examples import SplitExamples, read_examples
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import counted, find
from headtohead_judge.groups import MIN_GROUPS
from headtohead_judge.variance import jackknife

MAX_VALUES = 500_000
"""Maximum number of values of a metric over all runs of an experiment; BLEU takes 20 µs a value."""

SPLITS = ("valid", "test")

NOT_OF_EXAMPLES = "{metric} is not a score of validation or test examples"
NOT_LOADED = "the dataset of this metric is not loaded; load its plugin with --plugin"
NOT_STORED = "runs store no values per example of {metric}"
WITHOUT_FILE = "a run has no values per example"
TOO_FEW = "{groups} of examples, fewer than {least}"
TOO_MANY = "there are more than {most:,} values per example"
OTHER_EXAMPLES = "the runs of a variant have different examples"
NOT_DEFINED = "the score is not defined without one of the groups of examples"
OTHER_SCORE = "the scores are not those of the stored values per example"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ExampleValues:
    """Values of groups of examples.

    Args:
        seeds: The seeds of the rows, ascending: those of all runs of the variant with a score.
        values: Jackknife values ``[seed, group]``; the mean over the groups of a seed is its score.
        examples_hash: Equal for two variants if their groups are the same, in the same order; only then may values be
            subtracted group by group.
    """

    seeds: tuple[int, ...]
    values: Floats
    examples_hash: str


class _NoValues(Exception):
    """Why a variant has no values in a metric, as a clause."""


def example_values(frames: Frames, slug: str, metric: str) -> ExampleValues | str:
    """Return the values of the groups of examples of a variant, or as a clause why there are none.

    A group is a passage of a text, sentences that a split keeps together, or a single example. Its value is a
    jackknife value: for a mean over groups of equal size, the mean of the group.

    There are no values for costs, heads, training metrics, scores without padding, and metrics of a dataset that is not
    loaded; of fewer than `MIN_GROUPS` groups or more than `MAX_VALUES` values over all runs; if a run with a score
    stores none, or those of other examples or of another score; and if the metric is not defined without one of the
    groups.

    Args:
        frames: The experiment.
        slug: A variant.
        metric: A metric with its split, such as ``valid/loss`` or ``test/bleu``.

    Raises:
        HeadToHeadError: If the file of a run is damaged, or two loaded datasets declare different metrics of this name.
        KeyError: If the experiment has no variant ``slug``, and the metric is of examples.
    """
    try:
        return _values(frames, slug, metric)
    except _NoValues as reason:
        return str(reason)


def _values(frames: Frames, slug: str, metric: str) -> ExampleValues:
    """Return the values of the groups of examples of a variant, as `example_values`.

    Raises:
        _NoValues: If there are none.
        HeadToHeadError: If the file of a run is damaged, or two loaded datasets declare different metrics of this name.
        KeyError: If the experiment has no variant ``slug``, and the metric is of examples.
    """
    split = metric.partition("/")[0]
    entry = None
    if split in SPLITS and not metric.endswith(UNPADDED):
        entry = find_metric(metric)  # the description of a record has no function that pools counts
        if entry is None and find(metric) is not None:
            raise _NoValues(NOT_LOADED)
    if entry is None or entry.pool is None:
        raise _NoValues(NOT_OF_EXAMPLES.format(metric=metric))
    scores = frames.scores(slug, metric)
    rows = frames.rows(slug)
    folders = {int(seed): frames.folders[str(run)] for run, seed in rows["seed"].items()}
    hashes = set()
    values = []
    for seed, score in scores.items():
        examples = _examples(folders[seed], split)
        hashes.add(examples.examples_hash)
        counts = _counts(examples, entry, metric)
        if counts.shape[0] * len(frames.runs) > MAX_VALUES:
            raise _NoValues(TOO_MANY.format(most=MAX_VALUES))
        values.append(_jackknife(counts, entry, score))
    if not values:
        raise _NoValues(WITHOUT_FILE)
    if len(hashes) > 1:
        raise _NoValues(OTHER_EXAMPLES)
    return ExampleValues(tuple(scores), np.array(values), hashes.pop())


def _examples(run: Path, split: str) -> SplitExamples:
    """Return the examples of a split that a run stored; raise `_NoValues` if it stored none."""
    by_split = read_examples(run)
    if split not in by_split:
        raise _NoValues(WITHOUT_FILE)
    return by_split[split]


def _counts(examples: SplitExamples, entry: Metric, metric: str) -> Floats:
    """Return the counts of at least `MIN_GROUPS` groups, ``[group, count]``; raise `_NoValues` without them."""
    counts = examples.counts_of(entry)
    if counts is None:
        raise _NoValues(NOT_STORED.format(metric=metric))
    if len(counts) < MIN_GROUPS:
        raise _NoValues(TOO_FEW.format(groups=counted(len(counts), "group"), least=MIN_GROUPS))
    return counts


def _jackknife(counts: Floats, metric: Metric, score: float) -> Floats:
    """Return the jackknife values of a score, one per group; their mean is the score (see `jackknife`).

    Args:
        counts: The counts of the groups, ``[group, count]``.
        metric: A metric with a function that computes it from counts.
        score: The stored score over all groups.

    Raises:
        _NoValues: If the metric is not defined over all groups, or not defined or not finite without one of them; or if
            the counts give another score.
    """
    assert metric.pool is not None
    total = counts.sum(axis=0)
    try:
        of_all = metric.pool(total.tolist())
        without_each = [metric.pool(others) for others in (total - counts).tolist()]
    except (ArithmeticError, ValueError) as error:  # math.log(0) is a ValueError
        raise _NoValues(NOT_DEFINED) from error
    if not math.isclose(of_all, score, rel_tol=1e-9, abs_tol=1e-9):
        raise _NoValues(OTHER_SCORE)
    if not np.isfinite(without_each).all():
        raise _NoValues(NOT_DEFINED)
    values: Floats = jackknife([of_all], [without_each])[0]  # a single seed
    return values

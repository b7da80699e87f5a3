"""The values of single test examples, which make the test examples a source of variance of every interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headtohead.schema.metric import UNPADDED, Metric
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import find
from headtohead.storage.translations import Translation, translations_of
from headtohead_judge.contrast import Side
from headtohead_judge.examples import MIN_GROUPS, Examples
from headtohead_judge.variance import jackknife

MAX_VALUES = 1_000_000
"""Maximum number of values of test examples over all runs; with more, only the seeds count."""

NOT_BY_EXAMPLE = "this score is not computed from single test examples"
NO_VALUES = "runs have no values of single test examples"
TOO_MANY = f"there are more than {MAX_VALUES:,} values of test examples"
TOO_FEW = f"there are fewer than {MIN_GROUPS} test examples, or passages of a text"
OTHER_SCORES = "the scores are not those of the stored values"

Floats = NDArray[np.float64]
Sentences = tuple[tuple[str, tuple[str, ...]], ...]
"""Sources and references of the test examples of a run."""


@dataclass(frozen=True)
class ExampleValues:
    """The values of the examples of each test set; none if there is a ``reason`` against them."""

    test_sets: tuple[Examples[Side], ...] = ()
    reason: str = ""


def example_values(
    frames: Frames, metric: str, scores: Mapping[str, Mapping[int, float]]
) -> ExampleValues:
    """Return the values of the test examples, or why there are none.

    Every run must have values of at least `MIN_GROUPS` examples, with the score of the run as their mean. Runs with the
    same examples have the same test set.

    Args:
        frames: The experiment.
        metric: The metric of the scores.
        scores: The scores by trained variant and seed.
    """
    if not _is_by_example(metric):
        return ExampleValues(reason=NOT_BY_EXAMPLE)
    num_values = 0
    test_sets: dict[Sentences, dict[Side, dict[int, Floats]]] = {}
    for slug, by_seed in scores.items():
        for seed, score in by_seed.items():
            rows = translations_of(frames, slug, seed)
            num_values += len(rows)
            values = sentence_values(rows, metric) if len(rows) > 1 else None
            reason = _problem(values, score, num_values)
            if reason or values is None:
                return ExampleValues(reason=reason)
            sentences = tuple((row.source, row.references) for row in rows)
            values_of_side = test_sets.setdefault(sentences, {}).setdefault(Side(slug, metric), {})
            values_of_side[seed] = values
    sets = [Examples(np.arange(len(rows)), values) for rows, values in test_sets.items()]
    return ExampleValues(tuple(sets))


def _problem(values: Floats | None, score: float, num_values: int) -> str:
    """Return why the values of a run cannot be used; empty if they can.

    Args:
        values: The values ``[example]`` of the run; None if it has none.
        score: The score of the run.
        num_values: Number of values of this run and all runs before.
    """
    if num_values > MAX_VALUES:
        return TOO_MANY
    if values is None:
        return NO_VALUES
    if len(values) < MIN_GROUPS:
        return TOO_FEW
    if not math.isclose(values.mean(), score, rel_tol=1e-6, abs_tol=1e-6):
        return OTHER_SCORES
    return ""


def _is_by_example(metric: str) -> bool:
    """Return whether a metric can be computed from counts of single test examples."""
    entry = of_test_sentences(metric)
    return entry is not None and entry.per_example is not None and entry.pool is not None


def sentence_values(rows: Sequence[Translation], metric: str) -> Floats | None:
    """Return values ``[sentence]`` with the score as their mean.

    They are jackknife values; for a mean over sentences, these are the values of the sentences. None for metrics that
    are not computed from counts of single translations, and for a score that is not defined without one of them.

    Args:
        rows: Translations of a run; at least two.
        metric: Name of the metric, with its split.
    """
    entry = of_test_sentences(metric)
    if entry is None or entry.per_example is None or entry.pool is None:
        return None
    hypotheses = [row.hypothesis for row in rows]
    references = tuple(row.references for row in rows)
    counts = np.asarray(entry.per_example(hypotheses, references))
    total = counts.sum(axis=0)
    try:
        score = entry.pool(total.tolist())
        without_each = [entry.pool((total - row).tolist()) for row in counts]
    except ArithmeticError:  # the score is not defined without one of the sentences
        return None
    values: Floats = jackknife([score], [without_each])[0]
    return values


def of_test_sentences(metric: str) -> Metric | None:
    """Return a metric of the padded test sentences; None for other data, no padding, or an unknown metric."""
    if not metric.startswith("test/") or metric.endswith(UNPADDED):
        return None
    return find(metric)

"""``Metric``: a score of a task, with everything that tables, tests and figures need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

UNPADDED = "_unpadded"
"""Suffix of a score that is measured a second time, with batches of one sentence."""


@dataclass(frozen=True)
class Metric:
    """A score; `storage.metrics.find` finds it by the last part of a name such as ``test/exact_match``.

    Args:
        name: Last part of the name in results, in lower case.
        label: Readable name; default: ``name`` with spaces.
        range: Minimum and maximum.
        higher_is_better: Direction; None for a value that is reported and not tested.
        decimals: Printed decimals.
        unit: Unit for axes and tables, or empty.
        per_example: Returns the counts ``[example, count]`` of outputs and their references; None for metrics that the
            training loop measures.
        per_target: Returns a count of a target text, the second count beside the example's loss in nats.
        pool: Returns the score of counts that are summed over examples; None if it is not computed from counts.
        by_stack: Whether the runs that train together have a single measurement, so that their seeds do not repeat it.
        counts_of: Of a metric that runs do not store, the name of the metric whose stored counts ``pool`` uses.
        signature: Returns the version and settings of an external implementation for the references of a test set.
    """

    name: str
    label: str = ""
    range: tuple[float, float] = (-math.inf, math.inf)
    higher_is_better: bool | None = True
    decimals: int = 3
    unit: str = ""
    per_example: Callable[[Sequence[str], tuple[tuple[str, ...], ...]], Any] | None = None
    per_target: Callable[[str], float] | None = None
    pool: Callable[[Sequence[float]], float] | None = None
    by_stack: bool = False
    counts_of: str = ""
    signature: Callable[[tuple[tuple[str, ...], ...]], str] | None = None

    @property
    def words(self) -> str:
        """The name without a split, as sentences and tables have it."""
        return self.label or self.name.replace("_", " ")


def _ratio(counts: Sequence[float]) -> float:
    """Return the first count divided by the second."""
    return counts[0] / counts[1] if counts[1] else math.nan


MAX_EXPONENT = 690.0
"""A loss of this many nats or more has no perplexity: it would be larger than a float can be."""

LOSS = Metric(
    "loss", range=(0.0, math.inf), higher_is_better=False, unit="nats per token", pool=_ratio
)
PERPLEXITY = Metric(
    "perplexity",
    range=(1.0, math.inf),
    higher_is_better=False,
    pool=lambda counts: math.exp(loss) if (loss := _ratio(counts)) < MAX_EXPONENT else math.nan,
)
TOKEN_ACCURACY = Metric("token_accuracy", range=(0.0, 1.0), pool=_ratio)

TEACHER_FORCED = (LOSS, PERPLEXITY, TOKEN_ACCURACY)
"""Metrics of every task, from the sums of loss, correct tokens and tokens of a pass that reads the target."""

COSTS = (
    Metric("peak_memory_mb", higher_is_better=False, decimals=1, by_stack=True),
    Metric("step_ms", higher_is_better=False, decimals=1, by_stack=True),
    Metric("train_seconds", higher_is_better=False, decimals=1, by_stack=True),
    Metric("wall_seconds", higher_is_better=False, decimals=1, by_stack=True),
    Metric("tokens_per_second", decimals=1, by_stack=True),
    Metric("tokens_seen", "target tokens seen in training", higher_is_better=None, decimals=0),
    Metric("mfu", by_stack=True),
)
"""Costs of training, ``system/NAME``."""

HEAD_MAPS = (Metric("entropy", higher_is_better=None), Metric("distance", higher_is_better=None))
"""Means over the recorded heads of a role, ``attention/ROLE/NAME``."""

LEARNING_RATE = Metric("lr", "learning rate", higher_is_better=None)
"""Learning rate of a step, ``train/lr``."""

HOST = {metric.name: metric for metric in (*TEACHER_FORCED, *COSTS, *HEAD_MAPS, LEARNING_RATE)}
"""Metrics that headtohead measures for every task, by name."""

HEAD_EFFECTS = {
    "without-one": "masking one head",
    "only-one": "masking all heads of a layer but the best",
}
"""Experiments of ``h2h ablate-heads``, in ``heads/ROLE/EFFECT/NAME``."""


def leaf(name: str) -> str:
    """Return the name of a metric without its split and without the suffix of a second measurement.

    >>> leaf("test/exact_match_unpadded"), leaf("attention/cross/entropy")
    ('exact_match', 'entropy')
    """
    return name.rpartition("/")[2].removesuffix(UNPADDED)


def measured(task: Sequence[Metric], roles: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the metrics of every finished run, with these metrics of the dataset and attention roles."""
    return (
        *(f"valid/{metric.name}" for metric in TEACHER_FORCED),
        *(f"test/{metric.name}" for metric in (*TEACHER_FORCED, *task)),
        *(f"test/{metric.name}{UNPADDED}" for metric in (LOSS, *task[:1])),
        "train/loss",
        *(f"attention/{role}/{metric.name}" for role in roles for metric in HEAD_MAPS),
        *(f"system/{metric.name}" for metric in COSTS),
    )


def of_heads(task: Sequence[Metric], roles: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the metrics that ``h2h ablate-heads`` adds to a finished run."""
    names = [LOSS.name, *(metric.name for metric in task)]
    return tuple(
        f"heads/{role}/{effect}/{name}"
        for role in roles
        for effect in HEAD_EFFECTS
        for name in names
    )

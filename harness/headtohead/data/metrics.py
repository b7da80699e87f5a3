"""The metrics of tasks: exact match, BLEU and chrF of translations, and the metrics that datasets declare."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.registry import current
from headtohead.schema.metric import HOST, UNPADDED, Metric, leaf

References = tuple[tuple[str, ...], ...]
"""The references of each sentence."""

Counts = NDArray[np.int64]
"""Counts of sentences, ``[sentence, count]``, or ``[count]`` summed over the sentences of a test set."""


def _exact(hypotheses: Sequence[str], references: References) -> Counts:
    hits = [
        hypothesis in accepted for hypothesis, accepted in zip(hypotheses, references, strict=True)
    ]
    return np.array([[hit, 1] for hit in hits], dtype=np.int64).reshape(-1, 2)


@lru_cache(maxsize=32)
def _sacrebleu(name: str, references: References) -> Any:
    """Return sacreBLEU's scorer with its statistics of the references, which members and runs of a study share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sacrebleu.metrics
    most = max(map(len, references))
    streams = [[own[i] if i < len(own) else None for own in references] for i in range(most)]
    # The text is already split into words, so sacreBLEU must not tokenise it.
    settings: dict[str, Any] = {"tokenize": "none", "force": True} if name == "BLEU" else {}
    return getattr(sacrebleu.metrics, name)(references=streams, **settings)


def _from_sacrebleu(label: str) -> Metric:
    name = label.upper()

    def per_example(hypotheses: Sequence[str], references: References) -> Counts:
        statistics = _sacrebleu(name, references)._extract_corpus_statistics(hypotheses, None)
        return np.array(statistics, dtype=np.int64)

    def pool(counts: Sequence[float]) -> float:
        score = (
            _sacrebleu(name, (("",),))
            ._compute_score_from_stats([int(count) for count in counts])
            .score
        )
        return float(score)

    def signature(references: References) -> str:
        return str(_sacrebleu(name, references).get_signature())

    return Metric(
        label.lower(),
        label,
        (0.0, 100.0),
        decimals=1,
        per_example=per_example,
        pool=pool,
        signature=signature,
    )


EXACT_MATCH = Metric(
    "exact_match",
    range=(0.0, 1.0),
    per_example=_exact,
    pool=lambda counts: float(counts[0]) / float(counts[1]),
)
BLEU, CHRF = _from_sacrebleu("BLEU"), _from_sacrebleu("chrF")


def _log_error(counts: Sequence[float]) -> float:
    """Return the log of the fraction of wrong outputs; without a wrong one, of half an output."""
    hits, total = counts
    return math.log(max(total - hits, 0.5) / total)


LOG_ERROR = Metric(
    "log_error",
    "log error rate",
    (-math.inf, 0.0),
    higher_is_better=False,
    per_example=_exact,
    pool=_log_error,
    counts_of=EXACT_MATCH.name,
)
"""A difference is the log of the ratio of two error rates, which has room where exact match is near 1."""

DERIVED = (LOG_ERROR,)
"""Metrics of the test split that are computed from stored counts when results are read."""

TRANSLATION = (EXACT_MATCH, BLEU, CHRF)
"""Metrics of a dataset that declares none."""


KNOWN = HOST | {metric.name: metric for metric in (*TRANSLATION, *DERIVED)}
"""Metrics that headtohead defines, by name."""


def task_metrics(dataset: str | type[Dataset]) -> tuple[Metric, ...]:
    """Return the metrics of a dataset, or of the dataset of this name; the first is the default primary metric.

    Raises:
        HeadToHeadError: If a metric has a name that headtohead uses for another metric.
    """
    kind = current().dataset(dataset) if isinstance(dataset, str) else dataset
    for metric in kind.metrics:
        name = metric.name
        if KNOWN.get(name, metric) is not metric or "/" in name or name.endswith(UNPADDED):
            raise HeadToHeadError(
                f"dataset class {kind.__name__} declares a metric '{name}', a name of headtohead; rename the metric"
            )
    return kind.metrics or TRANSLATION


def find_metric(name: str) -> Metric | None:
    """Return the metric of a name such as ``test/exact_match``, or None if no dataset declares it.

    Raises:
        HeadToHeadError: If two datasets declare different metrics of this name.
    """
    wanted = leaf(name)
    if wanted in KNOWN:
        return KNOWN[wanted]  # without the registry, which imports torch
    found: dict[int, tuple[str, Metric]] = {}
    for name in current().entries["dataset"]:
        found |= {
            id(metric): (name, metric) for metric in task_metrics(name) if metric.name == wanted
        }
    if len(found) > 1:
        datasets = " and ".join(name for name, _ in found.values())
        raise HeadToHeadError(
            f"the datasets {datasets} declare different metrics '{wanted}'; rename one of them"
        )
    return next((metric for _, metric in found.values()), None)

"""The metrics of tasks: exact match, BLEU and chrF of translations, and the metrics that datasets declare."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.registry import current, find_dataset
from headtohead.schema.metric import HOST, UNPADDED, Metric, leaf

References = tuple[tuple[str, ...], ...]
"""The references of each sentence."""

Counts = NDArray[np.int64]
"""Counts of sentences, ``[sentence, count]``, or ``[count]`` summed over the sentences of a test set."""


def _exact(hypotheses: Sequence[str], references: References) -> Counts:
    counts = np.ones((len(hypotheses), 2), dtype=np.int64)
    for row, (hypothesis, accepted) in enumerate(zip(hypotheses, references, strict=True)):
        counts[row, 0] = hypothesis in accepted
    return counts


@lru_cache(maxsize=32)
def _sacrebleu(name: str, references: References) -> Any:
    """Return sacreBLEU's scorer with its statistics of the references, which members and runs of a study share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sacrebleu.metrics
    # sacreBLEU reads the first references of all sentences, then the second, and so on; None where there is none.
    streams = list(map(list, zip_longest(*references)))
    if name == "BLEU":
        # The text is already split into words, so sacreBLEU must not tokenise it.
        return sacrebleu.metrics.BLEU(references=streams, tokenize="none", force=True)
    return sacrebleu.metrics.CHRF(references=streams)


def _from_sacrebleu(label: str) -> Metric:
    """Return the metric of a score of sacreBLEU: its counts are sacreBLEU's statistics of a sentence."""
    name = label.upper()

    def per_example(hypotheses: Sequence[str], references: References) -> Counts:
        statistics = _sacrebleu(name, references)._extract_corpus_statistics(hypotheses, None)
        return np.array(statistics, dtype=np.int64)

    def pool(counts: Sequence[float]) -> float:
        scorer = _sacrebleu(name, (("",),))
        score = scorer._compute_score_from_stats([int(count) for count in counts])
        return float(score.score)

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
BLEU = _from_sacrebleu("BLEU")
CHRF = _from_sacrebleu("chrF")


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
    if isinstance(dataset, str):
        dataset = find_dataset(dataset)
    for metric in dataset.metrics:
        name = metric.name
        is_taken = KNOWN.get(name, metric) is not metric
        if is_taken or "/" in name or name.endswith(UNPADDED):
            raise HeadToHeadError(
                f"dataset class {dataset.__name__} declares a metric '{name}', a name of headtohead; rename the metric"
            )
    return dataset.metrics or TRANSLATION


def find_metric(name: str) -> Metric | None:
    """Return the metric of a name such as ``test/exact_match``, or None if no dataset declares it.

    Raises:
        HeadToHeadError: If two datasets declare different metrics of this name.
    """
    wanted = leaf(name)
    if wanted in KNOWN:
        return KNOWN[wanted]  # without the registry, which imports torch
    # By identity: two datasets share a metric only if both declare the same object.
    declared: dict[int, tuple[str, Metric]] = {}
    for dataset in current().entries["dataset"]:
        for metric in task_metrics(dataset):
            if metric.name == wanted:
                declared[id(metric)] = (dataset, metric)
    if not declared:
        return None
    if len(declared) > 1:
        datasets = " and ".join(dataset for dataset, _ in declared.values())
        raise HeadToHeadError(
            f"the datasets {datasets} declare different metrics '{wanted}'; rename one of them"
        )
    _, metric = next(iter(declared.values()))
    return metric

"""Results of a trained stack: test scores, length buckets and costs of each member."""

from __future__ import annotations

import math
import resource
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import mul

import numpy as np
import torch

from headtohead.data import PreparedData
from headtohead.data.metrics import Counts, task_metrics
from headtohead.model.precision import peak_flops
from headtohead.planning.costs import TRAINING
from headtohead.planning.pitfalls import padding_has_no_effect
from headtohead.schema.metric import LOSS, TEACHER_FORCED, UNPADDED, Metric
from headtohead.storage.results import BackendRecord, BucketRecord, DecodingRecord, ResultsRecord
from headtohead.storage.translations import Translation, translations_text
from headtohead.training.evaluate import (
    TeacherForced,
    Translations,
    collect,
    distinct_sources,
    pooled,
    score,
    translator,
)
from headtohead.training.loop import StackTraining

Member = tuple[ResultsRecord, Translations | None]
"""The record of a member with the metrics of the test split, and its translations; None with ``decode: none``."""


def score_test_split(
    training: StackTraining, data: PreparedData, decoding_limit: int
) -> Callable[[int], Member]:
    """Score the test split for all members, and return a function that gives a member's results."""
    config, split = training.config.evaluate, data.splits["test"]
    model, tensors = training.model, training.splits["test"]
    rows = distinct_sources(split, config.test_limit)
    translate = translator(config, data.target_vocabulary, decoding_limit)
    padded = alone = score(model, tensors, rows, translate)
    equal = [padding_has_no_effect(own) for own in training.configs]
    if config.unpadded and not all(equal):
        alone = score(model, tensors, rows, translate, padded=False)
    task = task_metrics(training.config.data.dataset)
    lengths = [data.source_vocabulary.count_words(split.measured[row]) for row in rows]
    of_targets = {
        metric.name: np.array([metric.per_target(split.target_text[row]) for row in rows])
        for metric in task
        if metric.per_target
    }
    decoding: DecodingRecord | None = None
    if config.decode != "none":
        decoding = {"decode": config.decode}
    if config.decode == "greedy":
        decoding = {"decode": "greedy", "max_length": decoding_limit}

    def results(member: int) -> Member:
        metrics: dict[str, float | None] = {
            f"test/{name}": v for name, v in padded.forced.metrics(member).items()
        }
        losses = padded.forced.losses[member][rows].numpy()
        counts = {
            name: np.stack([losses, of_target], axis=1) for name, of_target in of_targets.items()
        }
        translations, signatures = None, {}
        if padded.translations is not None:
            translations = collect(data, split, rows, padded.translations[member])
            counts |= translations.counts(task)
            references = translations.references
            signatures = {
                metric.name: metric.signature(references) for metric in task if metric.signature
            }
        scores = pooled(
            task, {name: of_sentences.sum(axis=0).tolist() for name, of_sentences in counts.items()}
        )
        metrics |= {f"test/{name}": value for name, value in scores.items()}
        if config.unpadded:
            unpadded = padded if equal[member] else alone
            metrics[f"test/{LOSS.name}{UNPADDED}"] = unpadded.forced.metrics(member)[LOSS.name]
            if unpadded.translations is not None:
                primary = collect(data, split, rows, unpadded.translations[member]).scores(task[:1])
                metrics |= {f"test/{name}{UNPADDED}": value for name, value in primary.items()}
        progress = training.progress.members[member]
        record = ResultsRecord(
            metrics=metrics,
            buckets=tuple(
                bucket_scores(lengths, rows, task, counts, padded.forced, member, config.buckets)
            ),
            signatures=signatures,
            decoding=decoding,
            padding=training.plan.padding(),
            best_step=progress.best_step,
            stopped_early=progress.ended == "stopped early",
            backend=BackendRecord(name=training.choice.name, why=training.choice.why),
            notes=(),
        )
        return record, translations

    return results


def bucket_scores(
    lengths: Sequence[int],
    rows: Sequence[int],
    task: Sequence[Metric],
    counts: Mapping[str, Counts],
    forced: TeacherForced,
    member: int,
    bounds: Sequence[int],
) -> list[BucketRecord]:
    """Score the test sentences by source length, in tokens without boundary tokens.

    Args:
        lengths: Source length of each of ``rows``.
        rows: The test sentences that are translated.
        task: Metrics of the dataset.
        counts: Counts of their translations by metric, ``[sentence, count]``, if any.
        forced: Teacher-forced sums of all test pairs.
        member: The member.
        bounds: Upper ends of the buckets.
    """
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(bisect_left(bounds, length), []).append(index)
    scored: list[BucketRecord] = []
    for number, indices in sorted(groups.items()):
        low, high = 1 + (0, *bounds)[number], (*bounds, None)[number]
        sums = forced.counts(member, [rows[index] for index in indices])
        sums |= {
            name: of_sentences[indices].sum(axis=0).tolist()
            for name, of_sentences in counts.items()
        }
        scores = pooled((*TEACHER_FORCED, *task), sums)
        scored.append(
            {
                "bucket": f"{low}-{high}" if high else f"{low}+",
                "low": low,
                "high": high,
                "n": len(indices),
                "scores": {
                    name: value if math.isfinite(value) else None for name, value in scores.items()
                },
                "counts": {
                    name: tuple(map(float, of_metric))
                    for name, of_metric in sums.items()
                    if all(map(math.isfinite, of_metric))
                },
            }
        )
    return scored


def cost_metrics(training: StackTraining, flops_per_token: Sequence[float]) -> dict[str, float]:
    """Return the costs of training, which are equal for all members of the stack.

    ``system/tokens_per_second`` counts target tokens without padding of all members.
    ``system/step_ms`` is the duration of a step of the stack.
    ``system/mfu`` is the model FLOP utilisation (Chowdhery et al. 2022, appendix B): the FLOPs that the models of all
    members need per second, as a fraction of the FLOP/s of large products on this device. ``flops_per_token`` has
    those of a forward pass per target token, for each member.
    """
    progress = training.progress
    seconds = max(progress.train_seconds, 1e-9)
    flops = TRAINING * sum(map(mul, flops_per_token, training.token_sums.tolist()))
    return {
        "system/peak_memory_mb": peak_memory_bytes(training.device) / 2**20,
        "system/step_ms": 1000.0 * seconds / max(1, progress.step),
        "system/train_seconds": progress.train_seconds,
        "system/tokens_per_second": float(training.token_sums.sum()) / seconds,
        "system/mfu": flops / seconds / peak_flops(training.device.type, training.train.precision),
    }


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the GPU, or the resident memory of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def translations_table(translations: Translations | None) -> str:
    """Return the content of translations.tsv; without decoding, only the header."""
    if translations is None:
        return translations_text(())
    columns = (
        translations.sources,
        translations.references,
        translations.hypotheses,
        translations.exact,
    )
    return translations_text(map(Translation, *columns))

"""Results of a trained stack: scores and values per example, length buckets and costs of each member."""

from __future__ import annotations

import math
import resource
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import mul
from typing import NamedTuple

import numpy as np
import torch

from headtohead.data import PreparedData
from headtohead.data.metrics import Counts, task_metrics
from headtohead.model.precision import peak_flops
from headtohead.planning.pitfalls import padding_has_no_effect
from headtohead.planning.validation import STEP_COST
from headtohead.schema.metric import LOSS, TEACHER_FORCED, UNPADDED, Metric
from headtohead.storage.examples import SplitExamples
from headtohead.storage.record import record_of
from headtohead.storage.results import BackendRecord, BucketRecord, DecodingRecord, ResultsRecord
from headtohead.storage.translations import Translation, translations_text
from headtohead.training.evaluate import (
    Scored,
    TeacherForced,
    Translations,
    collect,
    pooled,
    score,
    summed,
    translator,
)
from headtohead.training.loop import End, StackTraining


class MemberResults(NamedTuple):
    """The results of a member.

    Args:
        record: The record with the metrics of the validation and the test split.
        translations: Its translations; None with ``decode: none``.
        examples: Its values per example, by split.
    """

    record: ResultsRecord
    translations: Translations | None
    examples: Mapping[str, SplitExamples]


def score_splits(training: StackTraining, data: PreparedData, decoding_limit: int) -> ScoredSplits:
    """Return the scores of the validation and the test split for all members."""
    config = training.config.evaluate
    split = data.splits["test"]
    tensors = training.splits["test"]
    rows = split.distinct_sources(config.test_limit)
    translate = translator(config, data.target_vocabulary, decoding_limit)
    padded = score(training.model, tensors, rows, translate)
    alone = padded
    equal = [padding_has_no_effect(variant) for variant in training.configs]
    if config.unpadded and not all(equal):
        alone = score(training.model, tensors, rows, translate, padded=False)
    decoding: DecodingRecord | None
    if config.decode == "none":
        decoding = None
    elif config.decode == "greedy":
        decoding = {"decode": "greedy", "max_length": decoding_limit}
    else:
        decoding = {"decode": config.decode}
    unpadded = [padded if is_equal else alone for is_equal in equal]
    validation = training.final_validation()
    return ScoredSplits(training, data, rows, decoding, validation, padded, unpadded)


@dataclass(frozen=True)
class ScoredSplits:
    """The scores of the validation and the test split for all members.

    Args:
        training: The training of the stack.
        data: The prepared data.
        rows: The test sentences that are translated.
        decoding: How they are translated.
        validation: Teacher-forced sums of the validation split.
        padded: Scores of padded batches.
        unpadded: Scores of sentences without padding, by member.
    """

    training: StackTraining
    data: PreparedData
    rows: Sequence[int]
    decoding: DecodingRecord | None
    validation: TeacherForced
    padded: Scored
    unpadded: Sequence[Scored]

    @cached_property
    def task(self) -> Sequence[Metric]:
        """The metrics of the dataset."""
        return task_metrics(self.training.config.data.dataset)

    @cached_property
    def lengths(self) -> list[int]:
        """Source length of each of ``rows`` in tokens, without boundary tokens."""
        measured = self.data.splits["test"].measured
        return [self.data.source_vocabulary.count_words(measured[row]) for row in self.rows]

    @cached_property
    def target_counts(self) -> dict[str, np.ndarray]:
        """The counts of each of ``rows`` that a metric takes from the target, by metric."""
        texts = self.data.splits["test"].target_text
        counts = {}
        for metric in self.task:
            if metric.per_target:
                counts[metric.name] = np.array([metric.per_target(texts[row]) for row in self.rows])
        return counts

    @cached_property
    def examples_hashes(self) -> dict[str, str]:
        """`Split.examples_hash` by split; no validation example has an output."""
        splits = self.data.splits
        return {
            "valid": splits["valid"].examples_hash(()),
            "test": splits["test"].examples_hash(self.rows),
        }

    def results(self, member: int) -> MemberResults:
        """Return the results of a member.

        Raises:
            HeadToHeadError: If a metric of the dataset has a value outside of its range.
        """
        config = self.training.config.evaluate
        forced = self.padded.forced
        scores = forced.metrics(member)
        losses = forced.losses[member][self.rows].numpy()
        counts: dict[str, Counts] = {}
        for name, values in self.target_counts.items():
            counts[name] = np.stack([losses, values], axis=1)
        signatures = {}
        translations = self._translations(self.padded, member)
        if translations is not None:
            counts |= translations.counts(self.task)
            for metric in self.task:
                if metric.signature:
                    signatures[metric.name] = metric.signature(translations.references)
        scores |= pooled(self.task, summed(counts))
        if config.unpadded:
            scores |= self._unpadded_scores(member)
        sums_of = partial(forced.counts, member)
        buckets = bucket_scores(self.lengths, self.rows, self.task, counts, sums_of, config.buckets)
        choice = self.training.choice
        progress = self.training.progress.members[member]
        metrics = {
            f"valid/{name}": value for name, value in self.validation.metrics(member).items()
        }
        metrics |= {f"test/{name}": value for name, value in scores.items()}
        fields = {
            "metrics": metrics,
            "buckets": tuple(buckets),
            "signatures": signatures,
            "decoding": self.decoding,
            "padding": self.training.batches.padding(),
            "best_step": progress.best_step,
            "stopped_early": progress.ended == End.STOPPED_EARLY,
            "backend": BackendRecord(name=choice.name, why=choice.why),
            "notes": (),
        }
        record = record_of(ResultsRecord, fields)
        examples = {
            "valid": self._examples("valid", self.validation, member, (), {}),
            "test": self._examples("test", forced, member, self.rows, counts),
        }
        return MemberResults(record, translations, examples)

    def _examples(
        self,
        name: str,
        forced: TeacherForced,
        member: int,
        outputs: Sequence[int],
        counts: Mapping[str, Counts],
    ) -> SplitExamples:
        """Return the values of a member's examples of a split; arguments as for `SplitExamples`."""
        split = self.data.splits[name]
        return SplitExamples(
            examples_hash=self.examples_hashes[name],
            groups=np.array(split.groups),
            num_labels=forced.num_tokens.numpy(),
            losses=forced.losses[member].numpy(),
            correct=forced.correct[member].numpy(),
            outputs=np.array(outputs, dtype=np.int64),
            counts=counts,
        )

    def _translations(self, scored: Scored, member: int) -> Translations | None:
        """Return the translations of a member as text; None without decoding."""
        if scored.translations is None:
            return None
        split = self.data.splits["test"]
        return collect(self.data, split, self.rows, scored.translations[member])

    def _unpadded_scores(self, member: int) -> dict[str, float]:
        """Return the loss and the first metric of the dataset without padding."""
        scored = self.unpadded[member]
        scores = {LOSS.name: scored.forced.metrics(member)[LOSS.name]}
        translations = self._translations(scored, member)
        if translations is not None:
            scores |= translations.scores(self.task[:1])
        return {f"{name}{UNPADDED}": value for name, value in scores.items()}


def bucket_scores(
    lengths: Sequence[int],
    rows: Sequence[int],
    task: Sequence[Metric],
    counts: Mapping[str, Counts],
    teacher_forced: Callable[[Sequence[int]], dict[str, list[float]]],
    bounds: Sequence[int],
) -> list[BucketRecord]:
    """Score the test sentences by source length, in tokens without boundary tokens.

    Args:
        lengths: Source length of each of ``rows``.
        rows: The test sentences that are translated.
        task: Metrics of the dataset.
        counts: Counts of their translations by metric, ``[sentence, count]``, if any.
        teacher_forced: Returns the teacher-forced counts of some test pairs by metric.
        bounds: Upper ends of the buckets.
    """
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(bisect_left(bounds, length), []).append(index)
    scored: list[BucketRecord] = []
    for number, indices in sorted(groups.items()):
        low = 1 + (0, *bounds)[number]
        high = (*bounds, None)[number]
        sums = teacher_forced([rows[index] for index in indices])
        sums |= summed(counts, indices)
        scores: dict[str, float | None] = {}
        for name, value in pooled((*TEACHER_FORCED, *task), sums).items():
            scores[name] = value if math.isfinite(value) else None
        finite_counts = {}
        for name, values in sums.items():
            if all(map(math.isfinite, values)):
                finite_counts[name] = tuple(map(float, values))
        bucket: BucketRecord = {
            "bucket": f"{low}-{high}" if high else f"{low}+",
            "low": low,
            "high": high,
            "n": len(indices),
            "scores": scores,
            "counts": finite_counts,
        }
        scored.append(bucket)
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
    flops = STEP_COST * sum(map(mul, flops_per_token, training.token_sums.tolist()))
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

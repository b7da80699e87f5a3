"""A trained stack's final word: test scores, buckets, maps and costs of each member."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from headtohead.data import PreparedData
from headtohead.data.batches import Padding
from headtohead.schema.run_config import STEPWISE, EvaluateConfig
from headtohead.storage.records import BackendRecord, ResultsRecord
from headtohead.training.backends import Choice
from headtohead.training.evaluate import (
    Forced,
    Translations,
    Write,
    alone_size,
    bucket_of,
    collect,
    distinct_sources,
    teacher_forced,
    translate_rows,
    writer,
)
from headtohead.training.loop import StackTraining


@dataclass(frozen=True)
class SplitResults:
    """What the test split says of one member; no translations where nothing is decoded."""

    metrics: dict[str, float]
    buckets: list[dict[str, Any]]
    signatures: dict[str, str]
    translations: Translations | None
    decoding: dict[str, Any] | None = None
    """How they were written, as results.json says it."""


def decoding_record(evaluate: EvaluateConfig, max_length: int) -> dict[str, Any] | None:
    """Return how translations were written, as data; None where there are none."""
    if evaluate.decode == "none":
        return None
    record: dict[str, Any] = {"decode": evaluate.decode}
    if evaluate.decode in STEPWISE:
        record["max_length"] = max_length
    if evaluate.beam is not None:
        record |= evaluate.beam.model_dump(mode="json")
    return record


@dataclass(frozen=True)
class _Scored:
    """The test split, scored for all members at once: losses, and translations where there are."""

    forced: Forced
    written: list[dict[int, list[int]]] | None


def score_test_split(training: StackTraining, data: PreparedData, decoding_limit: int) -> Callable[[int], SplitResults]:
    """Score the test split for all members at once; return each member's part on demand.

    Args:
        training: The trained stack.
        data: Of the stack.
        decoding_limit: Maximum number of tokens of a translation, as the runs' records have it.
    """
    config, split = training.config.evaluate, data.splits["test"]
    rows = distinct_sources(split, config.test_limit)
    write, decoding = None, decoding_record(config, decoding_limit)
    if config.decode != "none":
        write = writer(config.decode, data.target_vocabulary, decoding_limit, config.beam)
    together = _padded(training, rows, write)
    alone = _alone(training, rows, write) if config.unpadded else None

    def results(member: int) -> SplitResults:
        metrics = {f"test/{name}": value for name, value in together.forced.metrics(member).items()}
        translations, signatures = None, {}
        if together.written is not None:
            translations = collect(data, split, rows, together.written[member])
            scores = translations.scores()
            metrics |= {f"test/{name}": value for name, value in scores.values.items()}
            signatures = scores.signatures
        if alone is not None:
            metrics["test/loss_unpadded"] = alone.forced.metrics(member)["loss"]
            if alone.written is not None:
                exact = collect(data, split, rows, alone.written[member]).exact
                metrics["test/exact_match_unpadded"] = sum(exact) / len(rows)
        lengths = [data.source_vocabulary.count_words(split.source[row]) for row in rows]
        buckets = bucket_scores(lengths, rows, translations, together.forced, member, config.buckets)
        return SplitResults(metrics, buckets, signatures, translations, decoding)

    return results


def _padded(training: StackTraining, rows: Sequence[int], write: Write | None) -> _Scored:
    """Score in batches as a user would make them."""
    model, tensors = training.model, training.splits["test"]
    size = training.config.evaluate.batch_size
    forced = teacher_forced(model, tensors, tensors.padded_batches(size))
    batches = list(torch.tensor(rows).split(size))
    return _Scored(forced, translate_rows(model, tensors, batches, write) if write else None)


def _alone(training: StackTraining, rows: Sequence[int], write: Write | None) -> _Scored:
    """Score every sentence as in a batch of one."""
    model, tensors = training.model, training.splits["test"]
    size = alone_size(model, training.config.evaluate.batch_size)
    forced = teacher_forced(model, tensors, tensors.unpadded_batches(size, by_target=True))
    if write is None:
        return _Scored(forced, None)
    wanted = set(rows)
    # A pass that reads the reference must not be padded on its side either.
    by_target = training.config.evaluate.decode == "teacher-forced"
    batches = [
        part
        for batch in tensors.unpadded_batches(size, by_target)
        if len(part := batch[[row in wanted for row in batch.tolist()]])
    ]
    return _Scored(forced, translate_rows(model, tensors, batches, write))


def bucket_scores(
    lengths: Sequence[int],
    rows: Sequence[int],
    translations: Translations | None,
    forced: Forced,
    member: int,
    bounds: Sequence[int],
) -> list[dict[str, Any]]:
    """Score the test sentences by source length, in tokens without boundary tokens.

    Args:
        lengths: Of the source of each row.
        rows: The test sentences that are translated.
        translations: Of these, if there are any.
        forced: Teacher-forced sums of all test pairs.
        member: Whose losses are taken.
        bounds: Upper ends of the ranges.
    """
    groups: dict[tuple[int, int | None], list[int]] = {}
    for place, length in enumerate(lengths):
        groups.setdefault(bucket_of(length, bounds), []).append(place)
    scored = []
    for (low, high), places in sorted(groups.items(), key=lambda item: item[0][0]):
        own = [rows[place] for place in places]
        words = int(forced.words[own].sum())
        bucket = {
            "bucket": f"{low}-{high}" if high else f"{low}+",
            "low": low,
            "high": high,
            "n": len(places),
            "target_tokens": words,
            "loss": float(forced.losses[member][own].sum()) / words if words else None,
        }
        if translations:
            scores = translations.part(places).scores()
            bucket |= scores.values | {"bleu_counts": scores.bleu_counts}
        scored.append(bucket)
    return scored


def cost_metrics(training: StackTraining) -> dict[str, float]:
    """Return what training cost: the stack's figures, shared by its members.

    ``system/tokens_per_second`` counts live target tokens of all members; ``system/step_ms`` is one
    step of the whole stack.
    """
    progress = training.progress
    seconds = max(progress.train_seconds, 1e-9)
    return {
        "system/peak_memory_mb": peak_memory_bytes(training.device) / 2**20,
        "system/step_ms": 1000.0 * seconds / max(1, progress.step),
        "system/train_seconds": progress.train_seconds,
        "system/tokens_per_second": float(training.token_sums.sum()) / seconds,
    }


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory used so far: of the GPU, or resident in this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def translations_table(translations: Translations | None) -> str:
    """Return translations.tsv: source, references, hypothesis, and 1 where it is exact.

    The heading alone where nothing was decoded.
    """
    lines = ["source\treferences\thypothesis\texact"]
    if translations is None:
        return lines[0] + "\n"
    for source, references, hypothesis, exact in zip(
        translations.sources, translations.references, translations.hypotheses, translations.exact, strict=True
    ):
        cells = [source, " ||| ".join(references), hypothesis, str(int(exact))]
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return "\n".join(lines) + "\n"


def assemble(
    test: SplitResults,
    last: Mapping[str, float | None],
    maps: Mapping[str, float],
    costs: Mapping[str, float],
    padding: Padding,
    best_step: int | None,
    stopped_early: bool,
    backend: Choice,
    notes: Sequence[str],
) -> ResultsRecord:
    """Join everything into the content of results.json."""
    return ResultsRecord(
        metrics=dict(last) | test.metrics | dict(maps) | dict(costs),
        buckets=tuple(test.buckets),
        signatures=test.signatures,
        decoding=test.decoding,
        padding=asdict(padding),
        best_step=best_step,
        stopped_early=stopped_early,
        backend=BackendRecord(name=backend.name, why=backend.why),
        notes=tuple(notes),
    )

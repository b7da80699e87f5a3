"""A trained stack's final word: test scores, buckets, maps and costs of each member."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headtohead.data import PreparedData, Split
from headtohead.training.evaluate import (
    Forced,
    Translations,
    bucket_of,
    collect,
    distinct_sources,
    teacher_forced,
    translate_rows,
)
from headtohead.training.loop import StackTraining


@dataclass(frozen=True)
class SplitResults:
    """What the test split says of one member."""

    metrics: dict[str, float]
    buckets: list[dict[str, Any]]
    signatures: dict[str, str]
    translations: Translations


def decode_limit(training: StackTraining) -> int:
    """Return the most words of a translation: as asked, or 1.5 times the longest in training."""
    asked = training.config.evaluate.max_length
    longest = int(training.splits["train"].target_lengths.max())
    return asked or max(4, longest * 3 // 2)


def score_test_split(training: StackTraining, data: PreparedData) -> Callable[[int], SplitResults]:
    """Score the test split for all members at once; return each member's part on demand."""
    config = training.config.evaluate
    model, tensors, split = training.model, training.splits["test"], data.splits["test"]
    rows = distinct_sources(split, config.test_limit)
    chosen = torch.tensor(rows)
    limit = decode_limit(training)
    forced = teacher_forced(model, tensors, tensors.padded_batches(config.batch_size))
    padded = list(chosen.split(config.batch_size))
    written = translate_rows(model, tensors, padded, limit)
    alone: tuple[Forced, list[dict[int, list[int]]]] | None = None
    if config.alone:
        wanted = set(rows)
        unpadded = [
            part
            for batch in tensors.unpadded_batches(config.batch_size, by_target=False)
            if len(part := batch[[row in wanted for row in batch.tolist()]])
        ]
        batches = tensors.unpadded_batches(config.batch_size, by_target=True)
        alone = (
            teacher_forced(model, tensors, batches),
            translate_rows(model, tensors, unpadded, limit),
        )

    def results(member: int) -> SplitResults:
        translations = collect(data, split, rows, written[member])
        metrics = {f"test/{name}": value for name, value in forced.metrics(member).items()}
        scores = translations.scores()
        metrics |= {f"test/{name}": value for name, value in scores.values.items()}
        if alone is not None:
            by_itself = collect(data, split, rows, alone[1][member])
            metrics["test/loss_alone"] = alone[0].metrics(member)["loss"]
            metrics["test/exact_match_alone"] = sum(by_itself.exact) / len(rows)
        buckets = bucket_scores(split, rows, translations, forced, member, config.buckets)
        return SplitResults(metrics, buckets, scores.signatures, translations)

    return results


def bucket_scores(
    split: Split, rows: Sequence[int], translations: Translations, forced: Forced, member: int,
    bounds: Sequence[int],
) -> list[dict[str, Any]]:  # fmt: skip
    """Score the test sentences by source length, in tokens without <eos>."""
    groups: dict[tuple[int, int | None], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(bucket_of(len(split.source[row]) - 1, bounds), []).append(place)
    scored = []
    for (low, high), places in sorted(groups.items(), key=lambda item: item[0][0]):
        own = [rows[place] for place in places]
        words = float(forced.words[own].sum())
        scored.append({
            "bucket": f"{low}-{high}" if high else f"{low}+",
            "low": low,
            "high": high,
            "n": len(places),
            "loss": float(forced.losses[member][own].sum()) / words,
        } | translations.part(places).scores().values)  # fmt: skip
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
        "system/tokens_per_second": float(training.token_sum) / seconds,
    }


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory used so far: of the GPU, or resident in this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def translations_table(translations: Translations) -> str:
    """Return translations.tsv: source, references, hypothesis, and 1 where it is exact."""
    lines = ["source\treferences\thypothesis\texact"]
    for source, references, hypothesis, exact in zip(
        translations.sources, translations.references, translations.hypotheses,
        translations.exact, strict=True,
    ):  # fmt: skip
        cells = [source, " ||| ".join(references), hypothesis, str(int(exact))]
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return "\n".join(lines) + "\n"


def assemble(
    test: SplitResults, last: Mapping[str, float], maps: Mapping[str, float],
    costs: Mapping[str, float], best_step: int | None, stopped_early: bool,
) -> dict[str, Any]:  # fmt: skip
    """Join everything into the content of results.json."""
    return {
        "metrics": dict(last) | test.metrics | dict(maps) | dict(costs),
        "buckets": test.buckets,
        "signatures": test.signatures,
        "best_step": best_step,
        "stopped_early": stopped_early,
        "notes": [],
    }

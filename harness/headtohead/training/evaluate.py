"""What a stack's members are worth on a split: loss, accuracy, translations and their scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data import PreparedData, Split
from headtohead.data.vocabulary import PAD
from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.training.tensors import Batch, SplitTensors

LOGITS_AT_ONCE = 2**26
"""Largest number of logits computed together; more are cut into pieces that give the same."""


@dataclass(frozen=True)
class Forced:
    """Teacher-forced sums for every pair: loss in nats ``[member, row]``, words right, words."""

    losses: Tensor
    right: Tensor
    words: Tensor

    def metrics(self, member: int) -> dict[str, float]:
        """Return loss per token in nats, perplexity and token accuracy of one member."""
        words = float(self.words.sum())
        loss = float(self.losses[member].sum()) / words
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "token_accuracy": float(self.right[member].sum()) / words,
        }


def token_losses(logits: Tensor, writes: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of every token, ``[member, batch, time]``, zero at padding."""
    losses = functional.cross_entropy(
        logits.flatten(0, 2), writes.flatten(), ignore_index=PAD, reduction="none",
        label_smoothing=smoothing,
    )  # fmt: skip
    return losses.view(writes.shape)


@torch.no_grad()
def teacher_forced(model: Transformer, split: SplitTensors, batches: Sequence[Tensor]) -> Forced:
    """Score every pair of a split with the true words before it given."""
    model.eval()
    losses = torch.zeros(model.members, len(split), dtype=torch.float64)
    right = torch.zeros(model.members, len(split), dtype=torch.float64)
    words = len(model.target_embedding.weight[0])
    for rows in batches:
        source_time, target_time = split.times(rows)
        piece = max(1, LOGITS_AT_ONCE // (model.members * target_time * words))
        for part in rows.split(piece):
            batch = split.batch(part.expand(model.members, -1), source_time, target_time)
            logits = model(
                batch.source, batch.source_lengths, batch.reads, batch.target_lengths
            ).float()
            losses[:, part] = token_losses(logits, batch.writes).sum(-1).double().cpu()
            right[:, part] = _right(logits, batch).double().cpu()
    return Forced(losses, right, split.target_lengths.cpu())


def _right(logits: Tensor, batch: Batch) -> Tensor:
    hits = (logits.argmax(-1) == batch.writes) & (batch.writes != PAD)
    return hits.sum(-1)


def translate_rows(
    model: Transformer, split: SplitTensors, batches: Sequence[Tensor], max_length: int
) -> list[dict[int, list[int]]]:
    """Translate rows greedily; return, for each member, word ids without <eos> by row."""
    model.eval()
    written: list[dict[int, list[int]]] = [{} for _ in range(model.members)]
    for rows in batches:
        source_time, _ = split.times(rows)
        chosen = rows.expand(model.members, -1)
        ids = greedy(
            model, split.source[chosen, :source_time], split.source_lengths[chosen], max_length
        )
        for member, sentences in enumerate(ids.tolist()):
            for row, sentence in zip(rows.tolist(), sentences, strict=True):
                written[member][row] = [word for word in sentence if word != PAD]
    return written


@dataclass(frozen=True)
class Scores:
    """Scores of a set of translations, and how the ones of sacreBLEU were computed."""

    values: dict[str, float]
    signatures: dict[str, str]


@dataclass(frozen=True)
class Translations:
    """One run's translations of distinct sources, with all references of each."""

    sources: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    hypotheses: tuple[str, ...]

    @property
    def exact(self) -> list[bool]:
        """Whether each equals one of its references, word for word."""
        return [
            hypothesis in references
            for hypothesis, references in zip(self.hypotheses, self.references, strict=True)
        ]

    def part(self, chosen: Sequence[int]) -> Translations:
        """Return the chosen sentences."""
        return Translations(
            tuple(self.sources[i] for i in chosen),
            tuple(self.references[i] for i in chosen),
            tuple(self.hypotheses[i] for i in chosen),
        )

    def scores(self) -> Scores:
        """Return exact match (a share), sacreBLEU's BLEU and chrF (0 to 100), and signatures."""
        exact = self.exact
        bleu, chrf = _scorers()
        streams = self._reference_streams()
        values = {
            "exact_match": sum(exact) / len(exact),
            "bleu": float(bleu.corpus_score(self.hypotheses, streams).score),
            "chrf": float(chrf.corpus_score(self.hypotheses, streams).score),
        }
        signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
        return Scores(values, signatures)

    def _reference_streams(self) -> list[list[str | None]]:
        most = max(len(references) for references in self.references)
        return [
            [references[i] if i < len(references) else None for references in self.references]
            for i in range(most)
        ]


def _scorers() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacrebleu.metrics import BLEU, CHRF
    # The text is already split into words, so no tokenizer may split it again.
    return BLEU(tokenize="none", force=True), CHRF()


def distinct_sources(split: Split, limit: int | None) -> list[int]:
    """Return the first row of each distinct source, in order, at most ``limit``."""
    first: dict[str, int] = {}
    for row, text in enumerate(split.source_text):
        first.setdefault(text, row)
    return list(first.values())[:limit]


def collect(
    data: PreparedData, split: Split, rows: Sequence[int], written: dict[int, list[int]]
) -> Translations:
    """Join ids with texts."""
    return Translations(
        tuple(split.source_text[row] for row in rows),
        tuple(split.references[row] for row in rows),
        tuple(data.target_vocabulary.decode(written[row]) for row in rows),
    )


def bucket_of(length: int, bounds: Sequence[int]) -> tuple[int, int | None]:
    """Return the range, upper end None if open, that a source length falls into."""
    low = 1
    for bound in bounds:
        if length <= bound:
            return low, bound
        low = bound + 1
    return low, None

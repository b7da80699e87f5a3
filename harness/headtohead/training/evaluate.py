"""What a stack's members are worth on a split: loss, accuracy, translations and their scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data import PreparedData, Split, Vocabulary
from headtohead.errors import UndefinedError
from headtohead.model.beam import translate
from headtohead.model.counting import LOGITS_AT_ONCE
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import BeamConfig
from headtohead.training.tensors import IGNORE_INDEX, Batch, SplitTensors

NO_START_NO_STOP = (
    "{how} decoding has no start and no stop without <sos> and <eos>; set evaluate.decode: none, "
    "non-autoregressive or teacher-forced"
)


@dataclass(frozen=True)
class Forced:
    """Teacher-forced sums for every pair: loss in nats ``[member, row]``, words right, words."""

    losses: Tensor
    right: Tensor
    words: Tensor

    def metrics(self, member: int) -> dict[str, float]:
        """Return loss per token in nats, perplexity and token accuracy of one member."""
        words = float(self.words.sum()) or math.nan
        loss = float(self.losses[member].sum()) / words
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "token_accuracy": float(self.right[member].sum()) / words,
        }


def token_losses(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of every token, ``[member, batch, time]``, zero for IGNORE_INDEX ones."""
    losses = functional.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none", label_smoothing=smoothing
    )
    return losses.view(labels.shape)


@torch.no_grad()
def teacher_forced(model: Transformer, split: SplitTensors, batches: Sequence[Tensor]) -> Forced:
    """Score every pair of a split with the true words before it given."""
    model.eval()
    losses = torch.zeros(model.members, len(split), dtype=torch.float64)
    right = torch.zeros(model.members, len(split), dtype=torch.float64)
    for rows in batches:
        batch = split.batch(rows.expand(model.members, -1), *split.times(rows))
        for part, logits in _logits(model, batch):
            here, piece = rows[part], batch.part(part)
            losses[:, here] = token_losses(logits, piece.labels).sum(-1).double().cpu()
            right[:, here] = (logits.argmax(-1) == piece.labels).sum(-1).double().cpu()
    return Forced(losses, right, split.target_lengths.cpu())


def _logits(model: Transformer, batch: Batch) -> Iterator[tuple[slice, Tensor]]:
    """Yield the logits of some rows at a time; all of them are in one batch before the words.

    So a row's logits are those of its batch, also where they depend on its place in it.
    """
    hidden = model.hidden(batch.source, batch.source_lengths, batch.decoder_input_ids, batch.target_lengths)
    members, rows, time, _ = hidden.shape
    piece = max(1, LOGITS_AT_ONCE // (members * time * model.rows.target))
    for start in range(0, rows, piece):
        part = slice(start, start + piece)
        yield part, model.project(hidden[:, part]).float()


def alone_size(model: Transformer, size: int) -> int:
    """Return how many sentences of equal length may share a batch and score as each does alone.

    All of them, up to ``size``, since nothing is padded; one where rows of a batch are told apart.
    """
    return 1 if model.position_is_row else size


Write = Callable[[Transformer, SplitTensors, Tensor], Tensor]
"""Translates rows of a split: word ids ``[member, row, time]``, IGNORE_INDEX where there is no word."""


def writer(decode: str, vocabulary: Vocabulary, max_length: int, beam: BeamConfig | None = None) -> Write:
    """Return what ``evaluate.decode`` means, for all but none.

    Args:
        decode: ``"greedy"``, ``"beam"``, ``"non-autoregressive"`` or ``"teacher-forced"``.
        vocabulary: Of the target side.
        max_length: Most words of a translation that is written word by word.
        beam: Of a beam search.

    Raises:
        HeadToHeadError: If greedy decoding or a beam search has no start or no stop.
    """
    if decode == "non-autoregressive":
        return write_over_zeros
    if decode == "teacher-forced":
        return write_forced
    return stepwise_writer(vocabulary, max_length, (beam or BeamConfig()) if decode == "beam" else None)


def stepwise_writer(vocabulary: Vocabulary, max_length: int, beam: BeamConfig | None = None) -> Write:
    """Return a writer that goes word by word from <sos> to <eos>.

    It takes the likeliest word at every step, or searches a beam.

    Raises:
        HeadToHeadError: If the vocabulary has no <sos> or no <eos>.
    """
    sos, eos, pad = vocabulary.sos, vocabulary.eos, vocabulary.pad
    if sos is None or eos is None:
        how = "greedy" if beam is None else "beam"
        raise UndefinedError(NO_START_NO_STOP.format(how=how))
    fill = eos if pad is None else pad

    def write(model: Transformer, split: SplitTensors, rows: Tensor) -> Tensor:
        source_time, _ = split.times(rows)
        chosen = rows.expand(model.members, -1)
        ids = translate(
            model,
            split.source[chosen, :source_time],
            split.source_lengths[chosen],
            max_length,
            beam,
            sos=sos,
            eos=eos,
            fill=fill,
        )
        return ids.masked_fill(ids == fill, IGNORE_INDEX)

    return write


@torch.no_grad()
def write_over_zeros(model: Transformer, split: SplitTensors, rows: Tensor) -> Tensor:
    """Write in one pass: the decoder reads zeros, as many as its source has tokens.

    The likeliest word of each place is taken, and none where that has the id 0 (the notebook
    slides-en-fr).
    """
    source_time, _ = split.times(rows)
    chosen = rows.expand(model.members, -1)
    source, lengths = split.source[chosen, :source_time], split.source_lengths[chosen]
    ids = model(source, lengths, torch.zeros_like(source), lengths).argmax(dim=-1)
    return _live(ids, lengths).masked_fill(ids == 0, IGNORE_INDEX)


@torch.no_grad()
def write_forced(model: Transformer, split: SplitTensors, rows: Tensor) -> Tensor:
    """Write the likeliest word at each place of the pass that reads the reference.

    As the notebook by-hand-en-fr does; it says how well a model copies, not how it translates.
    """
    batch = split.batch(rows.expand(model.members, -1), *split.times(rows))
    ids = torch.cat([logits.argmax(dim=-1) for _, logits in _logits(model, batch)], dim=1)
    return _live(ids, batch.target_lengths)


def _live(ids: Tensor, lengths: Tensor) -> Tensor:
    places = torch.arange(ids.shape[-1], device=ids.device)
    return ids.where(places < lengths.unsqueeze(-1), IGNORE_INDEX)


def translate_rows(
    model: Transformer, split: SplitTensors, batches: Sequence[Tensor], write: Write
) -> list[dict[int, list[int]]]:
    """Translate rows; return, for each member, word ids by row."""
    model.eval()
    written: list[dict[int, list[int]]] = [{} for _ in range(model.members)]
    for rows in batches:
        for member, sentences in enumerate(write(model, split, rows).tolist()):
            for row, sentence in zip(rows.tolist(), sentences, strict=True):
                written[member][row] = [word for word in sentence if word != IGNORE_INDEX]
    return written


@dataclass(frozen=True)
class Scores:
    """Scores of a set of translations, and how the ones of sacreBLEU were computed.

    ``bleu_counts`` are matched and total n-grams of orders 1 to 4 and the lengths of translations
    and references: counts of several sets add up to those of all.
    """

    values: dict[str, float]
    signatures: dict[str, str]
    bleu_counts: list[int]


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
            hypothesis in references for hypothesis, references in zip(self.hypotheses, self.references, strict=True)
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
        found = bleu.corpus_score(self.hypotheses, streams)
        values = {
            "exact_match": sum(exact) / len(exact),
            "bleu": float(found.score),
            "chrf": float(chrf.corpus_score(self.hypotheses, streams).score),
        }
        signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
        counts = [*found.counts, *found.totals, found.sys_len, found.ref_len]
        return Scores(values, signatures, counts)

    def _reference_streams(self) -> list[list[str | None]]:
        most = max(len(references) for references in self.references)
        return [[references[i] if i < len(references) else None for references in self.references] for i in range(most)]


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


def collect(data: PreparedData, split: Split, rows: Sequence[int], written: dict[int, list[int]]) -> Translations:
    """Join ids with texts."""
    return Translations(
        tuple(split.source_text[row] for row in rows),
        tuple(split.references[row] for row in rows),
        tuple(data.target_vocabulary.decode(written[row], until_eos=False) for row in rows),
    )


def bucket_of(length: int, bounds: Sequence[int]) -> tuple[int, int | None]:
    """Return the range, upper end None if open, that a source length falls into."""
    low = 1
    for bound in bounds:
        if length <= bound:
            return low, bound
        low = bound + 1
    return low, None

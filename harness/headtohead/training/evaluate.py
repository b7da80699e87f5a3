"""Evaluation of a stack on a split: loss, accuracy, translations and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headtohead.data import PreparedData, Split, Vocabulary
from headtohead.data.metrics import Counts, References
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.model.batch import IGNORE_INDEX, Batch
from headtohead.model.cuda import kernel_dtype, on_cuda
from headtohead.model.decoding import Ends, greedy, non_autoregressive
from headtohead.model.loss import CHUNK_LOGITS, LOGITS_AT_ONCE, label_positions, token_losses
from headtohead.model.precision import matmul_precision
from headtohead.model.transformer import Transformer
from headtohead.schema.metric import LOSS, PERPLEXITY, TEACHER_FORCED, TOKEN_ACCURACY, Metric
from headtohead.schema.run_config import EvaluateConfig
from headtohead.training.tensors import SplitTensors

POSITIONS = 3
"""On a CPU, a piece of an evaluation has at least d_model divided by this many positions."""


@dataclass(frozen=True)
class TeacherForced:
    """Teacher-forced sums per sentence pair.

    Args:
        losses: Loss in nats, ``[member, row]``.
        correct: Number of tokens predicted correctly, ``[member, row]``.
        num_tokens: Number of labels, ``[row]``.
    """

    losses: Tensor
    correct: Tensor
    num_tokens: Tensor

    def counts(
        self, member: int, rows: Sequence[int] | slice = slice(None)
    ) -> dict[str, list[float]]:
        """Return the counts of the metrics ``TEACHER_FORCED`` of a member, summed over rows."""
        num_tokens = float(self.num_tokens[rows].sum())
        loss = [float(self.losses[member][rows].sum()), num_tokens]
        correct = [float(self.correct[member][rows].sum()), num_tokens]
        return {LOSS.name: loss, PERPLEXITY.name: loss, TOKEN_ACCURACY.name: correct}

    def metrics(self, member: int) -> dict[str, float]:
        """Return loss per token in nats, perplexity and token accuracy of a member."""
        return pooled(TEACHER_FORCED, self.counts(member))


@torch.no_grad()
def teacher_forced(
    model: Transformer, split: SplitTensors, batches: Sequence[Tensor]
) -> TeacherForced:
    """Return the teacher-forced losses and hits of every pair of a split."""
    model.eval()
    losses = torch.zeros(model.members, len(split), dtype=torch.float64)
    correct = torch.zeros(model.members, len(split), dtype=torch.float64)
    with matmul_precision(model):
        for rows in batches:
            batch = split.batch(rows.expand(model.members, -1), *split.times(rows))
            for members, part, logits, labels in _logits(model, batch):
                here = rows[part]
                losses[members, here] = token_losses(logits, labels).sum(-1).double().cpu()
                correct[members, here] = (logits.argmax(-1) == labels).sum(-1).double().cpu()
    return TeacherForced(losses, correct, split.num_labels)


def _logits(model: Transformer, batch: Batch) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield the logits and labels of some members and rows at a time, as many as processor caches hold.

    Each row has the positions with a label first, as many as the row with the most labels. The decoder's output
    is computed for the whole batch, so logits that depend on the batch row are those of the batch.
    """
    hidden, labels = model.hidden(batch), batch.labels
    if (most := max(1, int(batch.num_labels.max()))) < labels.shape[-1]:
        hidden, labels = label_positions(hidden, labels, most)
    members, rows, time, width = hidden.shape
    of_a_row = time * model.vocab_sizes.target
    # Every piece reads the weights, so a piece of a wide model has more positions.
    on_cpu = max(CHUNK_LOGITS, width // POSITIONS * model.vocab_sizes.target)
    limit = LOGITS_AT_ONCE if on_cuda(hidden) else on_cpu
    weight, bias = model.output_map
    weight = weight.to(kernel_dtype(weight))  # once, not in every piece
    together = min(members, max(1, limit // (rows * of_a_row)))
    piece = max(1, limit // (together * of_a_row))
    for first in range(0, members, together):
        for start in range(0, rows, piece):
            stack_members, part = slice(first, first + together), slice(start, start + piece)
            logits = model.project(
                hidden[stack_members, part],
                (weight[stack_members], None if bias is None else bias[stack_members]),
            )
            yield (
                stack_members,
                part,
                logits.to(torch.promote_types(logits.dtype, torch.float32)),
                labels[stack_members, part],
            )


Translator = Callable[[Transformer, Batch], Tensor]
"""Translates a batch to ids ``[member, row, time]``, with ``IGNORE_INDEX`` as padding."""


def translator(
    evaluate: EvaluateConfig, vocabulary: Vocabulary, max_length: int
) -> Translator | None:
    """Return the translator of a configuration, or None without decoding.

    Args:
        evaluate: The decoding.
        vocabulary: Target vocabulary.
        max_length: Maximum length of a translation in stepwise decoding, <eos> not counted.

    Raises:
        UndefinedError: If stepwise decoding is impossible, as the vocabulary has no <sos> or <eos>.
    """
    others = {
        "none": None,
        "non-autoregressive": translate_non_autoregressive,
        "teacher-forced": translate_teacher_forced,
    }
    if evaluate.decode in others:
        return others[evaluate.decode]
    ends = Ends.of(vocabulary)
    if ends is None:
        raise UndefinedError(
            f"{evaluate.decode} decoding requires <sos> and <eos>, which the target vocabulary lacks; set "
            "evaluate.decode: none, non-autoregressive or teacher-forced"
        )

    def translate_step_by_step(model: Transformer, batch: Batch) -> Tensor:
        ids = greedy(model, *model.prompts(batch), max_length, ends)
        return ids.masked_fill(ids == ends.fill, IGNORE_INDEX)

    return translate_step_by_step


@torch.no_grad()
def translate_non_autoregressive(model: Transformer, batch: Batch) -> Tensor:
    """Translate in a single pass, as `non_autoregressive` does."""
    ids = non_autoregressive(model, batch.source, batch.source_lengths)
    return _within(ids, batch.source_lengths).masked_fill(ids == 0, IGNORE_INDEX)


@torch.no_grad()
def translate_teacher_forced(model: Transformer, batch: Batch) -> Tensor:
    """Return the most probable token at each label of the teacher-forced pass.

    The labels of a sequence are answers. Those of a translation are its own later tokens, as in the notebook
    by-hand-en-fr, which measures copying, not translation.
    """
    ids = torch.full_like(batch.labels, IGNORE_INDEX)
    for members, part, logits, _ in _logits(model, batch):
        ids[members, part, : logits.shape[2]] = logits.argmax(-1)
    return _within(ids, batch.num_labels)


def _within(ids: Tensor, lengths: Tensor) -> Tensor:
    positions = torch.arange(ids.shape[-1], device=ids.device)
    return ids.where(positions < lengths.unsqueeze(-1), IGNORE_INDEX)


def translate_rows(
    model: Transformer, split: SplitTensors, batches: Sequence[Tensor], translator: Translator
) -> list[dict[int, list[int]]]:
    """Translate rows, and return token ids by row for each member."""
    model.eval()
    translations: list[dict[int, list[int]]] = [{} for _ in range(model.members)]
    with matmul_precision(model):
        for rows in batches:
            batch = split.batch(rows.expand(model.members, -1), *split.times(rows))
            for member, sentences in enumerate(translator(model, batch).tolist()):
                for row, sentence in zip(rows.tolist(), sentences, strict=True):
                    translations[member][row] = [
                        token for token in sentence if token != IGNORE_INDEX
                    ]
    return translations


class Scored(NamedTuple):
    """Teacher-forced sums of all pairs of a split, and token ids of translations by row, for all members."""

    forced: TeacherForced
    translations: list[dict[int, list[int]]] | None


def score(
    model: Transformer,
    split: SplitTensors,
    rows: Sequence[int],
    translate: Translator | None,
    padded: bool = True,
) -> Scored:
    """Score all pairs of a split, and translate the given rows.

    Args:
        model: The stack.
        split: The split.
        rows: The rows to translate.
        translate: From `translator`.
        padded: Whether a batch may contain sentences of different lengths; if not, every sentence is scored as in a
            batch of its own.
    """
    evaluate = model.config.evaluate
    size = 1 if model.position_is_row and not padded else evaluate.batch_size
    pairs = split.padded_batches(size)
    if not padded:
        pairs = split.unpadded_batches(size, by_target=True)
    forced = teacher_forced(model, split, pairs)
    if translate is None:
        return Scored(forced, None)
    chosen = torch.tensor(rows)
    batches = list(chosen.split(size))
    if not padded or "encoder" not in model.roles:
        # The target must not be padded either if the decoder is teacher-forced.
        by_target = evaluate.decode == "teacher-forced"
        batches = []
        for batch in split.unpadded_batches(size, by_target):
            chosen_rows = batch[torch.isin(batch, chosen)]
            if len(chosen_rows):
                batches.append(chosen_rows)
    return Scored(forced, translate_rows(model, split, batches, translate))


CHECKED_OUTPUTS = 10
"""Largest number of outputs for which ``per_example`` is called a second time, without the others."""


@dataclass(frozen=True)
class Translations:
    """Translations of distinct sources by a run, with all references of each source."""

    sources: tuple[str, ...]
    references: References
    hypotheses: tuple[str, ...]

    @property
    def exact(self) -> list[bool]:
        """Whether each translation equals one of its references."""
        pairs = zip(self.hypotheses, self.references, strict=True)
        return [hypothesis in references for hypothesis, references in pairs]

    def counts(self, metrics: Sequence[Metric]) -> dict[str, Counts]:
        """Return the counts ``[sentence, count]`` of the metrics that are computed from translations.

        Raises:
            HeadToHeadError: If a metric of a dataset returns other counts, or counts that depend on the other outputs.
        """
        counts = {}
        for metric in metrics:
            if not metric.per_example:
                continue
            values = np.asarray(metric.per_example(self.hypotheses, self.references))
            has_rows = values.ndim == 2 and len(values) == len(self.hypotheses)
            if not has_rows or not np.isfinite(values).all():
                raise HeadToHeadError(
                    f"per_example of metric '{metric.name}' returned counts of shape {values.shape}, or NaN, for "
                    f"{len(self.hypotheses)} outputs; return a row of finite counts for each output"
                )
            self._require_independent(metric, values)
            counts[metric.name] = values
        return counts

    def _require_independent(self, metric: Metric, counts: Counts) -> None:
        """Raise if the counts of the last outputs are others when a metric has only these outputs."""
        number = min(CHECKED_OUTPUTS, max(1, len(counts) // 2))
        hypotheses = self.hypotheses[-number:]
        references = self.references[-number:]
        assert metric.per_example is not None
        alone = np.asarray(metric.per_example(hypotheses, references))
        expected = counts[-number:]
        if alone.shape != expected.shape or not np.allclose(alone, expected, rtol=1e-3):
            raise HeadToHeadError(
                f"per_example of metric '{metric.name}' returned other counts for the last {number} of {len(counts)} "
                "outputs when it was called without the others; the counts of an output must depend on it and its "
                "references alone"
            )

    def scores(self, metrics: Sequence[Metric]) -> dict[str, float]:
        """Return the scores of all sentences."""
        return pooled(metrics, summed(self.counts(metrics)))


def summed(
    counts: Mapping[str, Counts], sentences: Sequence[int] | slice = slice(None)
) -> dict[str, list[float]]:
    """Return counts by metric, summed over all or some sentences."""
    return {name: values[sentences].sum(axis=0).tolist() for name, values in counts.items()}


def pooled(metrics: Sequence[Metric], counts: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the scores of counts that are summed over sentences, for the metrics that have counts."""
    scores = {}
    for metric in metrics:
        if metric.pool and metric.name in counts:
            scores[metric.name] = metric.pool(counts[metric.name])
    return scores


def collect(
    data: PreparedData, split: Split, rows: Sequence[int], translations: dict[int, list[int]]
) -> Translations:
    """Return translations as text, with sources and references."""
    tokeniser = data.tokenisers["target"]
    sources = tuple(split.source_text[row] for row in rows)
    references = tuple(split.references[row] for row in rows)
    hypotheses = tuple(tokeniser.prepared(translations[row]) for row in rows)
    return Translations(sources, references, hypotheses)

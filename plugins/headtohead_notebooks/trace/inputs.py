"""The inputs of a traced forward pass: text or ids as encoder and decoder inputs, with token labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headtohead.data import PreparedData
from headtohead.data.tokeniser import SIDES, Side
from headtohead.errors import HeadToHeadError
from headtohead.model.transformer import Transformer
from headtohead.training.maps import decoder_input, own_translations

NO_KNOWN_WORD = "no word of '{text}' is in the vocabulary; use other words"


@dataclass(frozen=True)
class TraceInputs:
    """Ids of both sides with their tokens.

    Args:
        source: Ids of the source, boundary tokens included.
        target: Ids of the decoder input.
        source_tokens: The token of each source id.
        target_tokens: The token of each target id.
        vocabulary: Words of the target side by id; larger ids have no word.
        target_origin: Origin of the decoder input, in words.
        notes: Remarks about words without an id.
    """

    source: Sequence[int]
    target: Sequence[int]
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    vocabulary: Sequence[str]
    target_origin: str = "the given target"
    notes: tuple[str, ...] = ()

    def labels(self, rows: int) -> tuple[str, ...]:
        """Return the words of the first ``rows`` ids; ids without a word are labelled by number."""
        labels = list(self.vocabulary[:rows])
        for index in range(len(labels), rows):
            labels.append(f"id {index}")
        return tuple(labels)


def inputs_from_text(
    model: Transformer, data: PreparedData, source: str, target: str | None, max_length: int
) -> TraceInputs:
    """Return a sentence pair, or a text, as training encodes it.

    Args:
        model: The model in evaluation mode.
        data: Vocabularies, and the corpus if there is one.
        source: Raw text; also the text that a model without sources reads.
        target: Raw text; None selects the translation in the corpus, or else the model's own translation.
        max_length: Maximum number of words of the model's own translation.

    Raises:
        HeadToHeadError: If a sentence has no known word, a word is refused, or there is no target.
    """
    source, target = data.texts(source, target)
    source_ids: list[int] = []
    if data.has_sources:
        source_ids = data.tokenise(source, "source")
        if not source_ids:
            raise HeadToHeadError(NO_KNOWN_WORD.format(text=source))
    if target is not None:
        target_ids = data.tokenise(target, "target")
        ids = decoder_input(model, data, target_ids)
        origin = "the given target" if data.has_sources else "the given text"
    else:
        ids, origin = _without_target(model, data, source, source_ids, max_length)
    if not ids:
        raise HeadToHeadError(NO_KNOWN_WORD.format(text=target))
    notes = []
    texts = {"source": source, "target": target}
    for side in SIDES:
        text = texts[side]
        if text is None:
            continue
        note = _note_on_unknown_words(data, text, side)
        if note:
            notes.append(note)
    source_vocabulary = data.source_vocabulary
    target_vocabulary = data.target_vocabulary
    return TraceInputs(
        source_ids,
        ids,
        source_tokens=tuple(source_vocabulary.label(index) for index in source_ids),
        target_tokens=tuple(target_vocabulary.label(index) for index in ids),
        vocabulary=target_vocabulary.words,
        target_origin=origin,
        notes=tuple(notes),
    )


def _without_target(
    model: Transformer,
    data: PreparedData,
    source: str,
    source_ids: list[int],
    max_length: int,
) -> tuple[list[int], str]:
    """Return a decoder input and its origin: the corpus' translation, or else the model's own."""
    translation = _corpus_translation(data, source, source_ids)
    if translation is not None:
        return decoder_input(model, data, translation), "its translation in the corpus"
    row = torch.tensor([source_ids]).expand(model.members, 1, -1)
    lengths = torch.full((model.members, 1), len(source_ids))
    ids = own_translations(model, data, row, lengths, max_length)[0]
    if model.config.evaluate.decode == "non-autoregressive":
        return ids, "zeros, the decoder input of this model's translations"
    return ids, "the model's own translation"


def _corpus_translation(
    data: PreparedData, source: str, source_ids: Sequence[int]
) -> list[int] | None:
    """Return the corpus' first translation of a source without unknown words, or None."""
    if data.tokenisers["source"].unknown(source):
        return None
    for split in data.splits.values():
        for row, ids in enumerate(split.source):
            if len(ids) == len(source_ids) and ids.tolist() == source_ids:
                return [int(index) for index in split.target[row]]
    return None


def _note_on_unknown_words(data: PreparedData, text: str, side: Side) -> str:
    """Return a remark about the words of a text without an id; empty if all have one."""
    unknown = data.tokenisers[side].unknown(text)
    if not unknown:
        return ""
    name = f"words of the {side}" if data.has_sources else "tokens"
    effect = "become <unk>"
    if data.vocabulary(side).unknown == "drop":
        effect = "are left out"
    quoted = [f"'{token}'" for token in unknown]
    return f"{name} without an id {effect}: {', '.join(quoted)}"

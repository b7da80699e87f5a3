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
        words = tuple(self.vocabulary[:rows])
        return words + tuple(f"id {index}" for index in range(len(words), rows))


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
    source_ids = data.tokenise(source, "source") if data.has_sources else []
    if data.has_sources and not source_ids:
        raise HeadToHeadError(f"no word of '{source}' is in the vocabulary; use other words")
    if target is not None:
        ids = decoder_input(model, data, data.tokenise(target, "target"))
        origin = "the given target" if data.has_sources else "the given text"
    elif (translation := _corpus_translation(data, source, source_ids)) is not None:
        ids, origin = decoder_input(model, data, translation), "its translation in the corpus"
    else:
        row = torch.tensor([source_ids]).expand(model.members, 1, -1)
        lengths = torch.full((model.members, 1), len(source_ids))
        ids = own_translations(model, data, row, lengths, max_length)[0]
        origin = "the model's own translation"
        if model.config.evaluate.decode == "non-autoregressive":
            origin = "zeros, the decoder input of this model's translations"
    if not ids:
        raise HeadToHeadError(f"no word of '{target}' is in the vocabulary; use other words")
    texts = {"source": source, "target": target}
    notes = [
        note
        for side in SIDES
        if (text := texts[side]) is not None
        for note in _notes(data, text, side)
    ]
    return TraceInputs(
        source_ids,
        ids,
        tuple(map(data.source_vocabulary.label, source_ids)),
        tuple(map(data.target_vocabulary.label, ids)),
        data.target_vocabulary.words,
        origin,
        tuple(notes),
    )


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


def _notes(data: PreparedData, text: str, side: Side) -> list[str]:
    unknown = data.tokenisers[side].unknown(text)
    if not unknown:
        return []
    effect = "are left out" if data.vocabulary(side).unknown == "drop" else "become <unk>"
    listed = ", ".join(f"'{token}'" for token in unknown)
    name = f"words of the {side}" if data.has_sources else "tokens"
    return [f"{name} without an id {effect}: {listed}"]

"""From text to what both sides of a model read, and back to labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headtohead.data import PreparedData
from headtohead.data.prepared import SIDES, Side
from headtohead.errors import HeadToHeadError
from headtohead.model.transformer import Transformer
from headtohead.training.maps import own_translation


@dataclass(frozen=True)
class Sentences:
    """Ids that both sides read, and the words they stand for.

    Args:
        source: Ids of the source, boundary tokens included.
        target: Ids that the decoder reads.
        source_tokens: The word of each.
        target_tokens: Likewise.
        vocabulary: Words of the target side by id; ids beyond it have none.
        target_from: Where the target comes from, in words.
        notes: What happened to words that have no id.
    """

    source: Sequence[int]
    target: Sequence[int]
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    vocabulary: Sequence[str]
    target_from: str = "the given target"
    notes: tuple[str, ...] = ()

    def labels(self, rows: int) -> tuple[str, ...]:
        """Return the words of so many ids, those without a word by their number."""
        named = tuple(self.vocabulary[:rows])
        return named + tuple(f"id {index}" for index in range(len(named), rows))


def read_sentences(model: Transformer, data: PreparedData, source: str, target: str | None, longest: int) -> Sentences:
    """Turn a sentence pair into ids, as the training of the model reads them.

    Args:
        model: In evaluation mode.
        data: Vocabularies, and perhaps the corpus.
        source: Raw text.
        target: Raw text; None takes the corpus' translation of the source, else the model's own.
        longest: Most words of its own translation.

    Raises:
        HeadToHeadError: If nothing is left of a sentence, a word is refused, or there is no target.
    """
    source_ids = data.tokenise(source, "source")
    if not source_ids:
        raise HeadToHeadError(f"no word of '{source}' is in the vocabulary; use other words")
    known = _known(data, source, source_ids) if target is None else None
    if target is not None:
        ids, told = _reads(model, data.tokenise(target, "target")), "the given target"
    elif known is not None:
        ids, told = _reads(model, known), "its translation in the corpus"
    else:
        row = torch.tensor([source_ids]).expand(model.members, 1, -1)
        lengths = torch.full((model.members, 1), len(source_ids))
        ids = own_translation(model, 0, data, row, lengths, longest)
        told = "what the model itself writes"
        if model.config.evaluate.decode == "non-autoregressive":
            told = "zeros, as the model does when it translates"
    if not ids:
        raise HeadToHeadError(f"no word of '{target}' is in the vocabulary; use other words")
    notes = [
        note
        for side, text in zip(SIDES, (source, target), strict=True)
        if text is not None
        for note in _notes(data, text, side)
    ]
    return Sentences(
        source_ids,
        ids,
        _labels(data, source_ids, "source"),
        _labels(data, ids, "target"),
        data.target_vocabulary.words,
        told,
        tuple(notes),
    )


def read_ids(model: Transformer, source: str, target: str | None) -> Sentences:
    """Read ids, written as numbers, for a model that has no vocabularies.

    Raises:
        HeadToHeadError: If something is no id, or no target is given.
    """
    if target is None:
        raise HeadToHeadError(
            "the run works on ids alone and has no translation of its own; give the ids that the "
            "decoder reads, for example --target '1 5 7'"
        )
    sides = _ids(source, model.vocab_sizes.source), _ids(target, model.vocab_sizes.target)
    source_tokens, target_tokens = (tuple(f"id {index}" for index in ids) for ids in sides)
    return Sentences(*sides, source_tokens, target_tokens, ())


def _ids(text: str, rows: int) -> list[int]:
    for word in text.split():
        if not word.isdecimal() or int(word) >= rows:
            raise HeadToHeadError(f"the run works on ids alone; expected numbers below {rows}, got '{word}'")
    if not text.split():
        raise HeadToHeadError("the run works on ids alone; expected at least one")
    return [int(word) for word in text.split()]


def _reads(model: Transformer, ids: list[int]) -> list[int]:
    """Return what the decoder reads of a target: all of it, or all but what it must say last."""
    return ids if not model.config.quirks.shift_targets else ids[:-1] or ids


def _known(data: PreparedData, source: str, source_ids: Sequence[int]) -> list[int] | None:
    """Return the corpus' first translation of a source all of whose words are known."""
    if any(map(data.source_vocabulary.lacks, data.tokenisers["source"].words(source))):
        return None
    for split in data.splits.values():
        for row, ids in enumerate(split.source):
            if len(ids) == len(source_ids) and ids.tolist() == source_ids:
                return [int(index) for index in split.target[row]]
    return None


def _labels(data: PreparedData, ids: Sequence[int], side: Side) -> tuple[str, ...]:
    return tuple(data.vocabulary(side).label(index) for index in ids)


def _notes(data: PreparedData, text: str, side: Side) -> list[str]:
    vocabulary = data.vocabulary(side)
    lost = [word for word in data.tokenisers[side].words(text) if vocabulary.lacks(word)]
    if not lost:
        return []
    became = "are left out" if vocabulary.unknown == "drop" else "become <unk>"
    listed = ", ".join(f"'{word}'" for word in dict.fromkeys(lost))
    return [f"words of the {side} that have no id {became}: {listed}"]

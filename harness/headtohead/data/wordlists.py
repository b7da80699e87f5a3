"""The vocabularies of a configuration: counted, printed, or by position."""

from __future__ import annotations

from collections.abc import Mapping

from headtohead.data.prepared import SIDES, Side, Tokeniser
from headtohead.data.vocabulary import (
    Vocabulary,
    bounded_words,
    build_vocabulary,
    frequency_vocabulary,
    position_vocabulary,
    printed_vocabulary,
)
from headtohead.errors import UndefinedError
from headtohead.schema.run_config import DataConfig

Sentences = dict[Side, list[list[str]]]
"""Words of each sentence, by side."""
Tables = tuple[Mapping[str, int], Mapping[str, int]]


def vocabularies_of(
    train: Sentences, tokenisers: Mapping[Side, Tokeniser], config: DataConfig, printed: Tables | None
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side; a shared vocabulary is the same object twice.

    Args:
        train: Words of the training sentences, without boundary tokens.
        tokenisers: Tokeniser of each side.
        config: The ``data`` section.
        printed: Tables of word to id of the dataset, source and target, if it has any.

    Raises:
        UndefinedError: If ``data.vocabulary.ids`` is incompatible with the data or with other fields.
    """
    vocabulary = config.vocabulary
    if vocabulary.ids in ("printed", "position"):
        refuse_counting_fields(
            config,
            f"data.vocabulary.ids: {config.vocabulary.ids} does not count words",
            "data.vocabulary.shared",
            config.vocabulary.shared,
        )
    if vocabulary.ids == "printed":
        if printed is None:
            raise UndefinedError(
                f"dataset '{config.dataset}' has no printed vocabularies; use data.vocabulary.ids: frequency"
            )
        return {side: printed_vocabulary(table, vocabulary.unknown) for side, table in zip(SIDES, printed, strict=True)}
    bounded = {side: [bounded_words(words, tokenisers[side].boundaries) for words in train[side]] for side in SIDES}
    if vocabulary.ids == "position":
        return {side: position_vocabulary(bounded[side], vocabulary.unknown) for side in SIDES}
    sentences = train if vocabulary.ids == "standard" else bounded
    if vocabulary.shared:
        both = _counted([*sentences["source"], *sentences["target"]], tokenisers["source"], config)
        return {"source": both, "target": both}
    return {side: _counted(sentences[side], tokenisers[side], config) for side in SIDES}


def _counted(sentences: list[list[str]], tokeniser: Tokeniser, config: DataConfig) -> Vocabulary:
    vocabulary = config.vocabulary
    build = build_vocabulary if vocabulary.ids == "standard" else frequency_vocabulary
    if tokeniser.subwords is None:
        return build(
            sentences, min_count=vocabulary.min_count, max_size=vocabulary.max_size, unknown=vocabulary.unknown
        )
    from headtohead.data.subwords import inventory

    return build(sentences, pieces=inventory(tokeniser.subwords), unknown=vocabulary.unknown)


def refuse_counting_fields(config: DataConfig, reason: str, other: str, other_is_set: bool) -> None:
    """Raise an error for fields that apply to counted vocabularies only, and for the field ``other`` if it is set."""
    fields = {
        other: other_is_set,
        "data.vocabulary.min_count": config.vocabulary.min_count > 1,
        "data.vocabulary.max_size": config.vocabulary.max_size is not None,
        "data.tokens: subword": config.tokens != "word",
    }
    for name, is_set in fields.items():
        if is_set:
            raise UndefinedError(f"{reason}; leave out {name}")

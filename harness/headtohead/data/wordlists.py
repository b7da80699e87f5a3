"""Which vocabularies a configuration asks for: counted, printed, or by position."""

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

Words = dict[Side, list[list[str]]]
Tables = tuple[Mapping[str, int], Mapping[str, int]]


def vocabularies_of(
    train: Words, tokenisers: Mapping[Side, Tokeniser], config: DataConfig, printed: Tables | None
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side; the same object twice where they share one.

    Args:
        train: Words of the training sentences, without boundary tokens.
        tokenisers: Of each side.
        config: The ``data`` section.
        printed: The dataset's own tables, if it brings any.

    Raises:
        UndefinedError: If the ids have no meaning here.
    """
    asked = config.vocabulary
    if asked.ids in ("printed", "position"):
        _refuse_counted(config)
    if asked.ids == "printed":
        if printed is None:
            raise UndefinedError(
                f"dataset '{config.dataset}' brings no printed vocabularies; use data.vocabulary.ids: frequency"
            )
        return {side: printed_vocabulary(table, asked.unknown) for side, table in zip(SIDES, printed, strict=True)}
    bounded = {side: [bounded_words(words, tokenisers[side].boundaries) for words in train[side]] for side in SIDES}
    if asked.ids == "position":
        return {side: position_vocabulary(bounded[side], asked.unknown) for side in SIDES}
    sentences = train if asked.ids == "standard" else bounded
    if asked.shared:
        both = _counted([*sentences["source"], *sentences["target"]], tokenisers["source"], config)
        return {"source": both, "target": both}
    return {side: _counted(sentences[side], tokenisers[side], config) for side in SIDES}


def _counted(sentences: list[list[str]], tokeniser: Tokeniser, config: DataConfig) -> Vocabulary:
    asked = config.vocabulary
    build = build_vocabulary if asked.ids == "standard" else frequency_vocabulary
    if tokeniser.subwords is None:
        return build(sentences, min_count=asked.min_count, max_size=asked.max_size, unknown=asked.unknown)
    from headtohead.data.subwords import inventory

    return build(sentences, pieces=inventory(tokeniser.subwords), unknown=asked.unknown)


def _refuse_counted(config: DataConfig) -> None:
    """Refuse what only a vocabulary that is counted can have."""
    asked = config.vocabulary
    wrong = {
        "data.vocabulary.shared": asked.shared,
        "data.vocabulary.min_count": asked.min_count > 1,
        "data.vocabulary.max_size": asked.max_size is not None,
        "data.tokens: subword": config.tokens != "word",
    }
    for name, is_set in wrong.items():
        if is_set:
            raise UndefinedError(f"data.vocabulary.ids: {asked.ids} takes words as they are; leave out {name}")

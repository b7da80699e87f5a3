"""The vocabularies of a configuration: counted, or printed by a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headtohead.data import subwords
from headtohead.data.prepared import SIDES, Side, Tokeniser
from headtohead.data.vocabulary import BOUNDARIES, EOS_WORD, SOS_WORD, SPECIALS, UNK_WORD, Vocabulary
from headtohead.errors import UndefinedError
from headtohead.schema.run_config import DataConfig, VocabularyConfig

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
    vocabulary, sentences = config.vocabulary, train
    if vocabulary.ids == "printed":
        reason = "data.vocabulary.ids: printed does not count words"
        refuse_counting_fields(config, reason, "data.vocabulary.shared", vocabulary.shared)
        if printed is None:
            raise UndefinedError(
                f"dataset '{config.dataset}' has no printed vocabularies; use data.vocabulary.ids: frequency"
            )
        return {side: _printed(table, vocabulary) for side, table in zip(SIDES, printed, strict=True)}
    if vocabulary.ids == "frequency":
        sentences = {}
        for side in SIDES:
            front, back = BOUNDARIES[tokenisers[side].boundaries]
            plain = ([word for word in words if word not in SPECIALS] for words in train[side])
            sentences[side] = [[*front, *words, *back] for words in plain]
    pieces = {
        side: sorted(subwords.load_tokenizer(text).get_vocab()) if (text := tokenisers[side].subwords) else None
        for side in SIDES
    }
    if vocabulary.shared:
        both = count_words([*sentences["source"], *sentences["target"]], vocabulary, pieces["source"])
        return {"source": both, "target": both}
    return {side: count_words(sentences[side], vocabulary, pieces[side]) for side in SIDES}


def count_words(
    sentences: Iterable[Sequence[str]], config: VocabularyConfig, pieces: Iterable[str] | None = None
) -> Vocabulary:
    """Return the vocabulary of the words of the training sentences, the most frequent first.

    ``ids: standard`` has the special tokens first and sorts equally frequent words alphabetically. ``ids: frequency``
    (as in the notebooks) has <pad>, and <unk> if ``unknown`` is ``token``, first; boundary tokens are counted like
    words, and of equally frequent words the first in the sentences comes first.

    Args:
        sentences: Words of each training sentence; for ``ids: frequency`` with its boundary tokens.
        config: The minimum frequency of a word, the maximum size with special tokens, and the treatment of unknown
            words. Both limits exclude no special token.
        pieces: All subwords, which are included without limits; None for a vocabulary of words.
    """
    standard, limits = config.ids == "standard", pieces is None
    counts = Counter(word for sentence in sentences for word in sentence)
    counts.update(dict.fromkeys(pieces or (), 0))
    front = list(SPECIALS if standard else SPECIALS[:2] if config.unknown == "token" else SPECIALS[:1])
    boundaries = [] if standard else [word for word in (SOS_WORD, EOS_WORD) if counts[word]]
    ordered = sorted(counts, key=lambda word: (-counts[word], word if standard else ""))
    plain = [word for word in ordered if word not in SPECIALS and (counts[word] >= config.min_count or not limits)]
    if config.max_size is not None and limits:
        plain = plain[: max(0, config.max_size - len(front) - len(boundaries))]
    included = {*plain, *boundaries}
    return Vocabulary([*front, *(word for word in ordered if word in included)], not limits, config.unknown)


def _printed(table: Mapping[str, int], config: VocabularyConfig) -> Vocabulary:
    words = sorted(table, key=table.__getitem__)
    if [table[word] for word in words] != list(range(len(words))):
        raise UndefinedError(f"a printed vocabulary must have the ids 0 to {len(words) - 1}; correct the dataset")
    if config.unknown == "token" and UNK_WORD not in table:
        raise UndefinedError("the printed vocabulary has no <unk>; set data.vocabulary.unknown: drop or refuse")
    return Vocabulary(words, unknown=config.unknown)


def refuse_counting_fields(config: DataConfig, reason: str, other: str, other_is_set: bool) -> None:
    """Raise an error for fields that apply to counted vocabularies only, and for the field ``other`` if it is set."""
    fields = {
        other: other_is_set,
        "data.vocabulary.min_count": config.vocabulary.min_count > 1,
        "data.vocabulary.max_size": config.vocabulary.max_size is not None,
        "data.tokens: subword": config.tokens != "word",
    }
    for name in (name for name, is_set in fields.items() if is_set):
        raise UndefinedError(f"{reason}; leave out {name}")

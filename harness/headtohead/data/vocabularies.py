"""The vocabularies of a configuration: counted, printed by a dataset, or those of a ``tokenizer.json``.

Ids of a ``tokenizer.json`` are those of the file. Its four special tokens get the names that headtohead uses.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headtohead.data import subwords
from headtohead.data.reading import parse_json, read_text
from headtohead.data.tokeniser import SIDES, Side, Unit, boundaries_of
from headtohead.data.vocabulary import (
    BOUNDARIES,
    EOS_WORD,
    PAD_WORD,
    SOS_WORD,
    SPECIALS,
    UNK_WORD,
    Vocabulary,
)
from headtohead.errors import HeadToHeadError, UndefinedError, shown_path, similar
from headtohead.schema.run_config import DataConfig, VocabularyConfig

USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>", "<|unknown|>"),
    "bos": ("<s>", "<bos>", "<sos>", "[BOS]", "[CLS]", "<|startoftext|>", "<|begin_of_text|>"),
    "eos": ("</s>", "<eos>", "[EOS]", "[SEP]", "<|endoftext|>", "<|end_of_text|>"),
}
"""Names that are recognised without ``data.vocabulary.special_tokens``; the first that exists counts."""

OWN_NAMES = {"pad": PAD_WORD, "unk": UNK_WORD, "bos": SOS_WORD, "eos": EOS_WORD}
MAX_UNUSED_IDS = 10_000

Sentences = dict[Side, list[list[str]]]
"""Words of each sentence, by side."""
Words = Mapping[Side, Iterable[str]]
Tables = tuple[Mapping[str, int], Mapping[str, int]]


def vocabularies_of(
    train: Sentences,
    units: Mapping[Side, Unit],
    config: DataConfig,
    printed: Tables | None,
    further: Words,
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side; a shared vocabulary is the same object twice.

    Args:
        train: Words of the training sentences, without boundary tokens.
        units: Unit of each side.
        config: The ``data`` section.
        printed: Tables of word to id of the dataset, source and target, if it has any.
        further: Words of each side that get ids even if training does not contain them.

    Raises:
        UndefinedError: If ``data.vocabulary.ids`` is incompatible with the data or with other fields.
    """
    vocabulary = config.vocabulary
    if vocabulary.ids == "printed":
        reason = "data.vocabulary.ids: printed does not count words"
        refuse_counting_fields(config, reason, "data.vocabulary.shared", vocabulary.shared)
        if printed is None:
            raise UndefinedError(
                f"dataset '{config.dataset}' has no printed vocabularies; use data.vocabulary.ids: frequency"
            )
        source_ids, target_ids = printed
        return {
            "source": _printed(source_ids, vocabulary),
            "target": _printed(target_ids, vocabulary),
        }
    sentences = _with_boundaries(train, config) if vocabulary.ids == "frequency" else train
    words: dict[Side, Iterable[str]] = {**further}
    if config.tokens == "character":  # characters are not known before the text
        words = dict.fromkeys(SIDES, ())
    elif config.tokens == "subword":
        words = {side: subwords.pieces(str(units[side].subwords)) for side in SIDES}
    pieces = config.tokens != "word"
    if not vocabulary.shared:
        return {
            side: count_words(sentences[side], vocabulary, words[side], pieces) for side in SIDES
        }
    # Subwords of a shared vocabulary are learned once, so both sides have the same.
    of_both = words["source"] if pieces else {*words["source"], *words["target"]}
    all_sentences = [*sentences["source"], *sentences["target"]]
    return dict.fromkeys(SIDES, count_words(all_sentences, vocabulary, of_both, pieces))


def _with_boundaries(train: Sentences, config: DataConfig) -> Sentences:
    """Return the sentences with their boundary tokens, and without special tokens that are written in a text."""
    sentences: Sentences = {}
    for side, boundaries in boundaries_of(config).items():
        before, after = BOUNDARIES[boundaries]
        sentences[side] = []
        for words in train[side]:
            plain = [word for word in words if word not in SPECIALS]
            sentences[side].append([*before, *plain, *after])
    return sentences


def count_words(
    sentences: Iterable[Sequence[str]],
    config: VocabularyConfig,
    further: Iterable[str] = (),
    pieces: bool = False,
) -> Vocabulary:
    """Return the vocabulary of the words of the training sentences, the most frequent first.

    ``ids: standard`` has the special tokens first and sorts equally frequent words alphabetically. ``ids: frequency``
    (as in the notebooks) has <pad>, and <unk> if ``unknown`` is ``token``, first; boundary tokens are counted like
    words, and of equally frequent words the first in the sentences comes first.

    Args:
        sentences: Words of each training sentence; for ``ids: frequency`` with its boundary tokens.
        config: The minimum frequency of a word, the maximum size with special tokens, and the treatment of unknown
            words. Both limits exclude no special token.
        further: Words that are included even if no sentence contains them, after all others.
        pieces: Whether these are subwords, which are included without limits.
    """
    counts = Counter[str]()
    for sentence in sentences:
        counts.update(sentence)
    counts.update(dict.fromkeys(further if pieces else sorted(further), 0))
    boundaries: list[str] = []
    if config.ids == "standard":
        front = list(SPECIALS)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
    else:
        front = [PAD_WORD, UNK_WORD] if config.unknown == "token" else [PAD_WORD]
        boundaries = [word for word in (SOS_WORD, EOS_WORD) if counts[word]]
        ordered = sorted(counts, key=lambda word: -counts[word])
    plain = [word for word in ordered if word not in SPECIALS]
    if not pieces:
        plain = [word for word in plain if max(counts[word], 1) >= config.min_count]
        if config.max_size is not None:
            plain = plain[: max(0, config.max_size - len(front) - len(boundaries))]
    included = {*plain, *boundaries}
    counted = [word for word in ordered if word in included]
    return Vocabulary([*front, *counted], config.unknown)


def _printed(table: Mapping[str, int], config: VocabularyConfig) -> Vocabulary:
    """Return the vocabulary of a table of ids by word."""
    words = sorted(table, key=lambda word: table[word])
    if sorted(table.values()) != list(range(len(words))):
        raise UndefinedError(
            f"a printed vocabulary must have the ids 0 to {len(words) - 1}; correct the dataset"
        )
    if config.unknown == "token" and UNK_WORD not in table:
        raise UndefinedError(
            "the printed vocabulary has no <unk>; set data.vocabulary.unknown: drop or refuse"
        )
    return Vocabulary(words, unknown=config.unknown)


def refuse_counting_fields(config: DataConfig, reason: str, other: str, other_is_set: bool) -> None:
    """Raise an error for fields that apply to counted vocabularies only, and for the field ``other`` if it is set."""
    fields = {
        other: other_is_set,
        "data.vocabulary.min_count": config.vocabulary.min_count > 1,
        "data.vocabulary.max_size": config.vocabulary.max_size is not None,
        f"data.tokens: {config.tokens}": config.tokens != "word",
    }
    for name, is_set in fields.items():
        if is_set:
            raise UndefinedError(f"{reason}; leave out {name}")


def read_tokenizer(config: DataConfig) -> tuple[Vocabulary, str]:
    """Return the vocabulary of the file ``data.vocabulary.file``, and the text of the file.

    Raises:
        HeadToHeadError: If the file is not a tokenizer, or a special token is missing.
        UndefinedError: If other fields contradict the file.
    """
    vocabulary = config.vocabulary
    name = file_name(config)
    reason = "data.vocabulary.file has its own tokens and ids"
    refuse_counting_fields(config, reason, "data.vocabulary.ids", vocabulary.ids != "standard")
    text = _read(config)
    parts = _parsed(text, name)
    try:
        tokenizer = subwords.load_tokenizer(text)
    except HeadToHeadError as error:
        raise HeadToHeadError(f"{name}: {error}") from error
    except Exception as error:  # the package raises plain exceptions
        reason = " ".join(str(error).split())
        raise HeadToHeadError(
            f"{name} is not a tokenizer.json of Hugging Face's tokenizers ({reason})"
        ) from error
    if parts["model"].get("dropout"):
        raise HeadToHeadError(
            f"{name} splits words at random (model.dropout); set it to null in the file"
        )
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    words = _words_by_id(ids, name)
    for kind, token in _special_tokens(ids, vocabulary, name).items():
        words[ids[token]] = OWN_NAMES[kind]
    for word in sorted(OWN_NAMES.values()):
        if words.count(word) > 1:
            raise HeadToHeadError(
                f"{name} uses '{word}' for another token than the special token of that name; name the special "
                "tokens in data.vocabulary.special_tokens"
            )
    return Vocabulary(words, vocabulary.unknown), text


def _words_by_id(ids: Mapping[str, int], name: str) -> list[str]:
    """Return the token of every id from 0; an id without a token has a name that no text contains."""
    size = max(ids.values(), default=-1) + 1
    if size > len(ids) + MAX_UNUSED_IDS:
        raise HeadToHeadError(f"{name} has {len(ids)} tokens with ids up to {size - 1}")
    token_of: dict[int, str] = {}
    for token, index in sorted(ids.items()):
        if index in token_of:
            raise HeadToHeadError(
                f"{name} has two tokens for the id {index}, '{token_of[index]}' and '{token}'; keep one"
            )
        token_of[index] = token
    return [token_of.get(index, f"<unused {index}>") for index in range(size)]


def _parsed(text: str, name: str) -> Any:
    """Return the JSON value of a tokenizer file; a name that occurs twice, as of a token with two ids, is an error."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise HeadToHeadError(
            f"{name} is not a tokenizer.json of Hugging Face's tokenizers ({error})"
        ) from error


def tokenizer_key(config: DataConfig) -> str:
    """Return what prepared data depend on in the file and the names of its special tokens; empty without a file."""
    if config.vocabulary.file is None:
        return ""
    return json.dumps([_read(config), config.vocabulary.special_tokens.model_dump()])


def file_name(config: DataConfig) -> str:
    """Return the field and the path of the file, for messages."""
    return f"data.vocabulary.file '{shown_path(str(config.vocabulary.file))}'"


def _read(config: DataConfig) -> str:
    try:
        return read_text(Path(str(config.vocabulary.file)))
    except HeadToHeadError as error:
        raise HeadToHeadError(f"data.vocabulary.file: {error}") from error


def _special_tokens(ids: dict[str, int], vocabulary: VocabularyConfig, name: str) -> dict[str, str]:
    """Return the special tokens of the file: the configured ones, else those with a usual name."""
    tokens: dict[str, str] = {}
    for kind, usual in USUAL_NAMES.items():
        field = f"data.vocabulary.special_tokens.{kind}"
        configured: str | None = getattr(vocabulary.special_tokens, kind)
        if configured is not None and configured not in ids:
            symbols = [token for token in ids if not token.isalnum()]
            hint = similar(configured, symbols[:1000])
            raise HeadToHeadError(f"{field}: {name} has no token '{configured}'{hint}")
        if configured:
            tokens[kind] = configured
            continue
        present = [token for token in usual if token in ids]
        if present:
            tokens[kind] = present[0]
        elif kind != "unk":
            raise HeadToHeadError(
                f"{name} has none of the tokens {', '.join(usual)}; name its token in {field}"
            )
        elif vocabulary.unknown == "token":
            raise HeadToHeadError(
                f"{name} has none of the tokens {', '.join(usual)}; name its token in {field}, or set "
                "data.vocabulary.unknown: refuse if it has a token for every text"
            )
    if len(set(tokens.values())) < len(tokens):
        listed = ", ".join(f"{kind}: {token}" for kind, token in tokens.items())
        raise HeadToHeadError(
            f"data.vocabulary.special_tokens: each needs its own token, but found {listed}"
        )
    return tokens

"""The ``data`` block of run records: counts, lengths, leaks between the parts, and reference points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.data.cleaning import Cleaned
from headtohead.data.normalise import appearance
from headtohead.data.prepared import Ids, PreparedData, Split
from headtohead.data.reference_points import (
    bag_of_words_upper_bound,
    losses_without_model,
    vocabulary_bound_translations,
)
from headtohead.data.splits import LEAKY_SHARE, Labels, leak, text_leak
from headtohead.data.tokeniser import Side
from headtohead.data.vocabulary import IGNORE_INDEX, Vocabulary
from headtohead.plugins.dataset import Corpus


def data_record(
    cleaned: Cleaned, parts: Mapping[str, Labels], data: PreparedData, unreachable: Sequence[int]
) -> dict[str, Any]:
    """Return the record of prepared data, with no notes yet.

    Args:
        cleaned: The pairs of the corpus.
        parts: Rows of the pairs of each part.
        data: The prepared data; their record is not used.
        unreachable: See `unreachable_rows`.
    """
    config = cleaned.config
    corpus = cleaned.corpus
    train = data.splits["train"]
    test = data.splits["test"]
    counts: dict[str, int] = {}
    unknown_rates: dict[str, dict[Side, float]] = {}
    for part, split in data.splits.items():
        counts[part] = len(split)
        unknown_rates[part] = _unknown_rates(split, data)
    vocabulary = data.source_vocabulary
    words = [vocabulary.count_words(ids) for ids in train.measured]
    record: dict[str, Any] = {
        "dataset": config.dataset,
        "data_hash": data.data_hash,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "languages": list(corpus.languages),
        "split": config.split,
        "normalise": config.normalise,
        "tokens": "tokenizer" if config.vocabulary.file else config.tokens,
        "counts": counts,
        "dropped": dict(cleaned.dropped),
        "vocabulary": {
            "source": len(data.source_vocabulary),
            "target": len(data.target_vocabulary),
        },
        "longest": {"source": _longest(data, "source"), "target": _longest(data, "target")},
        "longest_in_train": max(words),
        **_leaks(cleaned, parts, data.splits),
        "bag_of_words_upper_bound": None,
        "unk_rate": unknown_rates,
        "notes": [],
    }
    if any(len(ids) for ids in test.source):  # else no encoder reads a bag of words
        bound = bag_of_words_upper_bound(test.source_text, test.references)
        record["bag_of_words_upper_bound"] = bound
    if cleaned.is_text:
        size = len(data.target_vocabulary)
        record["passages"] = _passages(corpus, data.splits)
        losses = losses_without_model(train.target, test.target, size)
        record["losses_without_model"] = losses
    if cleaned.is_labelled:
        labels = {part: sum(_label_counts(split)) for part, split in data.splits.items()}
        record["labels"] = labels
    record["vocabulary_upper_bound"] = 1 - len(unreachable) / len(distinct_rows(test))
    return record


def distinct_rows(test: Split) -> list[int]:
    """Return the rows of a test split that scores count: one of each source, and every row without one."""
    row_of: dict[str | int, int] = {}
    for row, text in enumerate(test.source_text):
        row_of[text or row] = row
    return list(row_of.values())


def unreachable_rows(data: PreparedData) -> list[int]:
    """Return the distinct rows of test whose references the target vocabulary cannot reproduce."""
    test = data.splits["test"]
    rows = distinct_rows(test)
    translations = vocabulary_bound_translations(data, rows)
    pairs = zip(rows, translations, strict=True)
    return [row for row, translation in pairs if translation not in test.references[row]]


def _longest(data: PreparedData, side: Side) -> int:
    """Return the number of tokens of the longest sentence of a side, boundary tokens included."""
    longest = 0
    for split in data.splits.values():
        for ids in split.ids(side):
            longest = max(longest, len(ids))
    return longest


def _passages(corpus: Corpus, splits: Mapping[str, Split]) -> dict[str, Any]:
    """Return the number of passages and of predicted tokens of each part of a text, and where the passages are.

    ``places`` has the beginning and the end of each passage, or is empty if the dataset does not state them.
    """
    passages: dict[str, Any] = {}
    for part, split in splits.items():
        places = [list(place) for place in corpus.passages.get(part, ())]
        passages[part] = {
            "number": len(set(split.groups)),
            "tokens": sum(_label_counts(split)),
            "places": places,
        }
    return passages


def _leaks(
    cleaned: Cleaned, parts: Mapping[str, Labels], splits: Mapping[str, Split]
) -> dict[str, Any]:
    """Return the fields of the record about examples that are in two parts.

    Blocks of a text are compared as one sequence, so that other ends of blocks hide nothing.
    """
    if cleaned.is_text:
        return _text_leaks(splits)
    inputs = {}
    for part, texts in _inputs(cleaned, parts, splits).items():
        inputs[part] = [appearance(text) for text in texts]
    test = splits["test"]
    leaked = leak(inputs["train"], inputs["test"])
    shares = {
        "tokens": leak(inputs["train"], inputs["test"], _label_counts(test)),
        "examples": leak(inputs["train"], inputs["test"], _first_of_each_source(test)),
    }
    valid_leaks = {other: leak(inputs[other], inputs["valid"]) for other in ("train", "test")}
    return _leak_fields(leaked, shares, valid_leaks)


def _text_leaks(splits: Mapping[str, Split]) -> dict[str, Any]:
    texts: dict[str, Ids] = {}
    for part, split in splits.items():
        texts[part] = np.concatenate(
            [ids[:-1] for ids in split.target]
        )  # blocks overlap by a token
    leaked = text_leak(texts["train"], texts["test"])
    valid_leaks = {other: text_leak(texts[other], texts["valid"]) for other in ("train", "test")}
    return _leak_fields(leaked, {"tokens": leaked}, valid_leaks)


def _leak_fields(
    leaked: float, shares: Mapping[str, float], valid_leaks: Mapping[str, float]
) -> dict[str, Any]:
    return {
        "leak": leaked,
        "leaky": leaked >= LEAKY_SHARE,
        "leaked_shares": dict(shares),
        "valid_leaks": dict(valid_leaks),
    }


def _inputs(
    cleaned: Cleaned, parts: Mapping[str, Labels], splits: Mapping[str, Split]
) -> dict[str, list[str]]:
    """Return the sources of each part, sequences without their labels; the targets where no source differs."""
    if cleaned.is_labelled:
        return {part: cleaned.texts("source", rows) for part, rows in parts.items()}
    sources = {part: split.source_text for part, split in splits.items()}
    if len(set().union(*sources.values())) > 1:
        return sources
    return {part: split.target_text for part, split in splits.items()}


def _label_counts(split: Split) -> list[int]:
    """Return the number of predicted tokens of each example."""
    if split.labels is None:
        return [len(ids) - 1 for ids in split.target]
    return [int((labels != IGNORE_INDEX).sum()) for labels in split.labels]


def _first_of_each_source(split: Split) -> list[int]:
    """Return 1 for the first example of each source and 0 for its repetitions, which scores do not count."""
    seen: set[str] = set()
    weights = []
    for source in split.source_text:
        is_repetition = source != "" and source in seen
        weights.append(0 if is_repetition else 1)
        seen.add(source)
    return weights


def _unknown_rates(split: Split, data: PreparedData) -> dict[Side, float]:
    return {
        "source": _unknown_rate(split.source, data.source_vocabulary),
        "target": _unknown_rate(split.target, data.target_vocabulary),
    }


def _unknown_rate(sequences: Sequence[NDArray[np.int32]], vocabulary: Vocabulary) -> float:
    """Return the fraction of <unk> among the words, without padding and boundary tokens."""
    if vocabulary.unk is None:
        return 0.0
    specials = (vocabulary.pad, vocabulary.sos, vocabulary.eos)
    not_words = [token for token in specials if token is not None]
    ids = np.concatenate(sequences)
    words = ids[~np.isin(ids, not_words)]
    if len(words) == 0:
        return 0.0
    return float((words == vocabulary.unk).mean())

"""Measurements of pitfalls in the data: splits, vocabularies, boundary tokens, labels, padding.

Each function yields sentences with their numbers. A number that a test or a page uses has a name.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator

import torch

from headtohead.data import Side, read_corpus
from headtohead.data.batches import Padding, make_batches
from headtohead.data.normalise import normaliser
from headtohead.storage.metrics import counted
from headtohead.testing.tiny import changed
from headtohead.training.loop import split_tensors
from headtohead_notebooks.pitfalls.case import Case
from headtohead_notebooks.pitfalls.facts import percent, quoted

RESAMPLES = 10
"""Random splits by rows over which the leak is averaged."""

SentenceNumbers = Iterator[tuple[str, dict[str, float]]]


def nothing_held_out(case: Case) -> SentenceNumbers:
    """Count test sentences that are in the training set, and measure the leak of a split by rows."""
    train, test = case.data.splits["train"], case.data.splits["test"]
    train_texts = set(train.source_text)
    count = sum(text in train_texts for text in test.source_text)
    yield (
        f"the model is tested on its training sentences only: {count:,} of "
        f"{counted(len(test), 'test sentence')} {'is' if count == 1 else 'are'} in the training set",
        {"test": len(test), "trained_on": count},
    )
    leak = _leak_of_row_split(train.source_text)
    if leak:
        yield (
            f"holding out a random tenth of the rows would not help: {percent(leak)} of it have a source "
            f"sentence that is also in the training set (mean of {RESAMPLES} random splits)",
            {"leak_of_row_split": leak},
        )


def split_by_rows(case: Case) -> SentenceNumbers:
    """Return the leak of the split in use."""
    leak = float(case.data.record["leak"])
    yield (
        f"{percent(leak)} of the test pairs have a source sentence that is also in the training set, with the "
        "same translation or another",
        {"leak": leak},
    )


def letters_lost(case: Case) -> SentenceNumbers:
    """Count the rows with a letter that normalisation replaces by a space."""
    case.require_data()
    corpus = read_corpus(case.config.data, case.cache, registry=case.registry)
    normalise = normaliser(case.config.data.normalise)
    letters = {letter for pair in corpus.pairs for letter in pair.source + pair.target}
    lost = {letter for letter in letters if letter.isalpha() and not normalise(letter).strip()}
    rows_by_letter: Counter[str] = Counter()
    count, example = 0, ""
    for pair in corpus.pairs:
        lost_here = lost & {*pair.source, *pair.target}
        rows_by_letter.update(lost_here)
        count += bool(lost_here)
        example = example or next((word for word in pair.target.split() if lost_here & set(word)), "")
    share = count / len(corpus.pairs)
    most_frequent = ", ".join(f"{letter} in {rows:,}" for letter, rows in rows_by_letter.most_common(3))
    shown = f": '{example}' becomes '{normalise(example)}'" if example else ""
    yield (
        f"{percent(share)} of the rows ({count:,} of {len(corpus.pairs):,}) have a letter that "
        f"becomes a space ({most_frequent or 'none'}){shown}",
        {"rows": len(corpus.pairs), "rows_hit": count, "share": share},
    )


def words_dropped(case: Case) -> SentenceNumbers:
    """Count the words of the training sentences that the vocabulary lacks."""
    train = case.data.splits["train"]

    def missing(side: Side, text: str) -> list[str]:
        vocabulary = case.data.vocabulary(side)
        return [word for word in case.data.tokenisers[side].split(text) if word not in vocabulary]

    source = [missing("source", text) for text in train.source_text]
    target = [missing("target", text) for text in train.target_text]
    words = sorted({word for sentence in source + target for word in sentence})
    count = sum(bool(pair[0] or pair[1]) for pair in zip(source, target, strict=True))
    sentence = (
        "every word of the training sentences is in the vocabulary; unknown words of other sentences are "
        "dropped without a message"
    )
    if words:
        sentence = (
            f"{counted(len(words), 'word')} of the data ({quoted(words)}) {'is' if len(words) == 1 else 'are'} "
            f"dropped without a message, in {count} of {counted(len(train), 'sentence')}"
        )
    example = next((index for index, dropped in enumerate(source) if dropped), None)
    if example is not None:
        decoded = case.data.source_vocabulary.decode(train.source[example].tolist())
        sentence += f": '{train.source_text[example]}' reaches the model as '{decoded}'"
    yield sentence, {"words": len(words), "sentences": len(train), "sentences_hit": count}


def no_boundary_tokens(case: Case) -> SentenceNumbers:
    """Count boundary tokens, first words and targets of one word in the training pairs."""
    train = case.data.splits["train"]
    vocabulary = case.data.target_vocabulary
    boundaries = {token for token in (vocabulary.sos, vocabulary.eos) if token is not None}
    with_boundaries = sum(bool(boundaries & set(ids.tolist())) for ids in train.target)
    yield (
        f"{with_boundaries} of {counted(len(train), 'target')} contain a start or end token, so "
        "generation has no first token and never learns to stop",
        {"targets": len(train), "targets_with_boundaries": with_boundaries},
    )
    words = sum(map(len, train.target))
    labels = case.training_tensors.target_lengths.tolist()
    without_label = words - sum(labels)
    yield (
        f"the first word of each target is an input and never a label: {counted(without_label, 'word')} of "
        f"{words:,} ({percent(without_label / words)}) are never predicted in training",
        {"words": words, "never_predicted": without_label},
    )
    single = [text for count, text in zip(labels, train.target_text, strict=True) if not count]
    yield (
        f"targets of one word have no loss: {len(single)} of {len(train):,}"
        + (f", {quoted(single)}" if single else ""),
        {"one_word_targets": len(single)},
    )


def one_table_two_vocabularies(case: Case) -> SentenceNumbers:
    """Count the ids that stand for different words in the source and in the target."""
    source, target = case.data.source_vocabulary.words, case.data.target_vocabulary.words
    rows = max(len(source), len(target))
    pairs = [f"{word} = {other}" for word, other in zip(source, target, strict=False) if word != other]
    yield (
        f"one vocabulary size, {rows}, serves both languages: {len(pairs)} rows of the table embed a source "
        f"word and a different target word, so {quoted(pairs)} start from the same vector",
        {"rows": rows, "source_words": len(source), "target_words": len(target), "rows_with_two_words": len(pairs)},
    )


def targets_not_shifted(case: Case) -> SentenceNumbers:
    """Count the labels that equal the decoder input at their position."""
    equal, tokens = _labels_in_input(case, shift_targets=False)
    equal_if_shifted, labels = _labels_in_input(case, shift_targets=True)
    yield (
        f"the label equals the decoder input at {equal} of {counted(tokens, 'target position')}; with targets "
        f"shifted by one it would at {equal_if_shifted} of {labels}",
        {"tokens": tokens, "labels_in_input": equal, "labels_in_input_if_shifted": equal_if_shifted},
    )


def fixed_padding(case: Case) -> SentenceNumbers:
    """Compare an epoch's batches with batches padded to their longest sentence."""
    tokens = case.config.quirks.pad_to
    fixed, longest = _padding(case, tokens), _padding(case, "batch")
    yield (
        f"every sentence is padded to {tokens} tokens: {percent(fixed.source)} of the encoder's computation "
        f"and {percent(fixed.target)} of the decoder's is padding; padded to the longest sentence of each batch "
        f"it would be {percent(longest.source)} and {percent(longest.target)}",
        {
            "tokens": int(tokens),
            "source_padding": fixed.source,
            "target_padding": fixed.target,
            "source_padding_to_longest": longest.source,
            "target_padding_to_longest": longest.target,
        },
    )


def _leak_of_row_split(texts: list[str]) -> float:
    """Return the share of a random tenth that is also in the rest, averaged over splits."""
    tenth, rng, shares = len(texts) // 10, random.Random(0), []
    for _ in range(RESAMPLES if tenth else 0):
        shuffled = rng.sample(texts, len(texts))
        rest = set(shuffled[tenth:])
        shares.append(sum(text in rest for text in shuffled[:tenth]) / tenth)
    return math.fsum(shares) / RESAMPLES


def _labels_in_input(case: Case, *, shift_targets: bool) -> tuple[int, int]:
    """Return the number of labels that equal the input at their position, and the number of labels."""
    config = changed(case.config, quirks={"shift_targets": shift_targets})
    tensors = split_tensors(config, case.data, torch.device("cpu"))["train"]
    inputs, labels = tensors.target[:, 0], tensors.target[:, 1]
    is_label = torch.arange(inputs.shape[1]) < tensors.target_lengths[:, None]
    return int((inputs == labels)[is_label].sum()), int(is_label.sum())


def _padding(case: Case, pad_to: int | str) -> Padding:
    config = changed(case.config, quirks={"pad_to": pad_to})
    tensors = case.training_tensors
    lengths = tensors.source_lengths.numpy(), tensors.target_lengths.numpy()
    return make_batches(config, *lengths, case.data.record["longest"]).padding()

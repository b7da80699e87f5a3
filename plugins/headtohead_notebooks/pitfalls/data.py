"""Measurements of pitfalls in the data: splits, vocabularies, boundary tokens, labels, padding.

Each function returns numbers by name; ``page/pitfalls.yaml`` puts them into sentences.
"""

from __future__ import annotations

import math
import random

import torch

from headtohead.data import Side, read_corpus
from headtohead.data.batches import make_batches
from headtohead.data.normalise import NORMALISERS
from headtohead.schema.run_config import RunConfig, changed
from headtohead.training.loop import split_tensors
from headtohead_notebooks.pitfalls.case import Case, Numbers

RESAMPLES = 10
"""Random splits by rows over which the leak is averaged."""


def nothing_held_out(case: Case) -> Numbers:
    """Count test sentences that are in the training set, and measure the leak of a split by rows."""
    train, test = case.data.splits["train"], case.data.splits["test"]
    train_texts = set(train.source_text)
    trained_on = sum(text in train_texts for text in test.source_text)
    numbers: Numbers = {"test": len(test), "trained_on": trained_on}
    tenth = len(train) // 10
    if tenth == 0:
        return numbers
    rng = random.Random(0)
    shares = []
    for _ in range(RESAMPLES):
        shuffled = rng.sample(train.source_text, len(train))
        rest = set(shuffled[tenth:])
        leaked = sum(text in rest for text in shuffled[:tenth])
        shares.append(leaked / tenth)
    if any(shares):
        numbers["leak_of_row_split"] = math.fsum(shares) / RESAMPLES
    return numbers


def split_by_rows(case: Case) -> Numbers:
    """Return the leak of the split in use."""
    return {"leak": float(case.data.record["leak"])}


def letters_lost(case: Case) -> Numbers:
    """Count the rows with a letter that normalisation replaces by a space."""
    case.require_data()
    pairs = read_corpus(case.config.data, case.cache).pairs
    normalise = NORMALISERS[case.config.data.normalise]
    texts = [pair.source + pair.target for pair in pairs]
    lost = set()
    for letter in set("".join(texts)):
        if letter.isalpha() and not normalise(letter).strip():
            lost.add(letter)
    count = 0
    for text in texts:
        if not lost.isdisjoint(text):
            count += 1
    share = count / len(pairs)
    return {"rows": len(pairs), "rows_hit": count, "share": share}


def words_dropped(case: Case) -> Numbers:
    """Count the words of the training sentences that the vocabulary lacks."""
    train = case.data.splits["train"]

    def missing(side: Side, text: str) -> set[str]:
        vocabulary = case.data.vocabulary(side)
        words = case.data.tokenisers[side].unit.split(text)
        return {word for word in words if word not in vocabulary}

    dropped: set[str] = set()
    sentences_hit = 0
    for source, target in zip(train.source_text, train.target_text, strict=True):
        dropped_here = missing("source", source) | missing("target", target)
        dropped |= dropped_here
        if dropped_here:
            sentences_hit += 1
    return {
        "words": len(dropped),
        "sentences": len(train),
        "sentences_hit": sentences_hit,
    }


def no_boundary_tokens(case: Case) -> Numbers:
    """Count boundary tokens, first words and targets of one word in the training pairs."""
    train = case.data.splits["train"]
    vocabulary = case.data.target_vocabulary
    boundaries = {vocabulary.sos, vocabulary.eos} - {None}
    words = 0
    with_boundaries = 0
    for ids in train.target:
        words += len(ids)
        if not boundaries.isdisjoint(ids.tolist()):
            with_boundaries += 1
    label_counts = case.training_tensors.target_lengths.tolist()
    never_predicted = words - sum(label_counts)
    return {
        "targets": len(train),
        "targets_with_boundaries": with_boundaries,
        "words": words,
        "never_predicted": never_predicted,
        "one_word_targets": label_counts.count(0),
    }


def one_table_two_vocabularies(case: Case) -> Numbers:
    """Count the ids that stand for different words in the source and in the target."""
    source = case.data.source_vocabulary.words
    target = case.data.target_vocabulary.words
    rows = max(len(source), len(target))
    different = 0
    for source_word, target_word in zip(source, target, strict=False):
        if source_word != target_word:
            different += 1
    return {"rows": rows, "rows_with_two_words": different}


def targets_not_shifted(case: Case) -> Numbers:
    """Count the labels that equal the decoder input at their position."""
    equal, tokens = _labels_in_input(case.config, case)
    shifted = case.config.model_copy(update={"quirks": {}})
    equal_if_shifted, _ = _labels_in_input(shifted, case)
    return {
        "labels_in_input": equal,
        "tokens": tokens,
        "labels_in_input_if_shifted": equal_if_shifted,
    }


def fixed_padding(case: Case) -> Numbers:
    """Compare an epoch's batches with batches padded to their longest sentence."""
    fixed = _padding(case, case.config.train.pad_to)
    longest = _padding(case, "batch")
    numbers: Numbers = {}
    for side, share in fixed.items():
        numbers[f"{side}_padding"] = share
        numbers[f"{side}_padding_to_longest"] = longest[side]
    return numbers


def _labels_in_input(config: RunConfig, case: Case) -> tuple[int, int]:
    """Return the number of labels that equal the input at their position, and the number of labels."""
    splits = split_tensors(config, case.data, torch.device("cpu"))
    tensors = splits["train"]
    inputs = tensors.target[:, 0]
    labels = tensors.target[:, 1]
    positions = torch.arange(inputs.shape[1])
    is_label = positions < tensors.target_lengths[:, None]
    is_equal = (inputs == labels)[is_label]
    return int(is_equal.sum()), int(is_label.sum())


def _padding(case: Case, pad_to: int | str) -> dict[str, float]:
    """Return the share of padding in an epoch's batches, by side."""
    config = changed(case.config, train={"pad_to": pad_to})
    tensors = case.training_tensors
    prompt_lengths = tensors.prompt_lengths.numpy()
    target_lengths = tensors.target_lengths.numpy()
    longest = case.data.record["longest"]
    batches = make_batches(config, prompt_lengths, target_lengths, longest)
    return batches.padding()

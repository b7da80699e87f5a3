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
from headtohead.schema.run_config import changed
from headtohead.training.loop import split_tensors
from headtohead_notebooks.pitfalls.case import Case, Numbers

RESAMPLES = 10
"""Random splits by rows over which the leak is averaged."""


def nothing_held_out(case: Case) -> Numbers:
    """Count test sentences that are in the training set, and measure the leak of a split by rows."""
    train, test = case.data.splits["train"], case.data.splits["test"]
    train_texts = set(train.source_text)
    tenth, rng, shares = len(train) // 10, random.Random(0), []
    for _ in range(RESAMPLES if tenth else 0):
        shuffled = rng.sample(train.source_text, len(train))
        rest = set(shuffled[tenth:])
        shares.append(sum(text in rest for text in shuffled[:tenth]) / tenth)
    trained_on = sum(text in train_texts for text in test.source_text)
    numbers: Numbers = {"test": len(test), "trained_on": trained_on}
    return (
        numbers | {"leak_of_row_split": math.fsum(shares) / RESAMPLES} if any(shares) else numbers
    )


def split_by_rows(case: Case) -> Numbers:
    """Return the leak of the split in use."""
    return {"leak": float(case.data.record["leak"])}


def letters_lost(case: Case) -> Numbers:
    """Count the rows with a letter that normalisation replaces by a space."""
    case.require_data()
    pairs = read_corpus(case.config.data, case.cache).pairs
    normalise = NORMALISERS[case.config.data.normalise]
    letters = {letter for pair in pairs for letter in pair.source + pair.target}
    lost = {letter for letter in letters if letter.isalpha() and not normalise(letter).strip()}
    count = sum(not lost.isdisjoint(pair.source + pair.target) for pair in pairs)
    return {"rows": len(pairs), "rows_hit": count, "share": count / len(pairs)}


def words_dropped(case: Case) -> Numbers:
    """Count the words of the training sentences that the vocabulary lacks."""
    train = case.data.splits["train"]

    def missing(side: Side, text: str) -> set[str]:
        vocabulary = case.data.vocabulary(side)
        return {
            word for word in case.data.tokenisers[side].unit.split(text) if word not in vocabulary
        }

    dropped = [
        missing("source", source) | missing("target", target)
        for source, target in zip(train.source_text, train.target_text, strict=True)
    ]
    return {
        "words": len(set().union(*dropped)),
        "sentences": len(train),
        "sentences_hit": sum(map(bool, dropped)),
    }


def no_boundary_tokens(case: Case) -> Numbers:
    """Count boundary tokens, first words and targets of one word in the training pairs."""
    train = case.data.splits["train"]
    vocabulary = case.data.target_vocabulary
    boundaries = {token for token in (vocabulary.sos, vocabulary.eos) if token is not None}
    words = sum(map(len, train.target))
    labels = case.training_tensors.target_lengths.tolist()
    return {
        "targets": len(train),
        "targets_with_boundaries": sum(
            bool(boundaries & set(ids.tolist())) for ids in train.target
        ),
        "words": words,
        "never_predicted": words - sum(labels),
        "one_word_targets": labels.count(0),
    }


def one_table_two_vocabularies(case: Case) -> Numbers:
    """Count the ids that stand for different words in the source and in the target."""
    source, target = case.data.source_vocabulary.words, case.data.target_vocabulary.words
    different = sum(word != other for word, other in zip(source, target, strict=False))
    return {"rows": max(len(source), len(target)), "rows_with_two_words": different}


def targets_not_shifted(case: Case) -> Numbers:
    """Count the labels that equal the decoder input at their position."""
    equal, tokens = _labels_in_input(case, shift_targets=False)
    equal_if_shifted, _ = _labels_in_input(case, shift_targets=True)
    return {
        "labels_in_input": equal,
        "tokens": tokens,
        "labels_in_input_if_shifted": equal_if_shifted,
    }


def fixed_padding(case: Case) -> Numbers:
    """Compare an epoch's batches with batches padded to their longest sentence."""
    fixed, longest = _padding(case, case.config.quirks.pad_to), _padding(case, "batch")
    numbers = {f"{side}_padding": share for side, share in fixed.items()}
    return numbers | {f"{side}_padding_to_longest": share for side, share in longest.items()}


def _labels_in_input(case: Case, *, shift_targets: bool) -> tuple[int, int]:
    """Return the number of labels that equal the input at their position, and the number of labels."""
    config = changed(case.config, quirks={"shift_targets": shift_targets})
    tensors = split_tensors(config, case.data, torch.device("cpu"))["train"]
    inputs, labels = tensors.target[:, 0], tensors.target[:, 1]
    is_label = torch.arange(inputs.shape[1]) < tensors.target_lengths[:, None]
    return int((inputs == labels)[is_label].sum()), int(is_label.sum())


def _padding(case: Case, pad_to: int | str) -> dict[str, float]:
    config = changed(case.config, quirks={"pad_to": pad_to})
    tensors = case.training_tensors
    lengths = tensors.prompt_lengths.numpy(), tensors.target_lengths.numpy()
    return make_batches(config, *lengths, case.data.record["longest"]).padding()

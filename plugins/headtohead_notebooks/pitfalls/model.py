"""Measurements of pitfalls in the model, its training and its decoding, at initialisation.

Each function returns numbers by name; ``page/pitfalls.yaml`` puts them into sentences. Changes of logits are largest
absolute differences.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import torch

from headtohead.errors import HeadToHeadError
from headtohead.planning.compatibility import find_incompatibility
from headtohead.training.optimise import part_of
from headtohead_notebooks.pitfalls.case import Case, Numbers, other_token

RANDOM_SOURCES = 100
COPIES = 8
MAX_BATCH = 4_096
TARGET_LENGTHS = range(1, 13)
PADDING_TOKENS = 2


def positions_by_batch_row(case: Case) -> Numbers:
    """Reverse a sentence, repeat it in a batch, and find the largest batch."""
    words = case.source[:-1]
    end = case.source[-1:]
    reversed_source = [*words[::-1], *end]
    original = case.logits([case.source], [case.target])
    reordered = case.logits([reversed_source], [case.target])
    most = _largest_batch(case)
    copies = min(COPIES, most)
    batch = case.logits([case.source] * copies, [case.target] * copies)
    return {
        "change_by_order": _largest_change(original, reordered),
        "change_by_row": _largest_change(batch[0], batch),
        "most_rows": most,
    }


def mask_on_embeddings(case: Case) -> Numbers:
    """Replace each target token in turn, and find the target lengths that the attention supports."""
    changes = torch.tensor(case.changes_by_target_token(), dtype=torch.float64)
    by_row_0 = changes[:, 0]
    by_earlier_tokens = changes.triu(1)[:, 1:]
    by_own_token = changes.diagonal()[1:]
    supported_lengths = 0
    for length in TARGET_LENGTHS:
        longest = {"source": len(case.source), "target": length}
        if not find_incompatibility(case.config, longest):
            supported_lengths += 1
    return {
        "row_0": float(by_row_0.max()),
        "earlier_tokens": float(by_earlier_tokens.max()),
        "own_token": float(by_own_token.min()),
        "d_model": case.config.model.d_model,
        "supported_lengths": supported_lengths,
    }


def future_not_masked(case: Case) -> Numbers:
    """Replace the last token of the decoder input and compare the logits of earlier positions."""
    before, after = _replace_last_token(case)
    return {"change": _largest_change(before[:-1], after[:-1])}


def padding_not_masked(case: Case) -> Numbers:
    """Compare the logits of a sentence by itself and in a batch with a longer sentence."""
    longer_source = [*case.source, *case.source[:PADDING_TOKENS]]
    longer_target = [*case.target, *case.target[:PADDING_TOKENS]]
    single = case.logits([case.source], [case.target])
    batch = case.logits([case.source, longer_source], [case.target, longer_target])
    padded = batch[0, : len(case.target)]
    return {"change": _largest_change(single[0], padded)}


def source_ignored(case: Case) -> Numbers:
    """Replace the source by random sources, and one target word by another."""
    sources = [case.source, *_random_sources(case)]
    logits = case.logits(sources, [case.target] * len(sources))
    before, after = _replace_last_token(case)
    return {
        "sources": RANDOM_SOURCES,
        "largest_change_by_source": _largest_change(logits[0], logits[1:]),
        "change_by_target_word": _largest_change(before, after),
    }


def never_trained(case: Case) -> Numbers:
    """Compare the probability of the correct words with guessing."""
    train = case.data.splits["train"]
    source = train.source[0].tolist()
    decoder_input, labels = case.teacher_forcing(train.target[0].tolist())
    logits = case.logits([source], [decoder_input])[0]
    probabilities = logits.softmax(-1)
    correct = [float(probabilities[position, label]) for position, label in enumerate(labels)]
    mean_probability = math.fsum(correct) / len(correct)
    vocab_size = probabilities.shape[-1]
    return {"mean_probability": mean_probability, "guessing": 1 / vocab_size}


def parameters_frozen(case: Case) -> Numbers:
    """Count the trained weights."""
    sizes: Counter[str] = Counter()
    for name, parameter in case.model.named_parameters():
        sizes[part_of(name)] += parameter.numel()
    trainable = case.config.train.trainable or ()
    trained = sum(sizes[part] for part in trainable)
    return {"weights": sizes.total(), "trained": trained}


def not_autoregressive(case: Case) -> Numbers:
    """Translate many sources of one length and count the different translations."""
    length = len(case.source)
    zeros = [0] * length
    logits = case.logits(_random_sources(case), [zeros] * RANDOM_SOURCES)
    tokens = logits.argmax(-1)
    translations = {tuple(ids) for ids in tokens.tolist()}
    different = len(translations)
    return {"words": length, "sources": RANDOM_SOURCES, "different_translations": different}


def reference_as_input(case: Case) -> Numbers:
    """Translate with the reference, and with the words of the reference reversed."""
    start = case.target[:1]
    words = case.target[1:-1]
    end = case.target[-1:]
    reordered = [*start, *words[::-1], *end]
    logits = case.logits([case.source] * 2, [case.target, reordered])
    before, after = logits.argmax(-1)
    changed = int((before != after).sum())
    return {"words": len(case.target), "changed": changed}


def _largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest absolute difference of two tensors of logits."""
    differences = after - before
    return float(differences.abs().max())


def _replace_last_token(case: Case) -> torch.Tensor:
    """Return logits with the decoder input as it is, and with another last token."""
    target_words = case.vocab_sizes[1]
    last = other_token(case.target[-1], target_words)
    changed = [*case.target[:-1], last]
    return case.logits([case.source] * 2, [case.target, changed])


def _random_sources(case: Case) -> list[list[int]]:
    rng = random.Random(0)
    words, _ = case.vocab_sizes
    sources = []
    for _ in range(RANDOM_SOURCES):
        source = [rng.randrange(words) for _ in case.source]
        sources.append(source)
    return sources


def _largest_batch(case: Case) -> int:
    """Return the size of the largest batch that the model accepts, by bisection."""
    source = case.source[-1:]
    target = case.target[:1]
    low = 1
    high = MAX_BATCH
    while low < high:
        middle = (low + high + 1) // 2
        try:
            case.logits([source] * middle, [target] * middle)
            low = middle
        except (HeadToHeadError, IndexError, RuntimeError):
            high = middle - 1
    return low

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
    words, end = case.source[:-1], case.source[-1:]
    original = case.logits([case.source], [case.target])
    reversed_words = case.logits([[*words[::-1], *end]], [case.target])
    most = _largest_batch(case)
    copies = min(COPIES, most)
    batch = case.logits([case.source] * copies, [case.target] * copies)
    return {
        "change_by_order": float((reversed_words - original).abs().max()),
        "change_by_row": float((batch - batch[0]).abs().max()),
        "most_rows": most,
    }


def mask_on_embeddings(case: Case) -> Numbers:
    """Replace each target token in turn, and find the target lengths that the attention supports."""
    changes = torch.tensor(case.changes_by_target_token(), dtype=torch.float64)
    longest = [{"source": len(case.source), "target": length} for length in TARGET_LENGTHS]
    supported = [not find_incompatibility(case.config, sizes) for sizes in longest]
    return {
        "row_0": float(changes[:, 0].max()),
        "earlier_tokens": float(changes.triu(1)[:, 1:].max()),
        "own_token": float(changes.diagonal()[1:].min()),
        "d_model": case.config.model.d_model,
        "supported_lengths": sum(supported),
    }


def future_not_masked(case: Case) -> Numbers:
    """Replace the last token of the decoder input and compare the logits of earlier positions."""
    before, after = _replace_last_token(case)
    return {"change": float((after - before)[:-1].abs().max())}


def padding_not_masked(case: Case) -> Numbers:
    """Compare the logits of a sentence by itself and in a batch with a longer sentence."""
    source, target = ([*ids, *ids[:PADDING_TOKENS]] for ids in (case.source, case.target))
    single = case.logits([case.source], [case.target])
    batch = case.logits([case.source, source], [case.target, target])
    return {"change": float((batch[0, : len(case.target)] - single[0]).abs().max())}


def source_ignored(case: Case) -> Numbers:
    """Replace the source by random sources, and one target word by another."""
    sources = [case.source, *_random_sources(case)]
    logits = case.logits(sources, [case.target] * len(sources))
    before, after = _replace_last_token(case)
    return {
        "sources": RANDOM_SOURCES,
        "largest_change_by_source": float((logits[1:] - logits[0]).abs().max()),
        "change_by_target_word": float((after - before).abs().max()),
    }


def never_trained(case: Case) -> Numbers:
    """Compare the probability of the correct words with guessing."""
    train = case.data.splits["train"]
    decoder_input, labels = case.teacher_forcing(train.target[0].tolist())
    probabilities = case.logits([train.source[0].tolist()], [decoder_input])[0].softmax(-1)
    correct = [float(probabilities[position, label]) for position, label in enumerate(labels)]
    return {
        "mean_probability": math.fsum(correct) / len(correct),
        "guessing": 1 / probabilities.shape[-1],
    }


def parameters_frozen(case: Case) -> Numbers:
    """Count the trained weights."""
    sizes: Counter[str] = Counter()
    for name, parameter in case.model.named_parameters():
        sizes[part_of(name)] += parameter.numel()
    trained = sum(sizes[part] for part in case.config.quirks.trainable or ())
    return {"weights": sizes.total(), "trained": trained}


def not_autoregressive(case: Case) -> Numbers:
    """Translate many sources of one length and count the different translations."""
    length = len(case.source)
    tokens = case.logits(_random_sources(case), [[0] * length] * RANDOM_SOURCES).argmax(-1)
    different = len({tuple(ids) for ids in tokens.tolist()})
    return {"words": length, "sources": RANDOM_SOURCES, "different_translations": different}


def reference_as_input(case: Case) -> Numbers:
    """Translate with the reference, and with the words of the reference reversed."""
    reordered = [*case.target[:1], *case.target[1:-1][::-1], *case.target[-1:]]
    tokens = case.logits([case.source] * 2, [case.target, reordered]).argmax(-1)
    return {"words": len(case.target), "changed": int(torch.ne(*tokens).sum())}


def _replace_last_token(case: Case) -> torch.Tensor:
    """Return logits with the decoder input as it is, and with another last token."""
    changed = [*case.target[:-1], other_token(case.target[-1], case.vocab_sizes[1])]
    return case.logits([case.source] * 2, [case.target, changed])


def _random_sources(case: Case) -> list[list[int]]:
    rng = random.Random(0)
    return [
        [rng.randrange(case.vocab_sizes[0]) for _ in case.source] for _ in range(RANDOM_SOURCES)
    ]


def _largest_batch(case: Case) -> int:
    """Return the size of the largest batch that the model accepts, by bisection."""
    low, high = 1, MAX_BATCH
    while low < high:
        middle = (low + high + 1) // 2
        try:
            case.logits([case.source[-1:]] * middle, [case.target[:1]] * middle)
            low = middle
        except (HeadToHeadError, IndexError, RuntimeError):
            high = middle - 1
    return low

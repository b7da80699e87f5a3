"""Measurements of pitfalls in the model, its training and its decoding, at initialisation.

Each function yields sentences with their numbers. Changes of logits are largest absolute differences.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator

import torch

from headtohead.errors import HeadToHeadError
from headtohead.planning.compatibility import find_incompatibility
from headtohead.storage.metrics import counted
from headtohead.training.optimise import part_of
from headtohead_notebooks.pitfalls.case import Case, other_token
from headtohead_notebooks.pitfalls.facts import percent

RANDOM_SOURCES = 100
COPIES = 8
MAX_BATCH = 4_096
TARGET_LENGTHS = range(1, 13)
PADDING_TOKENS = 2

SentenceNumbers = Iterator[tuple[str, dict[str, float]]]


def positions_by_batch_row(case: Case) -> SentenceNumbers:
    """Reverse a sentence, repeat it in a batch, and find the largest batch."""
    words, end = case.source[:-1], case.source[-1:]
    original = case.logits([case.source], [case.target])
    by_order = float((case.logits([[*words[::-1], *end]], [case.target]) - original).abs().max())
    yield (
        f"the encoder does not depend on word order: reversing the {len(words)} words of a sentence "
        f"changes the logits by {by_order:.3g}",
        {"change_by_order": by_order},
    )
    largest = _largest_batch(case)
    copies = min(COPIES, largest)
    batch = case.logits([case.source] * copies, [case.target] * copies)
    by_row = float((batch - batch[0]).abs().max())
    yield (
        f"the encoder depends on the batch row instead: the logits of one sentence in {copies} rows of a batch "
        f"differ by up to {by_row:.3g}; in a batch of one, a sentence is always in row 0",
        {"copies": copies, "change_by_row": by_row},
    )
    yield (
        f"batches have at most {largest} sentences: {largest + 1} raise an error, since the table has no more rows",
        {"most_rows": largest, "more_rows": largest + 1},
    )


def mask_on_embeddings(case: Case) -> SentenceNumbers:
    """Replace each target token in turn, and find the target lengths that the attention supports."""
    changes = torch.tensor(case.changes_by_token("target"), dtype=torch.float64)
    first = float(changes[:, 0].max())
    yield (
        "row 0 of the decoder depends on no token: replacing any token, its own included, changes its logits by at "
        f"most {first:.1g}",
        {"row_0": first},
    )
    later, own = float(changes.triu(1)[:, 1:].max()), float(changes.diagonal()[1:].min())
    yield (
        f"earlier tokens change later logits by at most {later:.1g}, while a token changes the logits of its own "
        f"row by {own:.1g} or more: masked values of -1e9 dominate the weighted sums",
        {"earlier_tokens": later, "own_token": own},
    )
    longest = [{"source": len(case.source), "target": length} for length in TARGET_LENGTHS]
    supported = [sizes["target"] for sizes in longest if not find_incompatibility(case.config, sizes, case.registry)]
    width = case.config.model.d_model
    yield (
        f"of the target lengths 1 to {TARGET_LENGTHS[-1]} only {', '.join(map(str, supported)) or 'none'} is "
        f"supported: the mask [time, time] is added to embeddings [time, {width}]",
        {"d_model": width, "supported_lengths": len(supported)},
    )


def future_not_masked(case: Case) -> SentenceNumbers:
    """Replace the last token of the decoder input and compare the logits of earlier positions."""
    before, after = _replace_last_token(case)
    change = float((after - before)[:-1].abs().max())
    yield (
        f"replacing the last word changes the logits of earlier positions by {change:.3g}: in training the label "
        "is visible, in translation it does not exist yet",
        {"change": change},
    )


def padding_not_masked(case: Case) -> SentenceNumbers:
    """Compare the logits of a sentence by itself and in a batch with a longer sentence."""
    source, target = ([*ids, *ids[:PADDING_TOKENS]] for ids in (case.source, case.target))
    single = case.logits([case.source], [case.target])
    batch = case.logits([case.source, source], [case.target, target])
    change = float((batch[0, : len(case.target)] - single[0]).abs().max())
    yield (
        f"in a batch with a longer sentence, with {PADDING_TOKENS} padding tokens, the logits of a sentence differ "
        f"by up to {change:.3g} from those in a batch of one",
        {"change": change},
    )


def source_ignored(case: Case) -> SentenceNumbers:
    """Replace the source by random sources, and one target word by another."""
    sources = [case.source, *_random_sources(case)]
    logits = case.logits(sources, [case.target] * len(sources))
    by_source = float((logits[1:] - logits[0]).abs().max())
    before, after = _replace_last_token(case)
    by_target = float((after - before).abs().max())
    yield (
        f"the decoder does not depend on the source: {RANDOM_SOURCES} other sources change the logits by at most "
        f"{by_source:.3g}, another target word changes them by {by_target:.3g}",
        {"sources": RANDOM_SOURCES, "largest_change_by_source": by_source, "change_by_target_word": by_target},
    )


def never_trained(case: Case) -> SentenceNumbers:
    """Compare the probability of the correct words with guessing."""
    train = case.data.splits["train"]
    decoder_input, labels = case.teacher_forcing(train.target[0].tolist())
    probabilities = case.logits([train.source[0].tolist()], [decoder_input])[0].softmax(-1)
    correct = [float(probabilities[position, label]) for position, label in enumerate(labels)]
    mean, guess = math.fsum(correct) / len(correct), 1 / probabilities.shape[-1]
    yield (
        f"no optimisation step is taken: the correct next words of the notebook's sentence have a mean probability "
        f"of {mean:.2f}; guessing among {probabilities.shape[-1]} words gives {guess:.2f}",
        {"mean_probability": mean, "guessing": guess},
    )


def parameters_frozen(case: Case) -> SentenceNumbers:
    """Count the trained weights, and the weights of each part that is not trained."""
    trainable = case.config.quirks.trainable or ()
    sizes: Counter[str] = Counter()
    for name, parameter in case.model.named_parameters():
        sizes[part_of(name)] += parameter.numel()
    total = sum(sizes.values())
    trained = sum(size for part, size in sizes.items() if part in trainable)
    frozen = ", ".join(f"{part} {size:,}" for part, size in sizes.items() if part not in trainable)
    yield (
        f"training updates {trained:,} of {total:,} weights ({percent(trained / total)}); frozen: {frozen}",
        {"weights": total, "trained": trained},
    )


def not_autoregressive(case: Case) -> SentenceNumbers:
    """Translate many sources of one length and count the different translations."""
    length = len(case.source)
    tokens = case.logits(_random_sources(case), [[0] * length] * RANDOM_SOURCES).argmax(-1)
    different = len({tuple(ids) for ids in tokens.tolist()})
    yield (
        f"all {counted(length, 'word')} are chosen in one pass over {counted(length, 'zero')}, one for each source "
        "word: no word depends on the words before it, and the decoder input is the same for every sentence. "
        f"{RANDOM_SOURCES} sources of that length have {counted(different, 'different translation')}",
        {"words": length, "sources": RANDOM_SOURCES, "different_translations": different},
    )


def reference_as_input(case: Case) -> SentenceNumbers:
    """Translate with the reference, and with the words of the reference reversed."""
    reordered = [*case.target[:1], *case.target[1:-1][::-1], *case.target[-1:]]
    tokens = case.logits([case.source] * 2, [case.target, reordered]).argmax(-1)
    changed = int(torch.ne(*tokens).sum())
    yield (
        "the reference is the decoder input of the translation: with the words of the reference in another order, "
        f"{changed} of {counted(len(case.target), 'word')} of the translation of the same source change",
        {"words": len(case.target), "changed": changed},
    )


def _replace_last_token(case: Case) -> torch.Tensor:
    """Return logits with the decoder input as it is, and with another last token."""
    changed = [*case.target[:-1], other_token(case.target[-1], case.vocab_sizes[1])]
    return case.logits([case.source] * 2, [case.target, changed])


def _random_sources(case: Case) -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(case.vocab_sizes[0]) for _ in case.source] for _ in range(RANDOM_SOURCES)]


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

"""Weights that training never updates: all weights, or those of some parts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, percent
from headtohead.training.optimise import part_of


@shows("never trained")
def never_trained(case: Case) -> Iterator[Fact]:
    """Compare the probability of the right words with guessing."""
    target = [int(index) for index in case.data.splits["train"].target[0]]
    source = [int(index) for index in case.data.splits["train"].source[0]]
    reads, writes = (target, target) if case.config.quirks.shift_targets == "same" else (target[:-1], target[1:])
    chances = case.logits([source], [reads])[0].softmax(-1)
    right = [float(chances[place, word]) for place, word in enumerate(writes)]
    mean, guess = math.fsum(right) / len(right), 1 / chances.shape[-1]
    yield Fact(
        "never trained",
        f"no step is ever taken: the right next words of its own sentence get a probability of "
        f"{mean:.2f} on average, and guessing among {chances.shape[-1]} words gives {guess:.2f}",
        {"mean_probability": mean, "guessing": guess},
    )


@shows("parameters frozen")
def parts_untrained(case: Case) -> Iterator[Fact]:
    """Count the trained weights, and the weights of each part that is not trained."""
    parts = case.config.quirks.trainable or ()
    sizes: Counter[str] = Counter()
    for name, parameter in case.model.named_parameters():
        sizes[part_of(name)] += parameter.numel()
    total = sum(sizes.values())
    moved = sum(size for part, size in sizes.items() if part in parts)
    still = ", ".join(f"{part} {size:,}" for part, size in sizes.items() if part not in parts)
    yield Fact(
        "parameters frozen",
        f"training moves {moved:,} of {total:,} weights ({percent(moved / total)}); what stays as "
        f"it was drawn: {still}",
        {"weights": total, "trained": moved},
    )

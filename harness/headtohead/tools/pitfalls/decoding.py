"""Ways to decode that are no translation: one pass over zeros, and reading the reference."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, counted

SOURCES = 100


@shows("not autoregressive")
def one_pass_over_zeros(case: Case) -> Iterator[Fact]:
    """Translate many sources of one length and count the different translations."""
    draw, words, length = random.Random(0), case.words[0], len(case.source)
    others = [[draw.randrange(words) for _ in range(length)] for _ in range(SOURCES)]
    written = case.logits(others, [[0] * length] * SOURCES).argmax(-1)
    different = len({tuple(one) for one in written.tolist()})
    yield Fact(
        "not autoregressive",
        f"all {counted(length, 'word')} are chosen in one pass over {counted(length, 'zero')}, as "
        "many as the source has words: no word knows the words before it, and what is read is the "
        f"same for every sentence. {SOURCES} sources of that length get "
        f"{counted(different, 'different translation')}",
        {"words": length, "sources": SOURCES, "different_translations": different},
    )


@shows("reference given")
def reference_is_read(case: Case) -> Iterator[Fact]:
    """Translate with the reference, and with the reference's words the other way round."""
    target = case.target
    turned = [*target[:1], *target[1:-1][::-1], *target[-1:]]
    both = case.logits([case.source] * 2, [target, turned]).argmax(-1)
    changed = int(torch.ne(*both).sum())
    yield Fact(
        "reference given",
        "the translation is read off a pass that reads the reference: with the words of the "
        f"reference in another order, {changed} of {counted(len(target), 'word')} of the "
        "translation of the same source change",
        {"words": len(target), "changed": changed},
    )

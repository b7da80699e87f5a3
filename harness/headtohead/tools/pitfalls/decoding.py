"""Decoding that does not translate: one pass over zeros, and teacher forcing."""

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
    different = len({tuple(ids) for ids in written.tolist()})
    yield Fact(
        "not autoregressive",
        f"all {counted(length, 'word')} are chosen in one pass over {counted(length, 'zero')}, as "
        "many as the source has words: no word depends on the words before it, and the decoder input is "
        f"the same for every sentence. {SOURCES} sources of that length get "
        f"{counted(different, 'different translation')}",
        {"words": length, "sources": SOURCES, "different_translations": different},
    )


@shows("reference as input")
def reference_is_read(case: Case) -> Iterator[Fact]:
    """Translate with the reference, and with the words of the reference reversed."""
    target = case.target
    turned = [*target[:1], *target[1:-1][::-1], *target[-1:]]
    both = case.logits([case.source] * 2, [target, turned]).argmax(-1)
    changed = int(torch.ne(*both).sum())
    yield Fact(
        "reference as input",
        "the reference is the decoder input of the translation: with the words of the "
        f"reference in another order, {changed} of {counted(len(target), 'word')} of the "
        "translation of the same source change",
        {"words": len(target), "changed": changed},
    )

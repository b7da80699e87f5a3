"""Targets without start and end tokens: words never predicted, sentences without loss."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, counted, percent, quoted


@shows("no boundary tokens")
def no_start_no_stop(case: Case) -> Iterator[Fact]:
    """Count boundary tokens, first words and targets of one word in the training pairs."""
    train = case.data.splits["train"]
    vocabulary = case.data.target_vocabulary
    bounds = {index for index in (vocabulary.sos, vocabulary.eos) if index is not None}
    marked = sum(bool(bounds & set(ids.tolist())) for ids in quirks.shift_targets)
    words = sum(len(ids) for ids in quirks.shift_targets)
    predicted = case.training.target_lengths.tolist()
    never = words - sum(predicted)
    alone = [text for count, text in zip(predicted, train.target_text, strict=True) if not count]
    yield Fact(
        "no boundary tokens",
        f"{marked} of {counted(len(train), 'target')} hold a token for start or stop, so "
        "generation has nothing to begin from and never learns to end",
        {"targets": len(train), "targets_with_boundaries": marked},
    )
    yield Fact(
        "no boundary tokens",
        f"the first word of each target is read and never predicted: {counted(never, 'word')} of "
        f"{words:,} ({percent(never / words)}) that no training step asks for",
        {"words": words, "never_predicted": never},
    )
    yield Fact(
        "no boundary tokens",
        f"targets of one word give no loss at all: {len(alone)} of {len(train):,}"
        + (f", {quoted(alone)}" if alone else ""),
        {"one_word_targets": len(alone)},
    )

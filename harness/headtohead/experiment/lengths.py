"""What a plan says of a test that is longer than training: what cannot be written, or be told."""

from __future__ import annotations

from headtohead.data import PreparedData
from headtohead.experiment.schema import STEPWISE, RunConfig


def length_notes(config: RunConfig, data: PreparedData) -> list[str]:
    """Return notes on test sentences beyond the lengths of training.

    A translation ends at ``evaluate.max_length`` at the latest: a longer reference cannot be met,
    whatever the variant. And where no bucket ends with the longest source of training, one bucket
    holds both lengths that were trained on and lengths that were not.
    """
    train, test = data.splits["train"], data.splits["test"]
    notes = []
    if config.evaluate.decode in STEPWISE:
        written = config.evaluate.max_length or _default_longest(data)
        shortest = [min(len(text.split()) for text in texts) for texts in test.references]
        lost = sum(length > written for length in shortest)
        if lost and config.data.tokens == "word":
            notes.append(
                f"{lost} of {len(test)} test references are longer than the {written} words a "
                f"translation may have: set evaluate.max_length: {max(shortest)}"
            )
    seen, asked = (
        max(data.source_vocabulary.count_words(ids) for ids in split.source)
        for split in (train, test)
    )
    if config.data.split == "length" and asked > seen and seen not in config.evaluate.buckets:
        notes.append(
            f"training ends at sources of {seen} tokens, inside a bucket of evaluate.buckets: "
            f"give a bound at {seen} to tell lengths that were trained on from others"
        )
    return notes


def _default_longest(data: PreparedData) -> int:
    """Return the most words of a translation where the file does not say, as in evaluation."""
    longest = max(len(ids) for ids in data.splits["train"].target) - 1
    return max(4, longest * 3 // 2)

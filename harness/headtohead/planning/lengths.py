"""The decoding limit of a run, and notes on test sentences that are longer than training."""

from __future__ import annotations

from headtohead.data import PreparedData
from headtohead.schema.run_config import STEPWISE, RunConfig


def decoding_limit(config: RunConfig, longest_target: int) -> int:
    """Return the maximum number of tokens of a translation that is generated token by token.

    It is ``evaluate.max_length`` or, by default, 1.5 times the labels of the longest training
    target, at least 4.

    Args:
        config: The run's configuration.
        longest_target: Tokens of the longest training target, boundary tokens included.
    """
    labels = longest_target - (config.quirks.shift_targets)
    return config.evaluate.max_length or max(4, labels * 3 // 2)


def length_notes(config: RunConfig, data: PreparedData) -> list[str]:
    """Return notes on test sentences beyond the lengths of training.

    A translation ends at the decoding limit at the latest: a longer reference cannot be met,
    whatever the variant. And where no bucket ends with the longest source of training, one bucket
    holds both lengths that were trained on and lengths that were not.
    """
    train, test = data.splits["train"], data.splits["test"]
    notes = []
    if config.evaluate.decode in STEPWISE:
        written = decoding_limit(config, data.longest_target)
        shortest = [min(len(text.split()) for text in texts) for texts in test.references]
        lost = sum(length > written for length in shortest)
        if lost and config.data.tokens == "word":
            notes.append(
                f"{lost} of {len(test)} test references are longer than the {written} words a "
                f"translation may have: set evaluate.max_length: {max(shortest)}"
            )
    seen, asked = (max(data.source_vocabulary.count_words(ids) for ids in split.source) for split in (train, test))
    if config.data.split == "length" and asked > seen and seen not in config.evaluate.buckets:
        notes.append(
            f"training ends at sources of {seen} tokens, inside a bucket of evaluate.buckets: "
            f"give a bound at {seen} to tell lengths that were trained on from others"
        )
    return notes

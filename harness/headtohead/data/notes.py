"""Notes on prepared data for reports: each rule returns the sentences that apply to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headtohead.data.cleaning import Cleaned
from headtohead.data.normalise import NORMALISERS, removes
from headtohead.data.passages import PASSAGES
from headtohead.data.prepared import PreparedData
from headtohead.data.record import distinct_rows
from headtohead.data.splits import Labels
from headtohead.data.tokeniser import SIDES
from headtohead.data.vocabularies import Sentences
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig
from headtohead_judge.listing import listed

LARGE_GROUP = 0.05
"""Fraction of the pairs from which a note names the largest group, which only fits into train."""

MAX_UNKNOWN = 0.1
"""Fraction of unknown test targets, or of unknown test tokens of a side, above which a note has the ceiling."""


@dataclass(frozen=True)
class Facts:
    """What notes depend on.

    Args:
        cleaned: The pairs of the corpus.
        parts: Rows of the pairs of each part.
        data: The prepared data, with their record.
        train_words: Words of the training sentences.
        unreachable: See `headtohead.data.record.unreachable_rows`.
    """

    cleaned: Cleaned
    parts: Mapping[str, Labels]
    data: PreparedData
    train_words: Sentences
    unreachable: Sequence[int]

    @property
    def config(self) -> DataConfig:
        """The ``data`` section."""
        return self.cleaned.config


def removed_characters(facts: Facts) -> list[str]:
    """Return a note if the normalisation removes letters or marks from texts."""
    normalise = NORMALISERS[facts.config.normalise]
    texts = [(pair.source, pair.target) for pair in facts.cleaned.corpus.pairs]
    characters: set[str] = set()
    for source, target in texts:
        characters.update(source, target)
    removed = {character for character in characters if removes(normalise, character)}
    changed = []
    for source, target in texts:
        if not removed.isdisjoint(source):
            changed.append(source)
        elif not removed.isdisjoint(target):
            changed.append(target)
    if not changed:
        return []
    return [
        f"data.normalise: {facts.config.normalise} removes characters from {len(changed):,} of {len(texts):,} pairs, "
        f"for example '{changed[0]}' becomes '{normalise(changed[0])}'; set data.normalise: none to keep them"
    ]


def nothing_held_out(facts: Facts) -> list[str]:
    """Return a note if the pairs of all parts are in train."""
    if facts.config.split != NOTHING_HELD_OUT:
        return []
    return [
        "nothing is held out: the pairs of valid and test are also in train, so scores measure memorisation"
    ]


def unused_sizes(facts: Facts) -> list[str]:
    """Return a note on each size of a part that the dataset itself fills."""
    if facts.config.split == NOTHING_HELD_OUT:
        return []
    filled = {pair.split for pair in facts.cleaned.pairs}
    notes = []
    for part in ("valid", "test"):
        is_default = getattr(facts.config, part) == DataConfig.model_fields[part].default
        if part in filled and not is_default:
            notes.append(f"data.{part} has no effect: the dataset has its own pairs for {part}")
    return notes


def few_passages(facts: Facts) -> list[str]:
    """Return a note if validation or test of a text has too few passages to estimate the variance between passages."""
    if not facts.cleaned.is_text:
        return []
    passages = facts.data.record["passages"]
    if min(passages["valid"]["number"], passages["test"]["number"]) >= PASSAGES:
        return []
    return [
        f"validation or test has fewer than {PASSAGES} passages of the text, so intervals do not include the choice of "
        "the passages"
    ]


def dropped_pairs(facts: Facts) -> list[str]:
    """Return a note on the number of dropped pairs for each reason."""
    notes = []
    for reason, count in facts.cleaned.dropped.items():
        if count:
            notes.append(f"{count} {reason.replace('_', '-')} pairs were dropped")
    return notes


def large_group(facts: Facts) -> list[str]:
    """Return a note if a large group of connected sentences fits into no part but train; none for a text."""
    if facts.cleaned.is_text or facts.config.split == NOTHING_HELD_OUT:
        return []
    sizes = {part: len(rows) for part, rows in facts.parts.items()}
    total = sum(sizes.values())
    largest = int(np.bincount(facts.cleaned.groups[facts.parts["train"]]).max())
    if largest < LARGE_GROUP * total or largest <= max(sizes["valid"], sizes["test"]):
        return []
    return [
        f"the largest group of connected sentences holds {100 * largest / total:.1f} % of the pairs; "
        "it is too large for valid and test and is in train"
    ]


def dropped_words(facts: Facts) -> list[str]:
    """Return a note on the training words of each side that ``vocabulary.unknown: drop`` removes."""
    if facts.config.vocabulary.unknown != "drop":
        return []
    notes = []
    for side in SIDES:
        vocabulary = facts.data.vocabulary(side)
        sentences = facts.train_words[side]
        dropped = Counter[str]()
        for sentence in sentences:
            dropped.update(word for word in sentence if word not in vocabulary)
        if not dropped:
            continue
        [(most_frequent, _)] = dropped.most_common(1)
        total = sum(len(sentence) for sentence in sentences)
        notes.append(
            f"{dropped.total()} of {total} {side} words in train were dropped silently, "
            f"because the vocabulary lacks them, most often '{most_frequent}'"
        )
    return notes


def truncated_targets(facts: Facts) -> list[str]:
    """Return a note if targets of test are truncated, which losses and other scores treat differently."""
    limit = facts.config.truncate_tokens
    if limit is None:
        return []
    tokeniser = replace(facts.data.tokenisers["target"], max_tokens=None)
    targets = facts.data.splits["test"].target_text
    lengths = [len(tokeniser.ids(tokeniser.unit.split(text))) for text in targets]
    truncated = sum(length > limit for length in lengths)
    if not truncated:
        return []
    return [
        f"{truncated} of {len(targets)} test targets are truncated to {limit} tokens; the test loss is that of the "
        "kept tokens, while exact match and BLEU use the whole references"
    ]


def vocabulary_bound(facts: Facts) -> list[str]:
    """Return a note if the vocabulary bounds the scores of test much below 1.

    A tokenizer file can also change references, for example their case; then every difference is noted.
    """
    record = facts.data.record
    bound = record["vocabulary_upper_bound"]
    unknown = record["unk_rate"]["test"]
    has_file = facts.config.vocabulary.file is not None
    is_high = max(1 - bound, *unknown.values()) <= MAX_UNKNOWN
    if is_high and not (has_file and facts.unreachable):
        return []
    if not facts.cleaned.corpus.has_sources:
        return [
            f"{100 * unknown['target']:.1f} % of the test tokens are unknown, and bits per byte count each as <unk>"
        ]
    test = facts.data.splits["test"]
    advice = "use data.tokens: subword"
    if has_file:
        advice = "set data.normalise as the tokenizer normalises"
    unreachable = "the vocabulary reproduces the references of every test sentence"
    if facts.unreachable:
        unreachable = (
            f"the vocabulary cannot reproduce the references of {len(facts.unreachable)} of "
            f"{len(distinct_rows(test))} test sentences, for example '{test.target_text[facts.unreachable[0]]}', so "
            f"exact match cannot exceed {bound:.3f}"
        )
    return [
        f"{unreachable}; {100 * unknown['target']:.1f} % of the target tokens "
        f"and {100 * unknown['source']:.1f} % of the source tokens of test are unknown; {advice}, or check the split"
    ]


def several_answers(facts: Facts) -> list[str]:
    """Return a note if test has sources with several targets, of which each counts as right."""
    test = facts.data.splits["test"]
    rows = distinct_rows(test)
    several = [row for row in rows if len(test.references[row]) > 1]
    if not several:
        return []
    first = several[0]
    answers = listed([f"'{text}'" for text in test.references[first]], 2)
    return [
        f"{len(several):,} of {len(rows):,} test sources have several targets in the data, and an output that equals "
        f"any of them is right: '{test.source_text[first]}' has {answers}"
    ]


RULES: tuple[Callable[[Facts], list[str]], ...] = (
    removed_characters,
    nothing_held_out,
    unused_sizes,
    few_passages,
    dropped_pairs,
    large_group,
    dropped_words,
    truncated_targets,
    vocabulary_bound,
    several_answers,
)


def notes(facts: Facts) -> list[str]:
    """Return the notes of the dataset, then those of every rule."""
    sentences = list(facts.cleaned.corpus.notes)
    for rule in RULES:
        sentences += rule(facts)
    return sentences

"""The usable pairs of a corpus: normalised and not empty, and their division into train, valid and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from headtohead.data.normalise import NORMALISERS, appearance
from headtohead.data.splits import PARTS, Labels, components, divide, shuffled
from headtohead.data.tokeniser import Side
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig


@dataclass(frozen=True)
class Cleaned:
    """The usable pairs of a corpus.

    Args:
        corpus: The corpus as the dataset returns it.
        config: The ``data`` section.
        pairs: The normalised pairs without empty sides.
        groups: The number of the group of each pair; a split does not divide a group.
        dropped: The number of dropped pairs by reason; later steps of the preparation add theirs.
    """

    corpus: Corpus
    config: DataConfig
    pairs: list[Pair]
    groups: Labels
    dropped: dict[str, int]

    @property
    def is_labelled(self) -> bool:
        """Whether the pairs are sequences with labels of some of their words."""
        return self.pairs[0].labelled is not None

    @property
    def is_text(self) -> bool:
        """Whether the pairs are blocks of a text."""
        return not self.corpus.has_sources and not self.is_labelled

    def texts(self, side: Side, rows: Labels) -> list[str]:
        """Return the text of a side of some pairs."""
        pairs = [self.pairs[row] for row in rows.tolist()]
        if side == "source":
            return [pair.source for pair in pairs]
        return [pair.target for pair in pairs]


def clean(corpus: Corpus, config: DataConfig) -> Cleaned:
    """Normalise the pairs of a corpus, drop those with an empty side, and group the others.

    Raises:
        HeadToHeadError: If no pair is left, or the labels of sequences contradict the settings.
    """
    if corpus.unit is not None and (corpus.has_sources or config.normalise != "none"):
        raise HeadToHeadError(
            f"dataset '{config.dataset}' has the unit '{corpus.unit}' of a text; set has_sources=False in its "
            "corpus, and data.normalise: none"
        )
    normalise = NORMALISERS[config.normalise]
    dropped = {"empty": 0, "one_sided": 0, "too_long": 0}
    pairs: list[Pair] = []
    for pair in corpus.pairs:
        source = normalise(pair.source)
        target = normalise(pair.target)
        if target and (source or not corpus.has_sources):
            pairs.append(replace(pair, source=source, target=target))
        elif source or target:
            dropped["one_sided"] += 1
        else:
            dropped["empty"] += 1
    _require_pairs(pairs, config, dropped)
    if any(pair.labelled is not None for pair in pairs):
        _check_labelled(pairs, corpus, config)
    return Cleaned(corpus, config, pairs, _groups(pairs, corpus, config), dropped)


def divide_pairs(cleaned: Cleaned) -> dict[str, Labels]:
    """Return the rows of each part: without pairs that are too long, at most ``data.limit``.

    Raises:
        HeadToHeadError: If no pair is left, or a part would be empty.
    """
    config = cleaned.config
    rows = _limited(_short_enough(cleaned), cleaned)
    if config.split == NOTHING_HELD_OUT:
        return {
            "train": rows,
            "valid": _taken_from(rows, config.valid, config.seed),
            "test": _taken_from(rows, config.test, config.seed),
        }
    divided = divide(
        cleaned.groups[rows],
        [cleaned.pairs[row].split for row in rows],
        valid=config.valid,
        test=config.test,
        seed=config.seed,
    )
    return {part: rows[divided[part]] for part in PARTS}


def _require_pairs(remaining: list[Pair], config: DataConfig, dropped: Mapping[str, int]) -> None:
    if remaining:
        return
    counts = []
    for reason, count in dropped.items():
        if count:
            counts.append(f"{count} {reason.replace('_', '-')}")
    raise HeadToHeadError(
        f"{config.dataset} has no usable pair with data.normalise: {config.normalise} "
        f"(dropped: {', '.join(counts) or 'none'}); check the file and data.max_words; a text is data.dataset: text"
    )


def _check_labelled(pairs: list[Pair], corpus: Corpus, config: DataConfig) -> None:
    """Raise an error for pairs without labels, or a setting with which a word is not one decoder input."""
    if any(pair.labelled is None for pair in pairs):
        raise HeadToHeadError(
            f"dataset '{config.dataset}' has pairs with and without labelled words; use one"
        )
    for pair in corpus.pairs:
        problem = pair.mislabelled
        if problem:
            raise HeadToHeadError(
                f"dataset '{config.dataset}': a pair {problem}; give ascending indices from 0, one of each label"
            )
    requirements = {
        "normalise: none": config.normalise == "none",
        "tokens: word": config.tokens == "word",
        "vocabulary.file: null": config.vocabulary.file is None,
        "vocabulary.unknown: token": config.vocabulary.unknown != "drop",
        "source_boundaries: none": config.source_boundaries == "none",
        "target_boundaries: eos": config.target_boundaries != "none",
        "truncate_tokens: null": config.truncate_tokens is None,
    }
    for setting, holds in requirements.items():
        if not holds:
            raise HeadToHeadError(
                f"dataset '{config.dataset}' has labels of single words of a sequence; set data.{setting}"
            )


def _groups(pairs: list[Pair], corpus: Corpus, config: DataConfig) -> Labels:
    """Return the group of each pair: pairs with a common source, group or, if it joins them, target.

    Texts are common if they have the same `appearance`.
    """
    if config.split == "row":
        return np.arange(len(pairs), dtype=np.int64)
    keys = []
    if corpus.has_sources:
        keys.append([appearance(pair.source) for pair in pairs])
    if corpus.targets_join:
        keys.append([appearance(pair.target) for pair in pairs])
    keys.append([pair.group for pair in pairs])
    return components(*keys)


def _short_enough(cleaned: Cleaned) -> Labels:
    """Return the rows of the pairs with at most ``data.max_words`` words on both sides, and count the others."""
    rows = np.arange(len(cleaned.pairs), dtype=np.int64)
    if cleaned.config.max_words is None:
        return rows
    longer = [max(len(pair.source.split()), len(pair.target.split())) for pair in cleaned.pairs]
    kept: Labels = rows[np.array(longer) <= cleaned.config.max_words]
    cleaned.dropped["too_long"] = len(rows) - len(kept)
    _require_pairs([cleaned.pairs[row] for row in kept], cleaned.config, cleaned.dropped)
    return kept


def _limited(rows: Labels, cleaned: Cleaned) -> Labels:
    """Return all rows that the dataset chose for validation or test, and ``data.limit`` shuffled rows of the others."""
    config = cleaned.config
    if config.limit is None:
        return rows
    is_held_out = np.array([cleaned.pairs[row].split in ("valid", "test") for row in rows])
    others = rows[~is_held_out]
    if config.limit >= len(others):
        return rows
    kept = others[shuffled(len(others), config.seed)[: config.limit]]
    return np.sort(np.concatenate([rows[is_held_out], kept]))


def _taken_from(rows: Labels, size: float, seed: int) -> Labels:
    """Return ``size`` random rows; all rows where the size is a fraction of them or not smaller than their number."""
    if not 1 <= size < len(rows):
        return rows
    return np.sort(rows[shuffled(len(rows), seed)[: int(size)]])

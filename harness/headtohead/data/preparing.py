"""From a data configuration to prepared data: read, normalise, drop, divide, count, encode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headtohead.data.ceiling import bag_of_words_ceiling
from headtohead.data.corpus import dataset_options, loaded_split, split_name
from headtohead.data.normalise import normaliser
from headtohead.data.prepared import SIDES, PreparedData, Side, Split, Tokeniser, data_hash
from headtohead.data.splits import PARTS, Labels, components, divide, leak, shuffled
from headtohead.data.store import PreparedStore
from headtohead.data.vocabulary import Boundaries, Vocabulary
from headtohead.data.wordlists import Words, vocabularies_of
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Dataset
from headtohead.plugins.entry import Options
from headtohead.plugins.registry import Registry, current
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig

LARGE_GROUP = 0.05
"""Share of the pairs from which the largest group is worth a note: it can only be in train."""

NAMED_WORDS = 3
"""Dropped words that a note names."""


def prepare(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> PreparedData:
    """Return the data of a configuration, from the cache of prepared data where it is there.

    Args:
        config: The ``data`` section.
        cache: Folder for downloads and prepared data, shared by all experiments.
        registry: Where the dataset is looked up; default: that of this process.

    Raises:
        HeadToHeadError: For every fault of options, file, network or content, in one line.
    """
    return _prepared(config, cache, registry or current())[0]


def prepared_file(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> Path:
    """Return the file of the cache that holds a configuration's prepared data, made if need be.

    Raises:
        HeadToHeadError: As ``prepare``.
    """
    return _prepared(config, cache, registry or current())[1]


def _prepared(config: DataConfig, cache: Path, registry: Registry) -> tuple[PreparedData, Path]:
    """Return the data of a configuration, and the file they are kept in."""
    dataset, downloads = registry.dataset(config.dataset), cache / "downloads"
    resolved, options = _resolved(config, dataset)
    source = registry.find("dataset", config.dataset).source_sha256
    store = PreparedStore(cache / "prepared", resolved, source)
    split = loaded_split(dataset, str(resolved.split))
    known = dataset.stamp(options, split, downloads)
    ready = store.load(known) if known else None
    if known and ready is not None:
        return ready, store.path(known)
    corpus = dataset.load(options, split, downloads)
    mark = dataset.stamp(options, split, downloads) or corpus.data_hash
    ready = store.load(mark) if mark != known else None
    if ready is None:
        ready = prepare_corpus(corpus, resolved)
        store.save(mark, ready)
    return ready, store.path(mark)


def read_corpus(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> Corpus:
    """Return the raw corpus of a configuration, downloaded first where that is needed.

    Raises:
        HeadToHeadError: As ``prepare``.
    """
    dataset = (registry or current()).dataset(config.dataset)
    resolved, options = _resolved(config, dataset)
    return dataset.load(options, loaded_split(dataset, str(resolved.split)), cache / "downloads")


def _resolved(config: DataConfig, dataset: type[Dataset]) -> tuple[DataConfig, Options]:
    """Fill in the dataset's options and defaults."""
    options = dataset_options(config.dataset, dataset, config.options)
    update = {
        "options": options.model_dump(mode="json"),
        "split": split_name(config.dataset, dataset, config.split),
        "normalise": config.normalise or dataset.normalise,
    }
    return config.model_copy(update=update), options


def prepare_corpus(corpus: Corpus, config: DataConfig) -> PreparedData:
    """Prepare a corpus under a configuration whose split and normalisation are named."""
    table = _Table.read(corpus, config)
    parts = _divide(table, config)
    tokenisers = _tokenisers(table, parts["train"], config)
    words = {
        part: {side: [tokenisers[side].split(table.text[side][row]) for row in rows.tolist()] for side in SIDES}
        for part, rows in parts.items()
    }
    vocabularies = vocabularies_of(words["train"], tokenisers, config, corpus.vocabularies)
    splits = {part: _split(table, rows, words[part], vocabularies, tokenisers, part) for part, rows in parts.items()}
    _refuse_wordless(splits, table.dropped)
    digest = data_hash(splits, vocabularies, tokenisers)
    record = _record(table, corpus, config, splits, vocabularies, digest)
    if config.vocabulary.unknown == "drop":
        _record_dropped_words(record, words["train"], vocabularies)
    return PreparedData(vocabularies["source"], vocabularies["target"], splits, record, digest, tokenisers)


@dataclass(frozen=True)
class _Table:
    """The usable pairs of a corpus, normalised, with the group of each and what was dropped."""

    text: dict[Side, list[str]]
    named: list[str | None]
    labels: Labels
    references: Mapping[str, list[str]]
    dropped: dict[str, int]

    @classmethod
    def read(cls, corpus: Corpus, config: DataConfig) -> _Table:
        normalise = normaliser(config.normalise or "none")
        dropped = {"empty": 0, "one_sided": 0, "too_long": 0}
        text: dict[Side, list[str]] = {"source": [], "target": []}
        named, groups = [], []
        for pair in corpus.pairs:
            source, target = normalise(pair.source), normalise(pair.target)
            if source and target:
                text["source"].append(source)
                text["target"].append(target)
                named.append(pair.split)
                groups.append(pair.group)
            else:
                dropped["one_sided" if source or target else "empty"] += 1
        _refuse_none(text["source"], dropped, config)
        if config.split in ("row", NOTHING_HELD_OUT):
            labels = np.arange(len(named), dtype=np.int64)
        else:
            shared = [text["target"]] if corpus.targets_join else []
            labels = components(text["source"], *shared, groups)
        return cls(text, named, labels, _references(text), dropped)


def _references(text: Mapping[Side, list[str]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for source, target in zip(text["source"], text["target"], strict=True):
        found.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in found.items()}


def _refuse_none(left: Sequence[str], dropped: Mapping[str, int], config: DataConfig) -> None:
    if left:
        return
    counts = ", ".join(f"{n} {reason.replace('_', '-')}" for reason, n in dropped.items() if n)
    raise HeadToHeadError(
        f"{config.dataset} has no usable pair under normalise: {config.normalise} "
        f"({f'dropped: {counts}' if counts else 'it is empty'}); check the file and max_words"
    )


def _divide(table: _Table, config: DataConfig) -> dict[str, Labels]:
    """Drop what is too long, keep ``limit`` shuffled pairs, and divide them."""
    rows = np.arange(len(table.named), dtype=np.int64)
    if config.max_words is not None:
        longest = [
            max(len(source.split()), len(target.split()))
            for source, target in zip(table.text["source"], table.text["target"], strict=True)
        ]
        rows = rows[np.array(longest) <= config.max_words]
        table.dropped["too_long"] = len(longest) - len(rows)
        _refuse_none([table.text["source"][row] for row in rows[:1]], table.dropped, config)
    if config.limit is not None and config.limit < len(rows):
        rows = np.sort(rows[shuffled(len(rows), config.seed)[: config.limit]])
    if config.split == NOTHING_HELD_OUT:
        return {
            "train": rows,
            **{
                part: _some(rows, wanted, config.seed)
                for part, wanted in (("valid", config.valid), ("test", config.test))
            },
        }
    named = [table.named[row] for row in rows]
    parts = divide(table.labels[rows], named, valid=config.valid, test=config.test, seed=config.seed)
    return {part: rows[parts[part]] for part in PARTS}


def _some(rows: Labels, wanted: float, seed: int) -> Labels:
    """Return so many rows, drawn; all where ``wanted`` is no number of rows or more than all."""
    if not 1 <= wanted < len(rows):
        return rows
    return np.sort(rows[shuffled(len(rows), seed)[: int(wanted)]])


def _tokenisers(table: _Table, train: Labels, config: DataConfig) -> dict[Side, Tokeniser]:
    merges: dict[Side, str | None] = {"source": None, "target": None}
    if config.tokens == "subword":
        from headtohead.data.subwords import learn

        texts = {side: [table.text[side][row] for row in train.tolist()] for side in SIDES}
        if config.vocabulary.shared:
            both = learn([*texts["source"], *texts["target"]], config.vocabulary)
            merges = {"source": both, "target": both}
        else:
            merges = {side: learn(texts[side], config.vocabulary) for side in SIDES}
    boundaries: dict[Side, Boundaries] = {"source": config.source_boundaries, "target": config.target_boundaries}
    name = config.normalise or "none"
    return {side: Tokeniser(name, merges[side], boundaries[side], config.truncate_tokens) for side in SIDES}


def _split(
    table: _Table,
    rows: Labels,
    words: Words,
    vocabularies: Mapping[Side, Vocabulary],
    tokenisers: Mapping[Side, Tokeniser],
    part: str,
) -> Split:
    ids = {side: [tokenisers[side].ids(said, vocabularies[side]) for said in words[side]] for side in SIDES}
    kept = [place for place in range(len(rows)) if all(ids[side][place] for side in SIDES)]
    if len(kept) < len(rows):
        table.dropped["no_known_word"] = table.dropped.get("no_known_word", 0)
        table.dropped["no_known_word"] += len(rows) - len(kept)
    arrays = {side: [np.array(ids[side][place], dtype=np.int32) for place in kept] for side in SIDES}
    text = {side: [table.text[side][rows[place]] for place in kept] for side in SIDES}
    references = [
        _own_first(own, () if part == "train" else table.references[source])
        for source, own in zip(text["source"], text["target"], strict=True)
    ]
    return Split(arrays["source"], arrays["target"], text["source"], text["target"], references)


def _refuse_wordless(splits: Mapping[str, Split], dropped: Mapping[str, int]) -> None:
    for part, split in splits.items():
        if not len(split):
            raise HeadToHeadError(
                f"no pair of {part} has a word that the vocabularies know "
                f"({dropped['no_known_word']} pairs dropped); use data.vocabulary.unknown: token"
            )


def _own_first(own: str, every: Sequence[str]) -> tuple[str, ...]:
    return (own, *(other for other in every if other != own))


def _record(
    table: _Table,
    corpus: Corpus,
    config: DataConfig,
    splits: Mapping[str, Split],
    vocabularies: Mapping[Side, Vocabulary],
    digest: str,
) -> dict[str, Any]:
    test = splits["test"]
    leaked = leak(splits["train"].source_text, test.source_text)
    return {
        "dataset": config.dataset,
        "data_hash": digest,
        "corpus_fingerprint": corpus.data_hash,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "languages": list(corpus.languages),
        "split": config.split,
        "normalise": config.normalise,
        "tokens": config.tokens,
        "counts": {part: len(split) for part, split in splits.items()},
        "dropped": dict(table.dropped),
        "vocabulary": {side: len(vocabularies[side]) for side in SIDES},
        "longest": {side: max(len(ids) for split in splits.values() for ids in _ids(split, side)) for side in SIDES},
        "longest_in_train": max(vocabularies["source"].count_words(ids) for ids in splits["train"].source),
        "leak": leaked,
        "leaky": leaked > 0,
        "bag_of_words_ceiling": bag_of_words_ceiling(test.source_text, test.references),
        "unk_rate": {
            part: {side: _unk_rate(_ids(split, side), vocabularies[side]) for side in SIDES}
            for part, split in splits.items()
        },
        "notes": [*corpus.notes, *_notes(table, config, splits, leaked)],
    }


def _notes(table: _Table, config: DataConfig, splits: Mapping[str, Split], leaked: float) -> list[str]:
    notes = []
    if config.split == NOTHING_HELD_OUT:
        notes.append(
            "nothing is held out: the pairs of valid and test are also in train, so scores tell what was memorised"
        )
    elif leaked > 0:
        notes.append(
            f"leaky split '{config.split}': {leaked:.1%} of the test pairs have a source sentence that is also in train"
        )
    for reason, count in table.dropped.items():
        if count:
            notes.append(f"{count} {reason.replace('_', '-')} pairs were dropped")
    largest, total = int(np.bincount(table.labels).max()), len(table.labels)
    if largest >= LARGE_GROUP * total and len(splits["test"]) < largest:
        notes.append(
            f"the largest group of connected sentences holds {largest / total:.1%} of the pairs; "
            "it was too large for valid and test and is in train"
        )
    return notes


def _ids(split: Split, side: Side) -> list[Any]:
    return split.source if side == "source" else split.target


def _unk_rate(sequences: Sequence[Any], vocabulary: Vocabulary) -> float:
    """Share of <unk> among the words, boundary tokens left out of both counts."""
    if vocabulary.unk is None:
        return 0.0
    ids = np.concatenate(sequences)
    silent = [one for one in (vocabulary.pad, vocabulary.sos, vocabulary.eos) if one is not None]
    words = ids[~np.isin(ids, silent)]
    return float((words == vocabulary.unk).mean()) if len(words) else 0.0


def _record_dropped_words(record: dict[str, Any], words: Words, vocabularies: Mapping[Side, Vocabulary]) -> None:
    """Say how many training words were left out of their sentences, and which most often."""
    record["dropped_words"] = {}
    for side in SIDES:
        lost = Counter(word for said in words[side] for word in said if vocabularies[side].lacks(word))
        record["dropped_words"][side] = lost.total()
        if lost:
            named = ", ".join(f"'{word}'" for word, _ in lost.most_common(NAMED_WORDS))
            more = ", …" if len(lost) > NAMED_WORDS else ""
            total = sum(len(said) for said in words[side])
            record["notes"].append(
                f"{lost.total()} of {total} {side} words in train were dropped silently, because "
                f"the vocabulary lacks them: {named}{more}"
            )

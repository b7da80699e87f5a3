"""Preparation of a dataset: load, normalise, drop, split, build vocabularies, encode."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headtohead.data import subwords
from headtohead.data.child import call_in_child
from headtohead.data.corpus import dataset_options, loaded_split
from headtohead.data.normalise import normaliser, removes
from headtohead.data.prepared import SIDES, PreparedData, Side, Split, Tokeniser, data_hash, tokenisers_of
from headtohead.data.splits import PARTS, Labels, components, divide, leak, shuffled
from headtohead.data.store import PreparedStore, data_identity
from headtohead.data.tokenizer_file import read_tokenizer, tokenizer_key
from headtohead.data.upper_bound import bag_of_words_upper_bound
from headtohead.data.vocabulary import SPECIALS, Vocabulary
from headtohead.data.wordlists import Sentences, vocabularies_of
from headtohead.errors import HeadToHeadError, shown_path
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.plugins.registry import Registry, current
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig

log = logging.getLogger(__name__)

LARGE_GROUP = 0.05
"""Fraction of the pairs from which a note names the largest group, which only fits into train."""

DEFAULT_SUBWORDS = 8000
"""Size of a vocabulary of subwords, special tokens included, without ``data.vocabulary.max_size``."""

MAX_UNKNOWN = 0.1
"""Fraction of unknown test targets, or of unknown test tokens of a side, above which a note has the ceiling."""


def prepare(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> PreparedData:
    """Return the prepared data of a configuration, from the cache if they are there.

    Args:
        config: The ``data`` section.
        cache: Folder of downloads and prepared data, shared by all experiments.
        registry: Registry of datasets; default: the registry of this process.

    Raises:
        HeadToHeadError: If options, files, downloads or sentence pairs are invalid.
    """
    return _prepared(config, cache, registry or current())[0]


def prepared_file(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> Path:
    """Return the cache file of the prepared data of a configuration; prepare them first if necessary.

    Raises:
        HeadToHeadError: As ``prepare``.
    """
    return _prepared(config, cache, registry or current())[1]


def _prepared(config: DataConfig, cache: Path, registry: Registry) -> tuple[PreparedData, Path]:
    """Return the data of a configuration and their cache file."""
    dataset, downloads = registry.dataset(config.dataset), cache / "downloads"
    options = dataset_options(config, dataset)
    config = config.model_copy(update={"options": options})  # the identity has the fields of parsed options
    source = registry.find("dataset", config.dataset).source_sha256 + tokenizer_key(config)
    store = PreparedStore(cache / "prepared", data_identity(config, source))
    split = loaded_split(dataset, config.split)
    early_key = dataset.cache_key(options, split, downloads)
    data = store.load(early_key) if early_key else None
    if early_key and data is not None:
        log.debug("prepared data of %s is cached", config.dataset)
        return data, store.path(early_key)
    log.info("loading dataset %s, split %s", config.dataset, split)
    corpus = dataset.load(options, split, downloads)
    key = dataset.cache_key(options, split, downloads) or corpus.data_hash
    if early_key not in (None, key):
        raise HeadToHeadError(f"a file of dataset '{config.dataset}' changed while it was read; run the command again")
    data = store.load(key) if key != early_key else None
    if data is None:
        if config.vocabulary.file:
            data = _prepared_in_child(corpus, config, store, key)
        else:
            data = prepare_corpus(corpus, config)
            store.save(key, data)
    return data, store.path(key)


def _prepared_in_child(corpus: Corpus, config: DataConfig, store: PreparedStore, key: str) -> PreparedData:
    """Return the prepared data of a tokenizer file, prepared in a child process: its regular expressions can run long.

    The cache file passes the data from the child to this process.
    """
    name = f"data.vocabulary.file '{shown_path(str(config.vocabulary.file))}'"
    plain = {**vars(corpus), "pairs": [[*vars(pair).values()] for pair in corpus.pairs]}
    arguments = plain, config.model_dump(mode="json"), str(store.folder), store.identity, key
    call_in_child(name, f"{__name__}:prepare_and_save", *arguments)
    data = store.load(key)
    if data is None:
        raise HeadToHeadError(f"{name} cannot be read: its prepared data are damaged; run the command again")
    return data


def prepare_and_save(
    corpus: Mapping[str, Any], config: Mapping[str, Any], folder: str, identity: list[Any], key: str
) -> None:
    """Prepare a corpus and write it to the cache; the arguments are those of `_prepared_in_child` as JSON values."""
    pairs = [Pair(*values) for values in corpus["pairs"]]
    checked = DataConfig.model_validate_json(json.dumps(config))
    PreparedStore(Path(folder), identity).save(key, prepare_corpus(Corpus(**{**corpus, "pairs": pairs}), checked))


def read_corpus(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> Corpus:
    """Return the raw corpus of a configuration; download it first if necessary.

    Raises:
        HeadToHeadError: As ``prepare``.
    """
    dataset = (registry or current()).dataset(config.dataset)
    options = dataset_options(config, dataset)
    return dataset.load(options, loaded_split(dataset, config.split), cache / "downloads")


def prepare_corpus(corpus: Corpus, config: DataConfig) -> PreparedData:
    """Normalise, split and encode a corpus.

    Raises:
        HeadToHeadError: If no pair is left, or a part is empty.
        UndefinedError: If the vocabulary options cannot be combined.
    """
    table = _Table.read(corpus, config)
    parts = _divide(table, config)
    given = read_tokenizer(config) if config.vocabulary.file else None
    merges = dict.fromkeys(SIDES, str(given.tokenizer)) if given else None
    if config.tokens == "subword":
        merges = _learned(table, parts["train"], config)
    tokenisers = tokenisers_of(config, merges)
    words = {
        part: {side: [tokenisers[side].split(table.text[side][row]) for row in rows.tolist()] for side in SIDES}
        for part, rows in parts.items()
    }
    if given is not None:
        vocabularies: dict[Side, Vocabulary] = dict.fromkeys(SIDES, given)
    else:
        vocabularies = vocabularies_of(words["train"], tokenisers, config, corpus.vocabularies)
    splits = {part: _split(table, rows, words[part], vocabularies, tokenisers, part) for part, rows in parts.items()}
    digest = data_hash(splits, vocabularies, tokenisers)
    record = _record(table, corpus, config, parts, splits, vocabularies, digest)
    if config.vocabulary.unknown == "drop":
        _record_dropped_words(record, words["train"], vocabularies)
    data = PreparedData(vocabularies["source"], vocabularies["target"], splits, record, digest, tokenisers)
    _record_upper_bound(data, given)
    return data


@dataclass(frozen=True)
class _Table:
    """The normalised pairs of a corpus without empty sides.

    ``parts`` is the part that the dataset chose for each pair, ``labels`` the group of each pair,
    ``dropped`` the number of dropped pairs by reason.
    """

    text: dict[Side, list[str]]
    parts: list[str | None]
    labels: Labels
    references: Mapping[str, list[str]]
    dropped: dict[str, int]

    @classmethod
    def read(cls, corpus: Corpus, config: DataConfig) -> _Table:
        normalise = normaliser(config.normalise)
        dropped = {"empty": 0, "one_sided": 0, "too_long": 0}
        text: dict[Side, list[str]] = {"source": [], "target": []}
        parts, groups = [], []
        for pair in corpus.pairs:
            source, target = normalise(pair.source), normalise(pair.target)
            if source and target:
                text["source"].append(source)
                text["target"].append(target)
                parts.append(pair.split)
                groups.append(pair.group)
            else:
                dropped["one_sided" if source or target else "empty"] += 1
        _check_not_empty(text["source"], dropped, config)
        if config.split in ("row", NOTHING_HELD_OUT):
            labels = np.arange(len(parts), dtype=np.int64)
        else:
            shared = [text["target"]] if corpus.targets_join else []
            labels = components(text["source"], *shared, groups)
        return cls(text, parts, labels, _references(text), dropped)


def _references(text: Mapping[Side, list[str]]) -> dict[str, list[str]]:
    """Return all distinct translations of each source sentence, in order of appearance."""
    translations: dict[str, dict[str, None]] = {}
    for source, target in zip(text["source"], text["target"], strict=True):
        translations.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in translations.items()}


def _check_not_empty(sentences: Sequence[str], dropped: Mapping[str, int], config: DataConfig) -> None:
    if sentences:
        return
    counts = ", ".join(f"{n} {reason.replace('_', '-')}" for reason, n in dropped.items() if n)
    raise HeadToHeadError(
        f"{config.dataset} has no usable pair with data.normalise: {config.normalise} "
        f"({f'dropped: {counts}' if counts else 'it is empty'}); check the file and data.max_words"
    )


def _divide(table: _Table, config: DataConfig) -> dict[str, Labels]:
    """Drop pairs that are too long, keep ``limit`` shuffled pairs beside given test parts, and split into parts."""
    seed = config.seed
    if not isinstance(seed, int):
        raise HeadToHeadError(f"data.seed: {seed} requires the seed of a run; replace it by a number")
    rows = np.arange(len(table.parts), dtype=np.int64)
    if config.max_words is not None:
        longest = [
            max(len(source.split()), len(target.split()))
            for source, target in zip(table.text["source"], table.text["target"], strict=True)
        ]
        rows = rows[np.array(longest) <= config.max_words]
        table.dropped["too_long"] = len(longest) - len(rows)
        _check_not_empty([table.text["source"][row] for row in rows[:1]], table.dropped, config)
    if config.limit is not None:
        # Parts for validation and test that the dataset chose keep their size.
        held_out = np.array([table.parts[row] in ("valid", "test") for row in rows.tolist()], dtype=bool)
        others = rows[~held_out]
        if config.limit < len(others):
            rows = np.sort(np.concatenate([rows[held_out], others[shuffled(len(others), seed)[: config.limit]]]))
    if config.split == NOTHING_HELD_OUT:
        samples = {part: _sample(rows, size, seed) for part, size in (("valid", config.valid), ("test", config.test))}
        return {"train": rows, **samples}
    chosen = [table.parts[row] for row in rows]
    parts = divide(table.labels[rows], chosen, valid=config.valid, test=config.test, seed=seed)
    return {part: rows[parts[part]] for part in PARTS}


def _sample(rows: Labels, size: float, seed: int) -> Labels:
    """Return ``size`` random rows; all rows if ``size`` is a fraction or not less than their number."""
    if not 1 <= size < len(rows):
        return rows
    return np.sort(rows[shuffled(len(rows), seed)[: int(size)]])


def _record_upper_bound(data: PreparedData, given: Vocabulary | None) -> None:
    """Record the largest exact match that the vocabularies permit on test, with a note if it is much below 1.

    A tokenizer file can also change references, for example their case; then every difference is noted.
    """
    from headtohead.data.reference_points import vocabulary_bound_translations

    test, record = data.splits["test"], data.record
    rows = list(dict(zip(test.source_text, range(len(test)), strict=True)).values())
    translations = vocabulary_bound_translations(data, rows)
    lost = [row for row, text in zip(rows, translations, strict=True) if text not in test.references[row]]
    bound = record["vocabulary_upper_bound"] = 1 - len(lost) / len(rows)
    unknown = record["unk_rate"]["test"]
    if not (max(1 - bound, *unknown.values()) > MAX_UNKNOWN or (given and lost)):
        return
    example = f", for example '{test.target_text[lost[0]]}'" if lost else ""
    advice = "set data.normalise as the tokenizer normalises" if given else "use data.tokens: subword"
    record["notes"].append(
        f"the vocabulary cannot reproduce the references of {len(lost)} of {len(rows)} test sentences{example}, so "
        f"exact match cannot exceed {bound:.3f}; {unknown['target']:.1%} of the target tokens and "
        f"{unknown['source']:.1%} of the source tokens of test are unknown; {advice}, or check the split"
    )


def _removal_notes(corpus: Corpus, config: DataConfig) -> list[str]:
    """Return a note with the number of pairs that lose characters by normalisation, if any."""
    normalise = normaliser(config.normalise)
    characters = {character for pair in corpus.pairs for text in (pair.source, pair.target) for character in text}
    removed = {character for character in characters if removes(normalise, character)}
    found = [pair for pair in corpus.pairs if not removed.isdisjoint(pair.source + pair.target)] if removed else []
    if not found:
        return []
    example = next(text for text in (found[0].source, found[0].target) if not removed.isdisjoint(text))
    return [
        f"data.normalise: {config.normalise} removes characters from {len(found):,} of {len(corpus.pairs):,} pairs, "
        f"for example '{example}' becomes '{normalise(example)}'; set data.normalise: none to keep them"
    ]


def _learned(table: _Table, train: Labels, config: DataConfig) -> dict[Side, str]:
    """Return the subword merges of each side, learned on the training part."""
    texts = {side: [table.text[side][row] for row in train.tolist()] for side in SIDES}
    size = (config.vocabulary.max_size or DEFAULT_SUBWORDS) - len(SPECIALS) + 1
    if config.vocabulary.shared:
        both = [*texts["source"], *texts["target"]]
        return dict.fromkeys(SIDES, subwords.learn(both, size, config.vocabulary.min_count))
    return {side: subwords.learn(texts[side], size, config.vocabulary.min_count) for side in SIDES}


def _split(
    table: _Table,
    rows: Labels,
    words: Sentences,
    vocabularies: Mapping[Side, Vocabulary],
    tokenisers: Mapping[Side, Tokeniser],
    part: str,
) -> Split:
    ids = {side: [tokenisers[side].ids(sentence, vocabularies[side]) for sentence in words[side]] for side in SIDES}
    indices = [index for index in range(len(rows)) if all(ids[side][index] for side in SIDES)]
    if len(indices) < len(rows):
        table.dropped["no_known_word"] = table.dropped.get("no_known_word", 0) + len(rows) - len(indices)
    if not indices:
        raise HeadToHeadError(
            f"no pair of {part} has a word of the vocabularies ({table.dropped['no_known_word']} pairs dropped); use "
            "data.vocabulary.unknown: token"
        )
    arrays = {side: [np.array(ids[side][index], dtype=np.int32) for index in indices] for side in SIDES}
    text = {side: [table.text[side][rows[index]] for index in indices] for side in SIDES}
    references = [
        (own, *(other for other in table.references[source] if other != own and part != "train"))
        for source, own in zip(text["source"], text["target"], strict=True)
    ]
    return Split(arrays["source"], arrays["target"], text["source"], text["target"], references)


def _record(
    table: _Table,
    corpus: Corpus,
    config: DataConfig,
    parts: Mapping[str, Labels],
    splits: Mapping[str, Split],
    vocabularies: Mapping[Side, Vocabulary],
    digest: str,
) -> dict[str, Any]:
    test = splits["test"]
    leaked = _leak(splits)
    return {
        "dataset": config.dataset,
        "data_hash": digest,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "languages": list(corpus.languages),
        "split": config.split,
        "normalise": config.normalise,
        "tokens": "tokenizer" if config.vocabulary.file else config.tokens,
        "counts": {part: len(split) for part, split in splits.items()},
        "dropped": dict(table.dropped),
        "vocabulary": {side: len(vocabularies[side]) for side in SIDES},
        "longest": {side: max(len(ids) for split in splits.values() for ids in _ids(split, side)) for side in SIDES},
        "longest_in_train": max(vocabularies["source"].count_words(ids) for ids in splits["train"].source),
        "leak": leaked,
        "leaky": leaked > 0,
        "bag_of_words_upper_bound": bag_of_words_upper_bound(test.source_text, test.references),
        "unk_rate": {
            part: {side: _unk_rate(_ids(split, side), vocabularies[side]) for side in SIDES}
            for part, split in splits.items()
        },
        "notes": [*corpus.notes, *_removal_notes(corpus, config), *_notes(table, config, parts, leaked)],
    }


def _leak(splits: Mapping[str, Split]) -> float:
    """Return the fraction of test pairs with a source in train; with a target in train if all sources are equal."""
    train, test = splits["train"], splits["test"]
    if len({*train.source_text, *test.source_text}) == 1:
        return leak(train.target_text, test.target_text)
    return leak(train.source_text, test.source_text)


def _notes(table: _Table, config: DataConfig, parts: Mapping[str, Labels], leaked: float) -> list[str]:
    notes = []
    if config.split == NOTHING_HELD_OUT:
        notes.append(
            "nothing is held out: the pairs of valid and test are also in train, so scores measure memorisation"
        )
    elif leaked > 0:
        notes.append(
            f"leaky split '{config.split}': {leaked:.1%} of the test pairs have a source sentence that is also in train"
        )
    for reason, count in table.dropped.items():
        if count:
            notes.append(f"{count} {reason.replace('_', '-')} pairs were dropped")
    largest, total = int(np.bincount(table.labels[parts["train"]]).max()), sum(map(len, parts.values()))
    if largest >= LARGE_GROUP * total and largest > max(len(parts["valid"]), len(parts["test"])):
        notes.append(
            f"the largest group of connected sentences holds {largest / total:.1%} of the pairs; "
            "it is too large for valid and test and is in train"
        )
    return notes


def _ids(split: Split, side: Side) -> list[Any]:
    return split.source if side == "source" else split.target


def _unk_rate(sequences: Sequence[Any], vocabulary: Vocabulary) -> float:
    """Return the fraction of <unk> among the words, without padding and boundary tokens."""
    if vocabulary.unk is None:
        return 0.0
    ids = np.concatenate(sequences)
    special = [token for token in (vocabulary.pad, vocabulary.sos, vocabulary.eos) if token is not None]
    words = ids[~np.isin(ids, special)]
    return float((words == vocabulary.unk).mean()) if len(words) else 0.0


def _record_dropped_words(record: dict[str, Any], words: Sentences, vocabularies: Mapping[Side, Vocabulary]) -> None:
    """Record how many training words were removed from their sentences, with the most frequent of them."""
    record["dropped_words"] = {}
    for side in SIDES:
        dropped = Counter(word for sentence in words[side] for word in sentence if word not in vocabularies[side])
        record["dropped_words"][side] = dropped.total()
        if dropped:
            record["notes"].append(
                f"{dropped.total()} of {sum(map(len, words[side]))} {side} words in train were dropped silently, "
                f"because the vocabulary lacks them, most often '{dropped.most_common(1)[0][0]}'"
            )

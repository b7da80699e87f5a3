"""Preparation of a dataset: load, normalise, drop, split, build vocabularies, encode."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from headtohead.config.validation_errors import parse_options
from headtohead.data import subwords
from headtohead.data.normalise import NORMALISERS, removes
from headtohead.data.prepared import PreparedData, Split, data_hash
from headtohead.data.reference_points import (
    bag_of_words_upper_bound,
    losses_without_model,
    vocabulary_bound_translations,
)
from headtohead.data.splits import (
    LEAKY_SHARE,
    PARTS,
    Labels,
    components,
    divide,
    leak,
    shuffled,
    text_leak,
)
from headtohead.data.store import PreparedStore, data_identity
from headtohead.data.tokeniser import SIDES, Side, tokenisers_of, units_of
from headtohead.data.vocabularies import file_name, read_tokenizer, tokenizer_key, vocabularies_of
from headtohead.data.vocabulary import BOUNDARIES, IGNORE_INDEX, SPECIALS, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Dataset, Pair
from headtohead.plugins.entry import Options
from headtohead.plugins.reads import declared_reads
from headtohead.plugins.registry import Registry, current
from headtohead.plugins.watched_reads import only_declared_reads
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig
from headtohead_judge.child import call_in_child

log = logging.getLogger(__name__)

LARGE_GROUP = 0.05
"""Fraction of the pairs from which a note names the largest group, which only fits into train."""

DEFAULT_SUBWORDS = 8000
"""Size of a vocabulary of subwords, special tokens included, without ``data.vocabulary.max_size``."""

MAX_UNKNOWN = 0.1
"""Fraction of unknown test targets, or of unknown test tokens of a side, above which a note has the ceiling."""


def loaded_split(dataset: type[Dataset], split: str) -> str:
    """Return the ``split`` argument of ``Dataset.load``: ``nothing-held-out`` loads the first split."""
    return dataset.splits[0] if split == NOTHING_HELD_OUT else split


def prepare(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> PreparedData:
    """Return the prepared data of a configuration, from the cache if they are there.

    Raises:
        HeadToHeadError: If options, files, downloads or sentence pairs are invalid.
    """
    registry = registry or current()
    dataset, downloads = registry.dataset(config.dataset), cache / "downloads"
    options, split = config.options, loaded_split(dataset, config.split)
    if not isinstance(options, dataset.Options):  # those of a record
        options = parse_options(dataset.Options, options.model_dump(mode="json"), config.dataset)
        config = config.model_copy(update={"options": options})
    reads = reads_hash(dataset, options)
    source = registry.find("dataset", config.dataset).source_sha256 + reads + tokenizer_key(config)
    store = PreparedStore(cache / "prepared", data_identity(config, source))
    with only_declared_reads(dataset, options):
        early_key = dataset.cache_key(options, split, downloads)
    if early_key and (data := store.load(early_key)) is not None:
        return data
    log.info("loading dataset %s, split %s", config.dataset, split)
    corpus = load_corpus(dataset, options, split, downloads)
    others = {
        name: value for name, value in vars(corpus).items() if name != "pairs"
    }  # for which data_hash stands
    key = dataset.cache_key(options, split, downloads) or str(others)
    if early_key not in (None, key) or reads_hash(dataset, options) != reads:
        raise HeadToHeadError(
            f"a file of dataset '{config.dataset}' changed while it was read; run the command again"
        )
    data = store.load(key) if key != early_key else None
    if data is not None:
        return data
    if config.vocabulary.file is None:
        store.save(key, data := prepare_corpus(corpus, config, reads))
        return data
    # The library can panic, abort or run for ever on a tokenizer file. The cache passes the data to this process.
    plain = {**vars(corpus), "pairs": [[*vars(pair).values()] for pair in corpus.pairs]}
    arguments = plain, config.model_dump(mode="json"), str(store.folder), store.identity, key, reads
    call_in_child(name := file_name(config), f"{__name__}:prepare_and_save", *arguments)
    data = store.load(key)
    if data is None:
        raise HeadToHeadError(
            f"{name} cannot be read: its prepared data are damaged; run the command again"
        )
    return data


def prepare_recorded(config: DataConfig, cache: Path, recorded: str) -> PreparedData:
    """Return the prepared data of a run; ``recorded`` is the data_hash of its record.

    Raises:
        HeadToHeadError: As ``prepare``, and if the data has changed since the run was planned.
    """
    data = prepare(config, cache)
    if data.data_hash != recorded:
        raise HeadToHeadError(
            f"the data of dataset '{config.dataset}' has changed since the run was planned (data_hash {recorded[:8]}, "
            f"now {data.data_hash[:8]}); restore its files, or run the experiment again with the new data"
        )
    return data


def prepare_and_save(
    corpus: Mapping[str, Any],
    config: Mapping[str, Any],
    folder: str,
    identity: list[Any],
    key: str,
    reads: str,
) -> None:
    """Prepare a corpus and write it to the cache; ``prepare`` calls this in a child process with JSON values.

    Args:
        corpus: The fields of a `Corpus`, with a list of values for each pair.
        config: The ``data`` section.
        folder: Folder of prepared data.
        identity: What the prepared data depend on besides the corpus.
        key: The cache key of the corpus.
        reads: As for ``prepare_corpus``.

    Raises:
        HeadToHeadError: As ``prepare_corpus``, or if the folder cannot be written.
    """
    pairs = [Pair(*values) for values in corpus["pairs"]]
    checked = DataConfig.model_validate_json(json.dumps(config))
    data = prepare_corpus(Corpus(**{**corpus, "pairs": pairs}), checked, reads)
    PreparedStore(Path(folder), identity).save(key, data)


def read_corpus(config: DataConfig, cache: Path, *, registry: Registry | None = None) -> Corpus:
    """Return the raw corpus of a configuration; download it first if necessary."""
    dataset = (registry or current()).dataset(config.dataset)
    return load_corpus(
        dataset, config.options, loaded_split(dataset, config.split), cache / "downloads"
    )


def load_corpus(dataset: type[Dataset], options: Options, split: str, downloads: Path) -> Corpus:
    """Return the corpus of a dataset; arguments as for `Dataset.load`.

    Raises:
        HeadToHeadError: As `Dataset.load`, and if a dataset of a plugin reads a file that it does not declare.
    """
    with only_declared_reads(dataset, options):
        return dataset.load(options, split, downloads)


def reads_hash(dataset: type[Dataset], options: Options) -> str:
    """Return a hash of what a dataset declares to read; an empty text for a dataset that declares nothing."""
    return "".join(f"{read.name} {read.sha256}\n" for read in declared_reads(dataset, options))


def prepare_corpus(corpus: Corpus, config: DataConfig, reads: str = "") -> PreparedData:
    """Normalise, split and encode a corpus; ``reads`` is the `reads_hash` of its dataset, a part of the data hash.

    Raises:
        HeadToHeadError: If no pair is left, or a part is empty.
        UndefinedError: If the vocabulary options cannot be combined.
    """
    return _Preparation(corpus, config, reads).data()


class _Preparation:
    """The normalised pairs of a corpus without empty sides, and their preparation."""

    def __init__(self, corpus: Corpus, config: DataConfig, reads: str = "") -> None:
        if corpus.unit is not None and (corpus.has_sources or config.normalise != "none"):
            raise HeadToHeadError(
                f"dataset '{config.dataset}' has the unit '{corpus.unit}' of a text; set has_sources=False in its "
                "corpus, and data.normalise: none"
            )
        self.corpus, self.config = corpus, config
        self.reads = reads
        self.normalise = NORMALISERS[config.normalise]
        self.dropped = {"empty": 0, "one_sided": 0, "too_long": 0}
        """The number of dropped pairs by reason."""
        self.text: dict[Side, list[str]] = {"source": [], "target": []}
        self.chosen: list[str | None] = []
        """The part that the dataset chose for each pair."""
        self.labelled: list[tuple[int, ...]] = []
        """Indices of the labelled words of each sequence; empty for pairs whose target follows its source."""
        groups = []
        for pair in corpus.pairs:
            source, target = self.normalise(pair.source), self.normalise(pair.target)
            if target and (source or not corpus.has_sources):
                self.text["source"].append(source)
                self.text["target"].append(target)
                self.chosen.append(pair.split)
                groups.append(pair.group)
                if pair.labelled is not None:
                    self.labelled.append(pair.labelled)
            else:
                self.dropped["one_sided" if source or target else "empty"] += 1
        self._check_not_empty(len(groups))
        if self.labelled:
            self._check_labelled(len(groups))
        if config.split in ("row", NOTHING_HELD_OUT):
            self.labels: Labels = np.arange(len(groups), dtype=np.int64)
        else:
            sides = [self.text["source"]] * corpus.has_sources + [
                self.text["target"]
            ] * corpus.targets_join
            self.labels = components(*sides, groups)
        self.asked = list(zip(self.text["source"], self.labelled or repeat(()), strict=False))
        """What each pair asks: its source, and the labelled words of a sequence."""
        self.references: dict[tuple[str, tuple[int, ...]], dict[str, None]] = {}
        """All distinct answers to what a pair asks, in order of appearance."""
        for asked, target in zip(self.asked, self.text["target"], strict=True):
            self.references.setdefault(asked, {})[target] = None

    def data(self) -> PreparedData:
        """Return the prepared data."""
        config, corpus, parts = self.config, self.corpus, self._divide()
        given, learned = None, None
        if config.vocabulary.file:
            given, text = read_tokenizer(config)
            learned = dict.fromkeys(SIDES, text)
        elif config.tokens == "subword":
            learned = self._learn(parts["train"])
        units = units_of(config, learned, corpus.unit)
        words = {
            part: {
                side: [units[side].split(self.text[side][row]) for row in rows.tolist()]
                for side in SIDES
            }
            for part, rows in parts.items()
        }
        if given is not None:
            vocabularies: dict[Side, Vocabulary] = dict.fromkeys(SIDES, given)
        elif corpus.words:
            plain = (word for word in corpus.words if word not in SPECIALS)
            vocabularies = dict.fromkeys(SIDES, Vocabulary([*SPECIALS, *plain]))
        else:
            parts_known = words.values() if corpus.is_closed else ()
            known = {
                side: {word for own in parts_known for text in own[side] for word in text}
                for side in SIDES
            }
            vocabularies = vocabularies_of(
                words["train"], units, config, corpus.vocabularies, known
            )
        tokenisers = tokenisers_of(config, units, vocabularies)
        splits = {}
        for part, rows in parts.items():
            own, labels = words[part], None
            if self.labelled:
                labels = [vocabularies["target"].encode(sentence) for sentence in own["target"]]
                own = {"source": [[] for _ in rows], "target": own["source"]}
            ids = {
                side: [tokenisers[side].ids(sentence) for sentence in own[side]] for side in SIDES
            }
            splits[part] = self._split(part, rows, ids, labels)
        data = PreparedData(tokenisers, splits, {}, data_hash(splits, tokenisers, self.reads))
        self._record(data, parts)
        if config.vocabulary.unknown == "drop":
            self._note_dropped_words(data, words["train"])
        self._record_upper_bound(data)
        return data

    def _check_not_empty(self, pairs: int) -> None:
        if not pairs:
            counts = ", ".join(
                f"{n} {reason.replace('_', '-')}" for reason, n in self.dropped.items() if n
            )
            raise HeadToHeadError(
                f"{self.config.dataset} has no usable pair with data.normalise: {self.config.normalise} "
                f"(dropped: {counts or 'none'}); check the file and data.max_words; a text is data.dataset: text"
            )

    def _check_labelled(self, pairs: int) -> None:
        """Raise an error for pairs without labels, or a setting with which a word is not one decoder input."""
        name, data, words = self.config.dataset, self.config, self.config.vocabulary
        if len(self.labelled) < pairs:
            raise HeadToHeadError(
                f"dataset '{name}' has pairs with and without labelled words; use one"
            )
        if wrong := next(filter(None, (pair.mislabelled for pair in self.corpus.pairs)), None):
            raise HeadToHeadError(
                f"dataset '{name}': a pair {wrong}; give ascending indices from 0, one of each label"
            )
        needed = {
            "normalise: none": data.normalise == "none",
            "tokens: word": data.tokens == "word",
            "vocabulary.file: null": words.file is None,
            "vocabulary.unknown: token": words.unknown != "drop",
            "source_boundaries: none": data.source_boundaries == "none",
            "target_boundaries: eos": data.target_boundaries != "none",
            "truncate_tokens: null": data.truncate_tokens is None,
        }
        for setting in (setting for setting, holds in needed.items() if not holds):
            raise HeadToHeadError(
                f"dataset '{name}' has labels of single words of a sequence; set data.{setting}"
            )

    def _divide(self) -> dict[str, Labels]:
        """Drop pairs that are too long, keep ``limit`` shuffled pairs beside given test parts, and split into parts."""
        config, seed = self.config, self.config.seed
        rows = np.arange(len(self.chosen), dtype=np.int64)
        if config.max_words is not None:
            lengths = [[len(text.split()) for text in self.text[side]] for side in SIDES]
            rows = rows[np.max(lengths, axis=0) <= config.max_words]
            self.dropped["too_long"] = len(self.chosen) - len(rows)
            self._check_not_empty(len(rows))
        if config.limit is not None:
            # Parts for validation and test that the dataset chose keep their size.
            held_out = np.array(
                [self.chosen[row] in ("valid", "test") for row in rows.tolist()], dtype=bool
            )
            others = rows[~held_out]
            if config.limit < len(others):
                rows = np.sort(
                    np.concatenate(
                        [rows[held_out], others[shuffled(len(others), seed)[: config.limit]]]
                    )
                )
        if config.split == NOTHING_HELD_OUT:
            parts = {"train": rows}
            for part, size in (("valid", config.valid), ("test", config.test)):
                # A fraction is one of all pairs.
                is_number = 1 <= size < len(rows)
                parts[part] = (
                    np.sort(rows[shuffled(len(rows), seed)[: int(size)]]) if is_number else rows
                )
            return parts
        chosen = [self.chosen[row] for row in rows]
        divided = divide(self.labels[rows], chosen, valid=config.valid, test=config.test, seed=seed)
        return {part: rows[divided[part]] for part in PARTS}

    def _learn(self, train: Labels) -> dict[Side, str]:
        """Return the subword merges of each side, learned on the training part."""
        vocabulary = self.config.vocabulary
        size = (vocabulary.max_size or DEFAULT_SUBWORDS) - len(SPECIALS) + 1
        texts = {side: [self.text[side][row] for row in train.tolist()] for side in SIDES}
        if vocabulary.shared:
            both = [*texts["source"], *texts["target"]]
            return dict.fromkeys(SIDES, subwords.learn(both, size, vocabulary.min_count))
        return {side: subwords.learn(texts[side], size, vocabulary.min_count) for side in SIDES}

    def _split(
        self,
        part: str,
        rows: Labels,
        ids: Mapping[Side, list[list[int]]],
        labels: list[list[int]] | None,
    ) -> Split:
        required: tuple[Side, ...] = (
            SIDES if self.corpus.has_sources and labels is None else ("target",)
        )
        indices = [
            index for index in range(len(rows)) if all(ids[side][index] for side in required)
        ]
        if len(indices) < len(rows):
            self.dropped["no_known_word"] = (
                self.dropped.get("no_known_word", 0) + len(rows) - len(indices)
            )
        if not indices:
            raise HeadToHeadError(
                f"no pair of {part} has a word of the vocabularies ({self.dropped['no_known_word']} pairs dropped); "
                "use data.vocabulary.unknown: token"
            )
        arrays = {
            side: [np.array(ids[side][index], dtype=np.int32) for index in indices]
            for side in SIDES
        }
        text = {side: [self.text[side][rows[index]] for index in indices] for side in SIDES}
        asked = [self.asked[rows[index]] for index in indices]
        references = [
            (
                own,
                *(
                    other
                    for other in (self.references[key] if key[0] and part != "train" else ())
                    if other != own
                ),
            )
            for key, own in zip(asked, text["target"], strict=True)
        ]
        of_targets = None
        if labels is not None:
            of_targets = [np.full_like(own, IGNORE_INDEX) for own in arrays["target"]]
            front = len(BOUNDARIES[self.config.target_boundaries][0])
            for number, index in enumerate(indices):
                labelled, words = self.labelled[rows[index]], text["source"][number].split()
                for position, label in zip(labelled, labels[index], strict=True):
                    of_targets[number][front + position] = label
                    words[position] = f"[{words[position]}]"
                text["source"][number] = " ".join(words)
        return Split(
            arrays["source"],
            arrays["target"],
            text["source"],
            text["target"],
            references,
            of_targets,
        )

    def _record(self, data: PreparedData, parts: Mapping[str, Labels]) -> None:
        """Write the ``data`` block of run records."""
        config, corpus, splits = self.config, self.corpus, data.splits
        train, test = splits["train"], splits["test"]
        is_text, texts = not (corpus.has_sources or self.labelled), self._inputs(splits, parts)
        # Blocks overlap by a token.
        streams = {
            part: np.concatenate([ids[:-1] for ids in split.target])
            for part, split in splits.items()
            if is_text
        }

        def part_in(other: str, part: str) -> float:
            """Return the fraction of a part that is also in another part."""
            return (
                text_leak(streams[other], streams[part])
                if is_text
                else leak(texts[other], texts[part])
            )

        leaked = part_in("train", "test")
        valid_leaks = {other: part_in(other, "valid") for other in ("train", "test")}
        leaked_shares = {"tokens": leaked}
        if not is_text:
            leaked_shares["tokens"] = leak(texts["train"], texts["test"], _label_counts(test))
            leaked_shares["examples"] = leak(
                texts["train"], texts["test"], _first_of_each_source(test)
            )
        data.record.update(
            dataset=config.dataset,
            data_hash=data.data_hash,
            licence=corpus.licence,
            citation=corpus.citation,
            languages=list(corpus.languages),
            split=config.split,
            normalise=config.normalise,
            tokens="tokenizer" if config.vocabulary.file else config.tokens,
            counts={part: len(split) for part, split in splits.items()},
            dropped=dict(self.dropped),
            vocabulary={side: len(data.vocabulary(side)) for side in SIDES},
            longest={
                side: max(len(ids) for split in splits.values() for ids in split.ids(side))
                for side in SIDES
            },
            longest_in_train=max(map(data.source_vocabulary.count_words, train.measured)),
            leak=leaked,
            leaky=leaked >= LEAKY_SHARE,
            leaked_shares=leaked_shares,
            valid_leaks=valid_leaks,
            # Without source ids, no encoder reads a bag of words.
            bag_of_words_upper_bound=bag_of_words_upper_bound(test.source_text, test.references)
            if any(map(len, test.source))
            else None,
            unk_rate={
                part: {side: _unk_rate(split.ids(side), data.vocabulary(side)) for side in SIDES}
                for part, split in splits.items()
            },
            notes=self._notes(parts),
        )
        if is_text:
            size = len(data.target_vocabulary)
            data.record["losses_without_model"] = losses_without_model(
                train.target, test.target, size
            )
        if self.labelled:
            counts = {
                part: np.concatenate(split.labels or []) != IGNORE_INDEX
                for part, split in splits.items()
            }
            data.record["labels"] = {part: int(is_label.sum()) for part, is_label in counts.items()}

    def _inputs(
        self, splits: Mapping[str, Split], parts: Mapping[str, Labels]
    ) -> dict[str, list[str]]:
        """Return the sources of each part, sequences without their labels; the targets where no source differs."""
        if self.labelled:
            return {
                part: [self.text["source"][row] for row in rows.tolist()]
                for part, rows in parts.items()
            }
        sources = {part: split.source_text for part, split in splits.items()}
        if len(set().union(*sources.values())) > 1:
            return sources
        return {part: split.target_text for part, split in splits.items()}

    def _notes(self, parts: Mapping[str, Labels]) -> list[str]:
        notes, config = list(self.corpus.notes), self.config
        pairs = [(pair.source, pair.target) for pair in self.corpus.pairs]
        removed = {
            letter
            for letter in set().union(*map("".join, pairs))
            if removes(self.normalise, letter)
        }
        found = [
            text
            for pair in pairs
            if (text := next((t for t in pair if not removed.isdisjoint(t)), None))
        ]
        if found:
            notes.append(
                f"data.normalise: {config.normalise} removes characters from {len(found):,} of {len(pairs):,} pairs, "
                f"for example '{found[0]}' becomes '{self.normalise(found[0])}'; set data.normalise: none to keep them"
            )
        if config.split == NOTHING_HELD_OUT:
            notes.append(
                "nothing is held out: the pairs of valid and test are also in train, so scores measure memorisation"
            )
        else:
            given = (part for part in ("valid", "test") if part in self.chosen)
            unused = (
                part
                for part in given
                if getattr(config, part) != DataConfig.model_fields[part].default
            )
            notes += [
                f"data.{part} has no effect: the dataset has its own pairs for {part}"
                for part in unused
            ]
        notes += [
            f"{n} {reason.replace('_', '-')} pairs were dropped"
            for reason, n in self.dropped.items()
            if n
        ]
        largest, total = (
            int(np.bincount(self.labels[parts["train"]]).max()),
            sum(map(len, parts.values())),
        )
        if largest >= LARGE_GROUP * total and largest > max(
            len(parts["valid"]), len(parts["test"])
        ):
            notes.append(
                f"the largest group of connected sentences holds {100 * largest / total:.1f} % of the pairs; "
                "it is too large for valid and test and is in train"
            )
        return notes

    def _note_dropped_words(
        self, data: PreparedData, words: Mapping[Side, list[list[str]]]
    ) -> None:
        """Note how many training words were removed from their sentences, with the most frequent of them."""
        for side in SIDES:
            known = data.vocabulary(side)
            if dropped := Counter(
                word for sentence in words[side] for word in sentence if word not in known
            ):
                data.record["notes"].append(
                    f"{dropped.total()} of {sum(map(len, words[side]))} {side} words in train were dropped silently, "
                    f"because the vocabulary lacks them, most often '{dropped.most_common(1)[0][0]}'"
                )

    def _record_upper_bound(self, data: PreparedData) -> None:
        """Record the largest exact match that the vocabularies permit on test, with a note if it is much below 1.

        A tokenizer file can also change references, for example their case; then every difference is noted.
        """
        test, record, has_file = (
            data.splits["test"],
            data.record,
            self.config.vocabulary.file is not None,
        )
        whole, most = (
            replace(data.tokenisers["target"], max_tokens=None),
            self.config.truncate_tokens,
        )
        lengths = [len(whole.ids(whole.unit.split(text))) for text in test.target_text if most]
        if cut := sum(length > (most or 0) for length in lengths):
            record["notes"].append(
                f"{cut} of {len(lengths)} test targets are truncated to {most} tokens; the test loss is that of the "
                "kept tokens, while exact match and BLEU use the whole references"
            )
        rows = list({text or row: row for row, text in enumerate(test.source_text)}.values())
        translations = vocabulary_bound_translations(data, rows)
        lost = [
            row
            for row, text in zip(rows, translations, strict=True)
            if text not in test.references[row]
        ]
        bound = record["vocabulary_upper_bound"] = 1 - len(lost) / len(rows)
        unknown = record["unk_rate"]["test"]
        if not (max(1 - bound, *unknown.values()) > MAX_UNKNOWN or (has_file and lost)):
            return
        if not self.corpus.has_sources:
            record["notes"].append(
                f"{100 * unknown['target']:.1f} % of the test tokens are unknown, and bits per byte count each as <unk>"
            )
            return
        example = f", for example '{test.target_text[lost[0]]}'" if lost else ""
        advice = (
            "set data.normalise as the tokenizer normalises"
            if has_file
            else "use data.tokens: subword"
        )
        record["notes"].append(
            f"the vocabulary cannot reproduce the references of {len(lost)} of {len(rows)} test sentences{example}, so "
            f"exact match cannot exceed {bound:.3f}; {100 * unknown['target']:.1f} % of the target tokens and "
            f"{100 * unknown['source']:.1f} % of the source tokens of test are unknown; {advice}, or check the split"
        )


def _label_counts(split: Split) -> list[float]:
    """Return the number of predicted tokens of each example."""
    if split.labels is None:
        return [float(len(ids) - 1) for ids in split.target]
    return [float((labels != IGNORE_INDEX).sum()) for labels in split.labels]


def _first_of_each_source(split: Split) -> list[float]:
    """Return 1 for the first example of each source and 0 for its repetitions, which scores do not count."""
    seen: set[str] = set()
    weights = []
    for source in split.source_text:
        weights.append(float(source == "" or source not in seen))
        seen.add(source)
    return weights


def _unk_rate(sequences: Sequence[Any], vocabulary: Vocabulary) -> float:
    """Return the fraction of <unk> among the words, without padding and boundary tokens."""
    if vocabulary.unk is None:
        return 0.0
    ids = np.concatenate(sequences)
    words = ids[
        ~np.isin(
            ids,
            [
                token
                for token in (vocabulary.pad, vocabulary.sos, vocabulary.eos)
                if token is not None
            ],
        )
    ]
    return float((words == vocabulary.unk).mean()) if len(words) else 0.0

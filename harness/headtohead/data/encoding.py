"""Encode a corpus as ids, the last step of preparation; ``prepare_corpus`` calls all steps in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headtohead.data import subwords
from headtohead.data.cleaning import Cleaned, clean, divide_pairs
from headtohead.data.notes import Facts, notes
from headtohead.data.prepared import Ids, PreparedData, Split, data_hash
from headtohead.data.record import data_record, unreachable_rows
from headtohead.data.splits import Labels
from headtohead.data.tokeniser import SIDES, Side, Tokeniser, Unit, tokenisers_of, units_of
from headtohead.data.vocabularies import Sentences, read_tokenizer, vocabularies_of
from headtohead.data.vocabulary import BOUNDARIES, IGNORE_INDEX, SPECIALS, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.schema.run_config import DataConfig

DEFAULT_SUBWORDS = 8000
"""Size of a vocabulary of subwords, special tokens included, without ``data.vocabulary.max_size``."""


def prepare_corpus(corpus: Corpus, config: DataConfig, reads: str = "") -> PreparedData:
    """Normalise, split and encode a corpus; ``reads`` is the `reads_hash` of its dataset, a part of the data hash.

    Raises:
        HeadToHeadError: If no pair is left, or a part is empty.
        UndefinedError: If the vocabulary options cannot be combined.
    """
    cleaned = clean(corpus, config)
    parts = divide_pairs(cleaned)
    file_vocabulary = None
    tokenizer_texts = None
    if config.vocabulary.file:
        file_vocabulary, text = read_tokenizer(config)
        tokenizer_texts = dict.fromkeys(SIDES, text)
    elif config.tokens == "subword":
        tokenizer_texts = _learn_subwords(cleaned, parts["train"])
    units = units_of(config, tokenizer_texts, corpus.unit)
    words: dict[str, Sentences] = {}
    for part, rows in parts.items():
        words[part] = _split_texts(cleaned, rows, units)
    if file_vocabulary is not None:
        vocabularies: dict[Side, Vocabulary] = dict.fromkeys(SIDES, file_vocabulary)
    else:
        vocabularies = _vocabularies(cleaned, words, units)
    tokenisers = tokenisers_of(config, units, vocabularies)
    encoder = _Encoder(cleaned, tokenisers, _references(cleaned.pairs))
    splits: dict[str, Split] = {}
    for part, rows in parts.items():
        splits[part] = encoder.split(part, rows, words[part])

    data = PreparedData(tokenisers, splits, {}, data_hash(splits, tokenisers, reads))
    unreachable = unreachable_rows(data)
    record = data_record(cleaned, parts, data, unreachable)
    facts = Facts(cleaned, parts, replace(data, record=record), words["train"], unreachable)
    record["notes"] = notes(facts)
    return replace(data, record=record)


def _learn_subwords(cleaned: Cleaned, train: Labels) -> dict[Side, str]:
    """Return the subword merges of each side, learned on the training part."""
    vocabulary = cleaned.config.vocabulary
    size = (vocabulary.max_size or DEFAULT_SUBWORDS) - len(SPECIALS) + 1
    source = cleaned.texts("source", train)
    target = cleaned.texts("target", train)
    if vocabulary.shared:
        merges = subwords.learn([*source, *target], size, vocabulary.min_count)
        return dict.fromkeys(SIDES, merges)
    return {
        "source": subwords.learn(source, size, vocabulary.min_count),
        "target": subwords.learn(target, size, vocabulary.min_count),
    }


def _split_texts(cleaned: Cleaned, rows: Labels, units: Mapping[Side, Unit]) -> Sentences:
    """Return the tokens of some pairs, by side."""
    tokens: Sentences = {}
    for side in SIDES:
        tokens[side] = [units[side].split(text) for text in cleaned.texts(side, rows)]
    return tokens


def _vocabularies(
    cleaned: Cleaned, words: Mapping[str, Sentences], units: Mapping[Side, Unit]
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side: the words that the corpus fixes, or those of the training part."""
    corpus = cleaned.corpus
    if corpus.words:
        fixed = [word for word in corpus.words if word not in SPECIALS]
        return dict.fromkeys(SIDES, Vocabulary([*SPECIALS, *fixed]))
    further: dict[Side, set[str]] = {side: set() for side in SIDES}
    if corpus.is_closed:
        for sentences in words.values():
            for side in SIDES:
                further[side].update(*sentences[side])
    return vocabularies_of(words["train"], units, cleaned.config, corpus.vocabularies, further)


Question = tuple[str, tuple[int, ...] | None]
"""What a pair asks for: its source, and the labelled words of a sequence."""


def _references(pairs: Sequence[Pair]) -> dict[Question, dict[str, None]]:
    """Return all distinct targets of each question, in order of appearance."""
    references: dict[Question, dict[str, None]] = {}
    for pair in pairs:
        references.setdefault((pair.source, pair.labelled), {})[pair.target] = None
    return references


@dataclass(frozen=True)
class _Encoder:
    """The conversion of the pairs of a part, with their tokens, to a `Split`."""

    cleaned: Cleaned
    tokenisers: Mapping[Side, Tokeniser]
    references: Mapping[Question, Mapping[str, None]]

    def split(self, part: str, rows: Labels, words: Sentences) -> Split:
        """Return the split of a part; pairs of which a side has no ids are dropped and counted.

        Raises:
            HeadToHeadError: If no pair is left.
        """
        if self.cleaned.is_labelled:
            return self._labelled_split(part, rows, words)
        source = self._ids("source", words["source"])
        target = self._ids("target", words["target"])
        dropped = self.cleaned.dropped
        split = Split([], [], [], [], [], [])
        groups = _numbered(self.cleaned.groups[rows])
        pairs = [self.cleaned.pairs[row] for row in rows.tolist()]
        for pair, group, source_ids, target_ids in zip(pairs, groups, source, target, strict=True):
            lacks_source = self.cleaned.corpus.has_sources and not len(source_ids)
            if lacks_source or not len(target_ids):
                dropped["no_known_word"] = dropped.get("no_known_word", 0) + 1
                continue
            split.source.append(source_ids)
            split.target.append(target_ids)
            split.source_text.append(pair.source)
            split.target_text.append(pair.target)
            split.references.append(self._accepted(pair, part))
            split.groups.append(group)
        if not len(split):
            raise HeadToHeadError(
                f"no pair of {part} has a word of the vocabularies ({dropped['no_known_word']} pairs dropped); "
                "use data.vocabulary.unknown: token"
            )
        return split

    def _labelled_split(self, part: str, rows: Labels, words: Sentences) -> Split:
        """Return the split of sequences with labels: the decoder reads the sources, and the targets are the labels.

        No sequence is dropped: the settings of labelled sequences give every word an id.
        """
        vocabulary = self.tokenisers["target"].vocabulary
        label_ids = [vocabulary.encode(sentence) for sentence in words["target"]]
        sequences = self._ids("target", words["source"])
        labels: list[Ids] = []
        groups = _numbered(self.cleaned.groups[rows])
        split = Split([], sequences, [], [], [], groups, labels)
        pairs = [self.cleaned.pairs[row] for row in rows.tolist()]
        for pair, sequence, ids in zip(pairs, sequences, label_ids, strict=True):
            split.source.append(np.array([], dtype=np.int32))
            split.source_text.append(_with_brackets(pair))
            split.target_text.append(pair.target)
            split.references.append(self._accepted(pair, part))
            labels.append(self._positioned(pair, sequence, ids))
        return split

    def _ids(self, side: Side, sentences: Sequence[Sequence[str]]) -> list[Ids]:
        tokeniser = self.tokenisers[side]
        return [np.array(tokeniser.ids(sentence), dtype=np.int32) for sentence in sentences]

    def _positioned(self, pair: Pair, sequence: Ids, ids: Sequence[int]) -> Ids:
        """Return the label of every position of a sequence, `IGNORE_INDEX` where there is none."""
        before, _ = BOUNDARIES[self.cleaned.config.target_boundaries]
        labels = np.full_like(sequence, IGNORE_INDEX)
        for word, label in zip(pair.labelled or (), ids, strict=True):
            labels[len(before) + word] = label
        return labels

    def _accepted(self, pair: Pair, part: str) -> tuple[str, ...]:
        """Return the references of a pair: its own target, and outside of train those of the same question."""
        if part == "train" or not pair.source:
            return (pair.target,)
        targets = self.references[pair.source, pair.labelled]
        further = [target for target in targets if target != pair.target]
        return (pair.target, *further)


def _numbered(groups: Labels) -> list[int]:
    """Return the groups of pairs with numbers from 0, in the order of their numbers in the corpus."""
    _, numbers = np.unique(groups, return_inverse=True)
    in_this_part: list[int] = numbers.reshape(-1).tolist()
    return in_this_part


def _with_brackets(pair: Pair) -> str:
    """Return the text of a sequence with its labelled words in brackets."""
    words = pair.source.split()
    for index in pair.labelled or ():
        words[index] = f"[{words[index]}]"
    return " ".join(words)

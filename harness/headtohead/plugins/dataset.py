"""Datasets: base class, and the examples that a dataset returns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from headtohead.plugins.entry import Entry, Options
from headtohead.schema.metric import Metric

TextUnit = Literal["text-character", "text-byte", "text-subword", "text-symbol", "text-number"]
"""What a token of a text is: a character, a byte, a token of byte-level byte-pair encoding, the longest of given
symbols, or the number of a token whose text is not known."""


@dataclass(frozen=True)
class Pair:
    """A source sentence and a translation of it, or a sequence and labels of some of its words, as raw text.

    Args:
        source: The sentence, or the sequence.
        target: Its translation, or the labels.
        group: Pairs with the same group are assigned to the same part by a grouped split.
        split: ``"train"``, ``"valid"`` or ``"test"`` for a dataset with predefined splits, else
            None.
        labelled: Ascending indices of the source words that have the target's words as labels. A decoder-only model
            reads the source alone and predicts each label from the words up to the labelled one. None for a pair whose
            target follows its source.
    """

    source: str
    target: str
    group: str
    split: str | None = None
    labelled: tuple[int, ...] | None = None

    @property
    def mislabelled(self) -> str | None:
        """Why the labels do not belong to the labelled words; None if they do, and without labels."""
        words, labels, labelled = len(self.source.split()), len(self.target.split()), self.labelled
        if labelled is None or [*sorted({*labelled} & {*range(words)}), labels] == [
            *labelled,
            len(labelled),
        ]:
            return None
        return f"has {labels} labels for the words {labelled} of {words}"


def hash_pairs(pairs: Iterable[Pair]) -> str:
    """Return the sha256 of text, group, split and labelled words of all pairs, in order."""
    digest = hashlib.sha256()
    for pair in pairs:
        fields: tuple[str, ...] = (pair.source, pair.target, pair.group, pair.split or "")
        if pair.labelled is not None:
            fields += (" ".join(map(str, pair.labelled)),)
        digest.update("\x1f".join(fields).encode("utf-8", "surrogatepass") + b"\x1e")
    return digest.hexdigest()


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs in a fixed order, with their origin.

    Args:
        pairs: The sentence pairs.
        licence: Licence of the data.
        citation: Where the data was published.
        languages: Names of the source and the target language.
        notes: Facts for the report, a sentence each, such as the number of skipped rows or the
            upper bound of a bag-of-words encoder.
        vocabularies: Fixed ids by word, for source and target, used with
            ``data.vocabulary.ids: printed``. The ids of each, special tokens included, start at 0.
        words: Words of both vocabularies in the order of their ids, after the special tokens, if the tokens of a text
            depend on it. Default: the words of the training part, counted.
        is_closed: Whether the vocabularies also have the words that only validation and test contain, after those of
            the training part. True for computed tasks, because their alphabet is known.
        targets_join: Whether a shared target joins the groups of its pairs. False for tasks in
            which different sources have the same target, such as sums.
        has_sources: False for text without sources, which only a decoder-only model reads.
        unit: What a token of such a text is. The target of each pair then has its tokens in the alphabet of bytes,
            separated by spaces, and every text that a trained model reads or writes is converted by this unit. Default:
            tokens are words, or what ``data.tokens`` selects.
        passages: Beginning and end of each passage of a text by part, in characters or token ids, for the record. The
            pairs of a passage have the same group.
        data_hash: sha256 of the pairs, by `hash_pairs`.
    """

    pairs: Sequence[Pair]
    licence: str
    citation: str
    languages: tuple[str, str]
    notes: tuple[str, ...] = field(default=())
    vocabularies: tuple[Mapping[str, int], Mapping[str, int]] | None = None
    words: Sequence[str] = ()
    is_closed: bool = False
    targets_join: bool = True
    has_sources: bool = True
    unit: TextUnit | None = None
    passages: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    data_hash: str = field(init=False)

    def __post_init__(self) -> None:
        # An iterator can be read only once.
        object.__setattr__(self, "pairs", tuple(self.pairs))
        object.__setattr__(self, "data_hash", hash_pairs(self.pairs))


class Dataset(Entry):
    """A source of examples, selected by ``data.dataset`` in an experiment file.

    Override ``load``, and ``cache_key`` where loading is slow. ``load`` is called when an
    experiment is planned or run and its prepared data is not cached. Normalisation, splitting,
    vocabularies and batches are done by the harness.
    """

    splits: ClassVar[tuple[str, ...]] = ("grouped", "row")
    """Values of ``data.split`` for this dataset, the default first.

    Every dataset also allows ``nothing-held-out``: the corpus of the default split is the training
    part, and validation and test pairs are taken from it.
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Metrics of outputs, the default primary metric first; default: exact match, BLEU and chrF."""

    normalise: ClassVar[str] = "unicode"
    """Default of ``data.normalise`` for this dataset."""

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of fields by section, such as ``{"evaluate": {"decode": "none"}}``, where a file gives none."""

    unused: ClassVar[Mapping[str, str]] = {}
    """Fields of ``data`` and ``data.vocabulary`` that the dataset does not use, with what to do instead; an experiment
    may not set them."""

    of_split: ClassVar[Mapping[str, str]] = {}
    """Options that have an effect with one value of ``data.split`` only, with that value."""

    @classmethod
    def load(cls, options: Options, split: str, cache: Path) -> Corpus:
        """Return the corpus, read from files or generated.

        The same arguments must always give the same pairs in the same order. The harness divides
        pairs without a predefined ``split`` among the parts that have no predefined pairs.

        Args:
            options: A validated instance of ``cls.Options``.
            split: A value of ``cls.splits``. For values other than grouped and row, set
                ``Pair.split``.
            cache: Folder for downloads, shared by all experiments. It may not exist yet.

        Raises:
            HeadToHeadError: If a file or the network fails, or the content is invalid. The message
                is a single line.
        """
        raise NotImplementedError

    @classmethod
    def given_parts(cls, options: Options) -> frozenset[str]:
        """Return the parts that pairs have in every split, for example those of separate files; by default none."""
        return frozenset()

    @classmethod
    def cache_key(cls, options: Options, split: str, cache: Path) -> str | None:
        """Return a key that changes whenever the result of ``load`` would change, at low cost.

        Prepared data is read from the cache as long as the key, the options and the plugin's source
        are the same. Examples: size and modification time of a file, checksum of a download. None,
        the default, calls ``load`` every time, and every field of the corpus counts.
        """
        return None

    @classmethod
    def require_valid(cls) -> None:
        """Also require the names of the splits."""
        super().require_valid()
        if not cls.splits or not all(isinstance(split, str) for split in cls.splits):
            raise TypeError(f"splits is {cls.splits!r}; expected at least one name")

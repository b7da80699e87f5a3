"""Datasets: options in, sentence pairs with a group key out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from headtohead.plugins.entry import Entry, Options


@dataclass(frozen=True)
class Pair:
    """One source sentence and one translation of it, as raw text.

    Pairs that share ``group`` never end up on both sides of a grouped split. ``split`` is set by a
    dataset that offers named splits of its own: ``"train"``, ``"valid"`` or ``"test"``.
    """

    source: str
    target: str
    group: str
    split: str | None = None


@dataclass(frozen=True)
class Corpus:
    """What a dataset returns: pairs in a fixed order, and where they came from.

    ``data_hash`` is a sha256 over the pairs (text, group and split, in order). ``notes`` are
    facts for the report, one sentence each (rows skipped, ceiling of a bag-of-words encoder).
    ``vocabularies`` are fixed tables of word to id, source and target, for those who ask for
    ``data.vocabulary.ids: printed``; each numbers its words, special tokens included, from 0.
    ``targets_join`` is False where different sources rightly share a target (a sum, a looked-up
    value): a shared target then makes no group.
    """

    pairs: Sequence[Pair]
    data_hash: str
    licence: str
    citation: str
    languages: tuple[str, str]
    notes: tuple[str, ...] = field(default=())
    vocabularies: tuple[Mapping[str, int], Mapping[str, int]] | None = None
    targets_join: bool = True


class Dataset(Entry):
    """A source of sentence pairs, looked up by ``data.dataset``; its options stand beside it."""

    splits: ClassVar[tuple[str, ...]] = ("grouped", "row")
    """Names that ``data.split`` may take with this dataset; the first one is the default.

    ``nothing-held-out`` is allowed beside them everywhere: the corpus of the first one, all of it
    in train, and the other parts taken from it.
    """

    normalise: ClassVar[str] = "unicode"
    """The value of ``data.normalise`` when the file does not name one."""

    @classmethod
    def load(cls, options: Options, split: str, cache: Path) -> Corpus:
        """Read or generate the corpus.

        Pairs without a ``split`` of their own are divided by the harness; a part that the dataset
        fills itself is not drawn from.

        Args:
            options: A validated instance of ``cls.Options``.
            split: One of ``cls.splits``; those other than grouped, row and nothing-held-out set
                ``Pair.split``.
            cache: Folder for downloads, shared by all experiments; it may not exist yet.

        Raises:
            HeadToHeadError: For every fault of file, network or content, in one line.
        """
        raise NotImplementedError

    @classmethod
    def stamp(cls, options: Options, split: str, cache: Path) -> str | None:
        """Return a cheap mark of what ``load`` would return, or None to always load it.

        Prepared data is taken from the cache while its mark stays the same: a file's size and
        time, or the checksum of a download.
        """
        return None

"""Corpora, splits, vocabularies: everything between a dataset's name and the ids of a batch."""

from __future__ import annotations

import os
from pathlib import Path

from headtohead.data.ceiling import bag_of_words_ceiling
from headtohead.data.corpus import hash_pairs
from headtohead.data.download import fetch, fetched_sha256
from headtohead.data.drawn import LengthOptions, Question, SymbolOptions, Task, drawn_corpus, symbol_corpus
from headtohead.data.prepared import PreparedData, Side, Split
from headtohead.data.preparing import prepare, prepare_corpus, prepared_file, read_corpus
from headtohead.data.reading import file_sha256, read_lines
from headtohead.data.store import read_prepared
from headtohead.data.vocabulary import EOS, PAD, SOS, SPECIALS, UNK, Vocabulary

__all__ = [
    "EOS",
    "PAD",
    "SOS",
    "SPECIALS",
    "UNK",
    "LengthOptions",
    "PreparedData",
    "Question",
    "Side",
    "Split",
    "SymbolOptions",
    "Task",
    "Vocabulary",
    "bag_of_words_ceiling",
    "cache_root",
    "drawn_corpus",
    "fetch",
    "fetched_sha256",
    "file_sha256",
    "hash_pairs",
    "prepare",
    "prepare_corpus",
    "prepared_file",
    "read_corpus",
    "read_lines",
    "read_prepared",
    "symbol_corpus",
]


def cache_root() -> Path:
    """Return the folder for downloads and prepared data: H2H_CACHE, or ~/.cache/headtohead."""
    named = os.environ.get("H2H_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "headtohead"

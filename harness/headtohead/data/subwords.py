"""Subwords by byte-pair encoding, learned on the training part only (extra ``subwords``).

Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from headtohead.data.vocabulary import SPECIALS, UNK, WORD_START
from headtohead.errors import HeadToHeadError
from headtohead.schema.run_config import VocabularyConfig

DEFAULT_SIZE = 8000
UNKNOWN = SPECIALS[UNK]


def learn(texts: Sequence[str], asked: VocabularyConfig) -> str:
    """Return the merges learned on normalised texts, as the JSON of a ``tokenizers`` tokeniser.

    ``max_size`` bounds the pieces, special tokens included (8,000 where it is not given), and
    pairs of pieces seen less than ``min_count`` times are not merged.

    Raises:
        HeadToHeadError: If the package tokenizers is not installed.
    """
    package = _package()
    tokenizer = package.Tokenizer(package.models.BPE(unk_token=UNKNOWN, fuse_unk=True))
    tokenizer.pre_tokenizer = package.pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always")
    trainer = package.trainers.BpeTrainer(
        vocab_size=(asked.max_size or DEFAULT_SIZE) - len(SPECIALS) + 1,
        special_tokens=[UNKNOWN],
        min_frequency=asked.min_count,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    merges: str = tokenizer.to_str()
    return merges


def pieces(merges: str, text: str) -> list[str]:
    """Return the pieces of a normalised text; joined, with ▁ read as a space, they give it back."""
    found: list[str] = _tokenizer(merges).encode(text).tokens
    return found


def inventory(merges: str) -> list[str]:
    """Return every piece that the merges can give."""
    return sorted(_tokenizer(merges).get_vocab())


@lru_cache(maxsize=8)
def _tokenizer(merges: str) -> Any:
    return _package().Tokenizer.from_str(merges)


def _package() -> ModuleType:
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise HeadToHeadError(
            "data.tokens: subword needs the package tokenizers; pip install 'headtohead[subwords]', or use tokens: word"
        ) from error

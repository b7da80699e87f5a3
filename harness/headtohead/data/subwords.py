"""Subwords by byte-pair encoding, learned on the training part only.

Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from headtohead.data.vocabulary import SPECIALS, UNK, WORD_START
from headtohead.schema.run_config import VocabularyConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_SIZE = 8000
UNKNOWN = SPECIALS[UNK]


def learn(texts: Sequence[str], config: VocabularyConfig) -> str:
    """Learn merges on normalised texts; return the JSON of a ``tokenizers`` tokeniser.

    ``max_size`` is the maximum number of subwords, special tokens included (default 8,000). Pairs
    of subwords that occur less than ``min_count`` times are not merged.
    """
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN, fuse_unk=True))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=(config.max_size or DEFAULT_SIZE) - len(SPECIALS) + 1,
        special_tokens=[UNKNOWN],
        min_frequency=config.min_count,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    merges: str = tokenizer.to_str()
    return merges


def pieces(merges: str, text: str) -> list[str]:
    """Return the subwords of a normalised text; concatenated, with ▁ replaced by a space, they are the text."""
    tokens: list[str] = load_tokenizer(merges).encode(text, add_special_tokens=False).tokens
    return tokens


def decode(tokenizer: str, ids: Sequence[int]) -> str:
    """Return the text of ids, decoded by a ``tokenizer.json`` with its special tokens as text."""
    text: str = load_tokenizer(tokenizer).decode(ids, skip_special_tokens=False)
    return " ".join(text.split())


def inventory(merges: str) -> list[str]:
    """Return all subwords that the merges can produce."""
    return sorted(load_tokenizer(merges).get_vocab())


@lru_cache(maxsize=8)
def load_tokenizer(text: str) -> Tokenizer:
    """Return the tokenizer of a JSON text, without padding and truncation."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer

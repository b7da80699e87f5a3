"""Subwords by byte-pair encoding, learned on the training part only.

Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from headtohead.data.byte_alphabet import tokenizers_package
from headtohead.errors import HeadToHeadError

UNKNOWN = "<unk>"
WORD_START = "▁"
MAX_GROWTH = 100
"""Maximum factor by which the replacements of a tokenizer file can lengthen a text."""


def learn(texts: Sequence[str], size: int, min_count: int) -> str:
    """Learn merges on normalised texts; return the JSON of a ``tokenizers`` tokeniser.

    ``size`` is the maximum number of subwords, <unk> included. Pairs of subwords that occur less than ``min_count``
    times are not merged.
    """
    tokenizers = tokenizers_package()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN, fuse_unk=True))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(
        replacement=WORD_START, prepend_scheme="always"
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=[UNKNOWN], min_frequency=min_count, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    merges: str = tokenizer.to_str()
    return merges


def pieces(text: str) -> list[str]:
    """Return the subwords of a tokeniser."""
    return sorted(load_tokenizer(text).get_vocab())


@lru_cache(maxsize=8)
def load_tokenizer(text: str) -> Any:
    """Return the tokenizer of a JSON text, without padding and truncation.

    Raises:
        HeadToHeadError: If its normalizer or its decoder can lengthen a text more than `MAX_GROWTH` times.
    """
    tokenizers = tokenizers_package()
    parts = json.loads(text)
    for name in ("normalizer", "decoder"):
        growth = _growth(parts.get(name))
        if growth > MAX_GROWTH:
            raise HeadToHeadError(
                f"the tokenizer is refused: its {name} can lengthen a text {growth:.2g} times, more than {MAX_GROWTH}; "
                "remove steps of type Replace"
            )
    tokenizer = tokenizers.Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _growth(step: Any) -> float:
    """Return the largest factor by which the replacements in a step of a tokenizer file can lengthen a text."""
    if not isinstance(step, dict):
        return 1.0
    if step.get("type") == "Replace":
        added = len(step["content"])
        pattern = step["pattern"].get("String")
        if not pattern:  # a regular expression can match the empty text before every character
            return 1.0 + added
        return max(1.0, added / len(pattern))
    inner_steps = [*step.get("normalizers", ()), *step.get("decoders", ())]
    return math.prod(_growth(inner) for inner in inner_steps)

"""Sizes of models, with their pairs and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PAD, SOS, EOS = 0, 2, 3
DROPOUT = 0.1
MAX_POSITIONS = 256
"""Number of rows of the tables of positions."""


@dataclass(frozen=True)
class Size:
    """Size of a model, learning rate, tokens per batch, and fields of the sections ``data`` and ``train``."""

    d_model: int
    heads: int
    layers: int
    d_ff: int
    lr: float
    batch_tokens: int
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.d_model}/{self.heads}/{self.layers}/{self.d_ff}"


SIZES = [
    Size(
        128,
        4,
        2,
        512,
        lr=5e-4,
        batch_tokens=2048,
        data={"limit": 60_000, "max_words": 40, "vocabulary": {"max_size": 8000}},
    ),
    Size(
        512,
        8,
        6,
        2048,
        lr=1e-4,
        batch_tokens=640,
        data={"split": "nothing-held-out", "normalise": "ascii-fold", "valid": 256, "test": 128},
    ),
]
"""The second is notebook 3's, with all pairs, all words, and about 64 pairs per batch."""

"""The hash of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators", figure 16)."""

from __future__ import annotations

import torch
from torch import Tensor

GAMMA = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = 2**64


def signed(word: int) -> int:
    """Return an unsigned word of 64 bits as the int64 with the same bits."""
    return (word + WORD // 2) % WORD - WORD // 2


def mixed(word: int) -> int:
    """Return the SplitMix64 hash of a word."""
    word = (word ^ (word >> 30)) * FIRST % WORD
    word = (word ^ (word >> 27)) * SECOND % WORD
    return word ^ (word >> 31)


def mix_(words: Tensor) -> Tensor:
    """Replace int64 words by their SplitMix64 hashes, in place."""
    moved = torch.empty_like(words)
    for shift, factor in ((30, FIRST), (27, SECOND), (31, None)):
        torch.bitwise_right_shift(words, shift, out=moved)
        # The shift of int64 copies the sign bit; the mask removes the copies.
        words.bitwise_xor_(moved.bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            words.mul_(signed(factor))
    return words

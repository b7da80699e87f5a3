"""The three attention roles of an encoder-decoder Transformer."""

from typing import Literal, get_args

Role = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, and target queries over source keys."""

ROLES: tuple[str, ...] = get_args(Role)

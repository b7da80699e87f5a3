"""The three attention roles of an encoder-decoder Transformer."""

ROLES: tuple[str, ...] = ("encoder", "decoder", "cross")
"""Encoder self-attention, decoder self-attention, and target queries over source keys."""

"""The three places of attention in an encoder-decoder Transformer."""

ROLES: tuple[str, ...] = ("encoder", "decoder", "cross")
"""Where attention happens: encoder self, decoder self, and target queries over source keys."""

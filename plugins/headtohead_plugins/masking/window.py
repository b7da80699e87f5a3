"""A window: a query sees keys that stand near it, in the decoder the latest ones.

Paper: I. Beltagy, M. E. Peters, A. Cohan. "Longformer: The Long-Document Transformer", 2020,
arXiv:2004.05150, section 3.1 (sliding window). Padding is masked too: a window as wide as the
sentence is ``padding`` in the encoder and ``padding-causal`` in the decoder.
Departs from the paper: w counts the keys of one side in the encoder (2w + 1 in all), and the query
itself with those before it in the decoder (w in all).
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from headtohead import Masking, Setting, hookimpl
from headtohead import Options as BaseOptions


class WindowOptions(BaseOptions):
    """How far a query sees."""

    width: int = Field(8, ge=1, description="w: |i - j| <= w in the encoder, 0 <= i - j < w in the decoder")


class Window(Masking):
    """Keeps key j < length for query i where |i - j| <= w; in the decoder, where 0 <= i - j < w."""

    Options = WindowOptions
    options: WindowOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "padding"}

    def role_properties(self, role: str) -> frozenset[str]:
        """Return that padding is hidden, in the decoder the future too."""
        hidden = {"hides-padding", "hides-future"} if role == "decoder" else {"hides-padding"}
        return frozenset(hidden)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse cross-attention, whose queries and keys are places of two sentences."""
        if setting.role != "cross":
            return None
        return "window measures distances within one sentence, and cross-attention has two; set masking.cross: padding"

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor:
        """Return what is near and no padding, ``[batch, query, key]``."""
        width = self.options.width
        behind = query_positions[:, None] - key_positions[None, :]
        near = (behind >= 0) & (behind < width) if role == "decoder" else behind.abs() <= width
        return near.unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        """Return the same for one query and one key."""
        width = self.options.width
        near = 0 <= query - key < width if role == "decoder" else abs(query - key) <= width
        return near and key < length


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    """Register ``window``."""
    return {"window": Window}

"""A sliding window: a query attends to the nearest keys, in the decoder to the nearest earlier ones.

Paper: I. Beltagy, M. E. Peters, A. Cohan. "Longformer: The Long-Document Transformer", 2020,
arXiv:2004.05150, section 3.1 (sliding window). Padding is masked too: a window as wide as the
sentence is ``padding`` in the encoder and ``padding-causal`` in the decoder.
Departs from the paper: in the encoder, w is the number of keys on each side (2w + 1 in all); in the
decoder, it is the number of keys including the query's own position (w in all).
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Masking, Setting, hookimpl
from headtohead.plugin import Options as BaseOptions


class WindowOptions(BaseOptions):
    """Width of the window."""

    width: int = Field(
        8,
        ge=1,
        le=100_000,
        description="w: |i - j| <= w in the encoder, 0 <= i - j < w in the decoder",
    )


class Window(Masking):
    """Query i attends to key j < length where |i - j| <= w; in the decoder, where 0 <= i - j < w."""

    phrase = "a window of {width} tokens"
    Options = WindowOptions
    options: WindowOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "padding"}

    def role_properties(self, role: str) -> frozenset[str]:
        """Declare ``hides-padding``, and ``hides-future`` in the decoder."""
        if role == "decoder":
            return frozenset({"hides-padding", "hides-future"})
        return frozenset({"hides-padding"})

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Exclude cross-attention, where queries and keys are positions in different sentences."""
        if setting.role != "cross":
            return None
        return (
            "window is defined for distances within a sentence, and cross-attention has two sentences; "
            "set masking.cross: padding"
        )

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor:
        """Return near keys without padding, ``[batch, query, key]``."""
        width = self.options.width
        behind = query_positions[:, None] - key_positions[None, :]
        if role == "decoder":
            near = (behind >= 0) & (behind < width)
        else:
            near = behind.abs() <= width
        is_token = key_positions[None, None, :] < lengths[:, None, None]
        return near.unsqueeze(0) & is_token

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        width = self.options.width
        behind = query - key
        if key >= length:
            return False
        if role == "decoder":
            return 0 <= behind < width
        return abs(behind) <= width


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"window": Window}

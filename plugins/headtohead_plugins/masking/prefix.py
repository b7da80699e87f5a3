"""All queries attend to the first tokens; the rest of the mask is causal.

Paper: C. Raffel et al. "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer". JMLR 2020, arXiv:1910.10683, section 3.2.1 (causal with prefix). Padding is masked
too: a prefix of 0 or 1 is ``padding-causal``.
In the decoder of a translation model, the prefix is not a prompt but the first tokens of the
translation. Earlier tokens attend to them and predict them, so teacher-forced metrics are invalid at
these positions, and decoding cannot use a cache.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Masking, hookimpl
from headtohead.plugin import Options as BaseOptions


class PrefixOptions(BaseOptions):
    """Length of the prefix."""

    length: int = Field(
        4, ge=0, le=100_000, description="p: tokens that every query attends to, <sos> included"
    )


class Prefix(Masking):
    """Query i attends to key j < length where j <= i or j < p."""

    phrase = "a prefix mask[ of {length} tokens]"
    Options = PrefixOptions
    options: PrefixOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "padding", "cross": "padding"}

    def role_properties(self, role: str) -> frozenset[str]:
        """Declare ``hides-future`` only for a prefix of at most <sos>."""
        if self.options.length > 1:
            return frozenset({"hides-padding"})
        return frozenset({"hides-padding", "hides-future", "shows-the-rest"})

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor:
        """Return ``(j <= i or j < p) and j < length``, ``[batch, query, key]``."""
        i = query_positions[:, None]
        j = key_positions[None, :]
        causal = j <= i
        in_prefix = key_positions < self.options.length
        visible = causal | in_prefix
        is_token = key_positions[None, None, :] < lengths[:, None, None]
        return visible.unsqueeze(0) & is_token

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        if key >= length:
            return False
        return key <= query or key < self.options.length


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"prefix": Prefix}

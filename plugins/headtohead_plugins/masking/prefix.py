"""The first tokens are seen by all, the others by those that come after them.

Paper: C. Raffel et al. "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer". JMLR 2020, arXiv:1910.10683, section 3.2.1 (causal with prefix). Padding is masked
too: a prefix of 0 or 1 is ``padding-causal``.
In the decoder of a translator the prefix is no prompt but the first words of the answer: each is
shown to those before it, which are to predict it, so teacher-forced metrics of these places mean
nothing, and decoding cannot keep a cache.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from headtohead import Masking, hookimpl
from headtohead import Options as BaseOptions


class PrefixOptions(BaseOptions):
    """How much is seen by all."""

    length: int = Field(4, ge=0, description="p: tokens that every query sees, <sos> counted")


class Prefix(Masking):
    """Keeps key j < length for query i where j <= i or j < p."""

    Options = PrefixOptions
    options: PrefixOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "padding", "cross": "padding"}

    def role_properties(self, role: str) -> frozenset[str]:
        """Return that padding is hidden; the future too where the prefix is <sos> at most."""
        if self.options.length > 1:
            return frozenset({"hides-padding"})
        return frozenset({"hides-padding", "hides-future", "shows-the-rest"})

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor:
        """Return ``(j <= i or j < p) and j < length``, ``[batch, query, key]``."""
        before = key_positions[None, :] <= query_positions[:, None]
        seen = before | (key_positions < self.options.length)
        return seen.unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        """Return the same for one query and one key."""
        return (key <= query or key < self.options.length) and key < length


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    """Register ``prefix``."""
    return {"prefix": Prefix}

"""Padding and later keys are masked.

Source: the decoder mask of notebooks 1, 2 and 3. Without roles, the name applies to the decoder;
encoder and cross-attention then have ``padding``.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from headtohead.plugin import Masking, hookimpl


class PaddingCausal(Masking):
    """Query i attends to key j where j <= i and j < length."""

    phrase = "a padding and causal mask"
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "padding", "cross": "padding"}
    properties = frozenset({"hides-future", "hides-padding", "shows-the-rest"})

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor:
        """Return ``j <= i and j < length``, ``[batch, query, key]``."""
        i = query_positions[:, None]
        j = key_positions[None, :]
        causal = j <= i
        is_token = key_positions[None, None, :] < lengths[:, None, None]
        return causal.unsqueeze(0) & is_token

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        return key <= query and key < length


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"padding-causal": PaddingCausal}

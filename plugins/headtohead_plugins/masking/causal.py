"""Later keys are masked, padding is not.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.2.3.
Without roles, the name applies to the decoder; encoder and cross-attention then attend to padding.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from headtohead.plugin import Masking, hookimpl


class Causal(Masking):
    """Query i attends to key j where j <= i."""

    phrase = "a causal mask"
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "none", "cross": "none"}
    properties = frozenset({"hides-future", "shows-the-rest"})

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor:
        """Return ``j <= i``, ``[1, query, key]``."""
        i = query_positions[:, None]
        j = key_positions[None, :]
        causal = j <= i
        return causal.unsqueeze(0)

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        return key <= query


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"causal": Causal}

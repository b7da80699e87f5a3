"""Padding is masked, later keys are not.

Source: the source mask of notebooks 1, 2 and 3. A. Vaswani et al. "Attention Is All You Need".
NeurIPS 2017, arXiv:1706.03762, does not specify a padding mask.
"""

from torch import Tensor

from headtohead.plugin import Masking, hookimpl


class PaddingMask(Masking):
    """Every query attends to key j where j < length, in the decoder to later keys too."""

    phrase = "a padding mask"
    properties = frozenset({"hides-padding", "shows-the-rest"})

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor:
        """Return ``j < length``, ``[batch, query, key]``."""
        is_token = key_positions[None, None, :] < lengths[:, None, None]
        queries = query_positions.shape[0]
        return is_token.expand(-1, queries, -1)

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        return key < length


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"padding": PaddingMask}

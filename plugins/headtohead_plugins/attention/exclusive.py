"""The output of a head without its component along the query's own value.

Paper: S. Zhai. "Exclusive Self Attention", 2026, arXiv:2603.09078: z_i = y_i - (y_i · v_i) v_i / ‖v_i‖²,
so that a head returns what other tokens add to the token itself. Self-attention only: in
cross-attention, a query has no value.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from headtohead.plugin import Attention, HeadOptions, Setting, hookimpl
from headtohead.plugin import Options as BaseOptions


class Exclusive(Attention):
    """Split heads with outputs orthogonal to the value of their own token."""

    phrase = "exclusive self-attention"
    Options = HeadOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Exclude cross-attention."""
        if setting.role != "cross":
            return None
        return "exclusive requires values of the queries, which cross-attention lacks; use another attention.cross"

    def formula(self) -> str:
        return "z_i = y_i − (y_i · v_i) v_i / |v_i|^2"

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """Subtract the component along the value of the query's token."""
        queries = heads.shape[-2]
        own_values = values[..., -queries:, :]  # with cached keys, the queries are the last tokens
        direction = normalize(own_values, dim=-1)
        coordinate = (heads * direction).sum(-1, keepdim=True)
        return heads - coordinate * direction


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"exclusive": Exclusive}

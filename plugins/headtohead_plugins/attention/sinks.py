"""A trained score per head in the denominator of the softmax: a head may attend to nothing.

Source: OpenAI. "gpt-oss-120b & gpt-oss-20b Model Card", 2025, arXiv:2508.10925, section 2:
A_ij = exp(S_ij) / (exp(s_h) + Σ_j exp(S_ij)), as if a sink with score s_h and a value of 0 preceded the
keys. s_h starts at 0, the softmax with an added 1 of E. Miller ("Attention Is Off By One", 2023).
A row in which every key is masked has weights of 0 under every mask value.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from headtohead.plugin import Attention, HeadOptions, MaskPattern, hookimpl


class Sinks(Attention):
    """Split heads with weights whose sum is less than 1."""

    Options = HeadOptions
    weights = "positive"

    def build(self) -> None:
        self.sinks = self.parameter(self.context.geometry.heads, std=0.0)

    def formula(self) -> str:
        return "A = e^{S_{ij}} / (e^{s_h} + Σ_j e^{S_{ij}}), s_h: trained, per head"

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the softmax over the keys and the sink, without the weight of the sink."""
        sinks = self.sinks[:, None, :, None, None].to(scores.dtype).expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]

    def fast_path(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern) -> Tensor:
        """Return the outputs of the fused kernel for one more key, whose value is 0."""
        members, batch = q.shape[:2]
        q, k, v = (x.flatten(0, 1) for x in (q, pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))))
        shape = (members, 1 if mask is None else mask.shape[1], q.shape[1], q.shape[2], k.shape[2] - 1)
        scores = self.sinks.new_zeros(()) if mask is None else torch.where(mask, 0.0, -torch.inf)
        sinks = self.sinks[:, None, :, None, None].expand(*shape[:-1], 1)
        added = torch.cat([scores.to(sinks.dtype).expand(shape), sinks], dim=-1)
        rows = added.expand(-1, batch, -1, -1, -1).flatten(0, 1).to(q.dtype)
        heads: Tensor = scaled_dot_product_attention(q, k, v, attn_mask=rows, scale=self.context.geometry.scale)
        return heads.view(members, batch, *heads.shape[1:])


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"sinks": Sinks}

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

ADDED = 8
"""Coordinates that the fast path adds, so that the kernel's width stays a multiple of 8; all but the first are 0."""


class Sinks(Attention):
    """Split heads with a trained score per head in the denominator of the softmax."""

    phrase = "with attention sinks"
    Options = HeadOptions
    weights = "positive"

    def build(self) -> None:
        self.sinks = self.parameter(self.context.geometry.heads, std=0.0)

    def formula(self) -> str:
        return "A = e^{S_{ij}} / (e^{s_h} + Σ_j e^{S_{ij}}), s_h: trained, per head"

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the softmax over the keys and the sink, without the weight of the sink."""
        s_h = self.sinks[:, None, :, None, None].to(scores.dtype)
        sinks = s_h.expand(*scores.shape[:-1], 1)
        scores_and_sink = torch.cat([scores, sinks], dim=-1)
        weights = torch.softmax(scores_and_sink, dim=-1)
        return weights[..., :-1]

    def fast_path(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern
    ) -> Tensor:
        """Return the outputs of the fused kernel for one more key, along a coordinate that no other key has."""
        members, batch, _, _, width = q.shape
        scale = self.context.geometry.scale
        # The kernel multiplies it by the scale, and by the 1 in the key of the sink.
        coordinate = (self.sinks / scale).to(q.dtype)
        sinks = coordinate[:, None, :, None, None].expand(*q.shape[:-1], 1)
        q = torch.cat([q, sinks], dim=-1)
        q = pad(q, (0, ADDED - 1))
        k = pad(k, (0, ADDED, 0, 1))
        v = pad(v, (0, ADDED, 0, 1))
        k[..., -1, width] = 1.0
        kernel_mask = None
        if mask is not None:
            with_sink = pad(mask, (0, 1), value=True)
            expanded = with_sink.expand(members, batch, -1, -1, -1)
            kernel_mask = expanded.flatten(0, 1)
        q = q.flatten(0, 1)
        k = k.flatten(0, 1)
        v = v.flatten(0, 1)
        outputs: Tensor = scaled_dot_product_attention(q, k, v, attn_mask=kernel_mask, scale=scale)
        heads = outputs[..., :width]
        return heads.view(members, batch, *heads.shape[1:])


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"sinks": Sinks}

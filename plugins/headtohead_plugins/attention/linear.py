"""A product of feature maps instead of the softmax: linear in time, without a score matrix.

Paper: A. Katharopoulos et al. "Transformers are RNNs: Fast Autoregressive Transformers with Linear
Attention". ICML 2020, arXiv:2006.16236, sections 3.2 and 3.3, equations 4 to 9:
Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) over the keys that query i attends to, φ(x) = elu(x) + 1.
If all queries attend to the same keys, both sums are computed once. If each query attends to the
keys up to its own position, they are cumulative sums over blocks of ``BLOCK`` keys. Under any other
mask, the scores are computed. A masked key has weight 0 under every mask value.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from headtohead.plugin import Attention, Geometry, MaskPattern, ModelConfig, Options, hookimpl

BLOCK = 32
"""Keys of a block, within which a causal sum is computed by scores; about the width of a head."""

EPS = 1e-30
"""Smallest denominator, for rows without keys. φ is positive, so other rows are not affected."""


def feature(x: Tensor) -> Tensor:
    """Return φ(x), positive everywhere.

    >>> feature(torch.tensor([-20.0, 0.0, 2.0]))
    tensor([2.0612e-09, 1.0000e+00, 3.0000e+00])
    """
    return (
        x.clamp(max=0).exp() + x.relu()
    )  # elu(x) + 1 is 0 below -17 in float32, below -6 in bfloat16


class Linear(Attention):
    """Split heads with weights φ(q)·φ(k), divided by their sum."""

    map_note = "φ(q)·φ(k) over its sum, computed for the map only: training computes no such matrix"
    unsupported: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("bias", "content_bias", "score", "values"),
        "acts on the matrix of scores, which linear attention never computes",
    ) | {"rotate": "rotates queries and keys, and φ of rotated vectors is not relative"}

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads with unscaled products."""
        return replace(super().geometry(options, model), scale=1.0)

    def formula(self) -> str:
        return "A = S / Σ_j S, S = φ(Q) φ(K)^T where not masked, φ(x) = elu(x) + 1"

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        return feature(q) @ feature(k).transpose(-2, -1)

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Divide by the sum over unmasked keys."""
        unmasked = scores
        if mask is not None:
            unmasked = torch.where(mask, scores, 0.0)
        return unmasked / unmasked.sum(-1, keepdim=True).clamp(min=EPS)

    def fast_path(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern
    ) -> Tensor:
        """Return the outputs, without weights where the structure of the mask allows it."""
        q = feature(q)
        k = feature(k)
        v = pad(v, (0, 1), value=1.0)
        if mask is not None and pattern == "other":
            sums = torch.where(mask, q @ k.transpose(-2, -1), 0.0) @ v
            return sums[..., :-1] / sums[..., -1:].clamp(min=EPS)
        if mask is not None:
            k = k * mask.any(-2).unsqueeze(-1).to(k.dtype)
        if pattern == "prefix":
            sums = prefix_sums(q, k, v)
        else:
            sums = q @ (k.transpose(-2, -1) @ v)
        return sums[..., :-1] / sums[..., -1:].clamp(min=EPS)


def prefix_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return ``Σ_{j <= i} (q_i·k_j) v_j``, block by block."""
    time = q.shape[-2]
    blocks = -(-time // BLOCK)
    size = -(-time // blocks)
    q, k, v = (
        pad(x, (0, 0, 0, blocks * size - time)).unflatten(-2, (blocks, size)) for x in (q, k, v)
    )
    block_sums = k.transpose(-2, -1) @ v
    totals = block_sums.cumsum(-3, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
    before = pad(totals, (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    sums = (q @ k.transpose(-2, -1)).tril() @ v + q @ before
    return sums.flatten(-3, -2)[..., :time, :]


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"linear": Linear}

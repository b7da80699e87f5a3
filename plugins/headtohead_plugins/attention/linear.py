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
    # The sum elu(x) + 1 would be 0 below -17 in float32, and below -6 in bfloat16.
    below_zero = x.clamp(max=0).exp()
    above_zero = x.relu()
    return below_zero + above_zero


class Linear(Attention):
    """Split heads with weights φ(q)·φ(k), divided by their sum."""

    phrase = "linear attention"
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
        sums = unmasked.sum(-1, keepdim=True)
        return unmasked / sums.clamp(min=EPS)

    def fast_path(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern
    ) -> Tensor:
        """Return the outputs, without weights where the structure of the mask allows it."""
        q = feature(q)
        k = feature(k)
        # The sum over this coordinate, 1 in every value, is the denominator.
        v = pad(v, (0, 1), value=1.0)
        if mask is not None and pattern == "other":
            scores = q @ k.transpose(-2, -1)
            unmasked = torch.where(mask, scores, 0.0)
            return divide_by_last(unmasked @ v)
        if mask is not None:
            seen_by_a_query = mask.any(-2).unsqueeze(-1)
            k = k * seen_by_a_query.to(k.dtype)
        if pattern == "prefix":
            return divide_by_last(prefix_sums(q, k, v))
        memory = k.transpose(-2, -1) @ v
        return divide_by_last(q @ memory)


def divide_by_last(sums: Tensor) -> Tensor:
    """Return all coordinates but the last, divided by the last one."""
    numerators = sums[..., :-1]
    denominators = sums[..., -1:]
    return numerators / denominators.clamp(min=EPS)


def prefix_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return ``Σ_{j <= i} (q_i·k_j) v_j``, block by block."""
    time = q.shape[-2]
    blocks = -(-time // BLOCK)  # rounded up
    size = -(-time // blocks)
    q = in_blocks(q, blocks, size)
    k = in_blocks(k, blocks, size)
    v = in_blocks(v, blocks, size)
    block_sums = k.transpose(-2, -1) @ v
    exact = torch.promote_types(q.dtype, torch.float32)
    totals = block_sums.cumsum(-3, dtype=exact).to(q.dtype)
    earlier_blocks = pad(totals, (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    scores = q @ k.transpose(-2, -1)
    sums = scores.tril() @ v + q @ earlier_blocks
    return sums.flatten(-3, -2)[..., :time, :]


def in_blocks(x: Tensor, blocks: int, size: int) -> Tensor:
    """Return ``x [..., time, width]`` as ``[..., block, size, width]``, with zeros after the last token."""
    missing = blocks * size - x.shape[-2]
    padded = pad(x, (0, 0, 0, missing))
    divided: Tensor = padded.unflatten(-2, (blocks, size))
    return divided


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"linear": Linear}

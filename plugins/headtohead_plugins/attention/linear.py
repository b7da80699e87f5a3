"""A product of feature maps in the place of the softmax: linear in time, no score matrix.

Paper: A. Katharopoulos et al. "Transformers are RNNs: Fast Autoregressive Transformers with Linear
Attention". ICML 2020, arXiv:2006.16236, sections 3.2 and 3.3, equations 4 to 9:
Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) over the keys that query i may see, φ(x) = elu(x) + 1.
Where all queries see the same keys, both sums are made once; where each sees those up to its own
place, they are sums over blocks of ``BLOCK`` keys, added up along time; under any other mask the
scores are computed after all. A masked key weighs 0 under every fill.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import elu, pad

from headtohead import Attention, Cost, Geometry, MaskPattern, ModelConfig, Options, hookimpl

BLOCK = 32
"""Keys within which a causal sum is computed by scores: as many as a head is wide, or so."""

LEAST = 1e-30
"""What a row without any key is divided by; φ is positive, so every other row has more."""


def feature(x: Tensor) -> Tensor:
    """Return φ(x), positive everywhere.

    >>> feature(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3679, 1.0000, 3.0000])
    """
    return elu(x) + 1


class Linear(Attention):
    """Split heads whose weights are φ(q)·φ(k), divided by their sum."""

    cost = Cost(parameters="4*d**2", biases="4*d", flops="8*n*d**2 + 4*n*d**2/h + 4*n*d")
    map_note = "φ(q)·φ(k) over its sum, computed for the map alone: training makes no such matrix"
    unsupported: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("bias", "score", "values"), "acts on the matrix of scores, which linear attention never makes"
    ) | {"rotate": "turns queries and keys, and φ of what was turned is no longer relative"}

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads, products unscaled."""
        return replace(super().geometry(options, model), scale=1.0)

    def formula(self) -> str:
        """Return a weight."""
        return "A = S / Σ_j S, S = φ(Q) φ(K)^T where seen, φ(x) = elu(x) + 1"

    def scores(self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return φ(q)·φ(k)."""
        return feature(q) @ feature(k).transpose(-2, -1)

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Divide by the sum over what is kept."""
        kept = scores if mask is None else torch.where(mask, scores, 0.0)
        return kept / kept.sum(-1, keepdim=True).clamp(min=LEAST)

    def fast_path(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern) -> Tensor:
        """Return the same without the weights, where the mask allows."""
        q, k, v = feature(q), feature(k), pad(v, (0, 1), value=1.0)
        if mask is not None and pattern == "other":
            read = torch.where(mask, q @ k.transpose(-2, -1), 0.0) @ v
        else:
            k = k if mask is None else k * mask.any(-2).unsqueeze(-1).to(k.dtype)
            read = prefix_sums(q, k, v) if pattern == "prefix" else q @ (k.transpose(-2, -1) @ v)
        return read[..., :-1] / read[..., -1:].clamp(min=LEAST)


def prefix_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return ``Σ_{j <= i} (q_i·k_j) v_j``, block by block."""
    time = q.shape[-2]
    blocks = -(-time // BLOCK)
    size = -(-time // blocks)
    q, k, v = (pad(x, (0, 0, 0, blocks * size - time)).unflatten(-2, (blocks, size)) for x in (q, k, v))
    own = k.transpose(-2, -1) @ v
    before = pad(own.cumsum(-3), (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    read = (q @ k.transpose(-2, -1)).tril() @ v + q @ before
    return read.flatten(-3, -2)[..., :time, :]


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``linear``."""
    return {"linear": Linear}

"""A product of feature maps in the place of the softmax: linear in time, no score matrix.

Paper: A. Katharopoulos et al. "Transformers are RNNs: Fast Autoregressive Transformers with Linear
Attention". ICML 2020, arXiv:2006.16236, sections 3.2 and 3.3, equations 4 to 9:
Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) over the keys that query i may see, φ(x) = elu(x) + 1.
Where all queries see the same keys, both sums are made once; where each sees those up to its own
place, they are sums over blocks of ``BLOCK`` keys, added up along time; under any other mask the
scores are computed after all. A masked key weighs 0 under every fill.
"""

import weakref
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import elu, pad

from headtohead import (
    Attention,
    Geometry,
    ModelConfig,
    Options,
    Positional,
    hookimpl,
)

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

    map_note = "φ(q)·φ(k) over its sum, computed for the map alone: training makes no such matrix"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads, products unscaled."""
        return replace(super().geometry(options, model), scale=1.0)

    @classmethod
    def refusal(cls, encoding: type[Positional], acts: frozenset[str]) -> str | None:
        """Refuse what needs a score matrix, and what turns queries and keys before φ."""
        if acts & {"bias", "score", "values"}:
            return (
                f"{encoding.known_as} acts on the matrix of scores, which linear attention never "
                "makes; use an encoding that is added to embeddings, or 'none'"
            )
        if "rotate" in acts:
            return (
                f"{encoding.known_as} turns queries and keys, whose products linear attention does "
                "not take: φ of what was turned is no longer relative; use an encoding that is "
                "added to embeddings, or 'none'"
            )
        return None

    def formula(self) -> str:
        """Return a weight."""
        return "A = S / Σ_j S, S = φ(Q) φ(K)^T where seen, φ(x) = elu(x) + 1"

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Return φ(q)·φ(k)."""
        return feature(q) @ feature(k).transpose(-2, -1)

    def normalise(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        """Divide by the sum over what is kept."""
        kept = scores if keep is None else torch.where(keep, scores, 0.0)
        return kept / kept.sum(-1, keepdim=True).clamp(min=LEAST)

    def shortcut(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        """Return the same without the weights, where the mask allows."""
        q, k = feature(q), feature(k)
        v = pad(v, (0, 1), value=1.0)
        kind = _kind(keep, self.context.role)
        if keep is not None and kind != "other":
            k = k * keep.any(-2).unsqueeze(-1).to(k.dtype)
        if kind == "same":
            read = q @ (k.transpose(-2, -1) @ v)
        elif kind == "prefix":
            read = _prefix_sums(q, k, v)
        else:
            assert keep is not None
            read = torch.where(keep, q @ k.transpose(-2, -1), 0.0) @ v
        return read[..., :-1] / read[..., -1:].clamp(min=LEAST)


def _prefix_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return ``Σ_{j <= i} (q_i·k_j) v_j``, block by block."""
    time = q.shape[-2]
    blocks = -(-time // BLOCK)
    size = -(-time // blocks)
    q, k, v = (
        pad(x, (0, 0, 0, blocks * size - time)).unflatten(-2, (blocks, size)) for x in (q, k, v)
    )
    own = k.transpose(-2, -1) @ v
    before = pad(own.cumsum(-3), (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    read = (q @ k.transpose(-2, -1)).tril() @ v + q @ before
    return read.flatten(-3, -2)[..., :time, :]


_kinds: dict[int, tuple[weakref.ref[Tensor], str]] = {}
"""Of the masks of this pass: all layers of a role are given the same tensor."""


def _kind(keep: Tensor | None, role: str) -> str:
    """Return ``same``, ``prefix`` or ``other``; shapes without numbers are taken for the usual."""
    if keep is None or keep.shape[-2] == 1:
        return "same"
    if keep.is_meta:
        return "prefix" if role == "decoder" else "same"
    known = _kinds.get(id(keep))
    if known is None or known[0]() is not keep:
        for old in [place for place, (mask, _) in _kinds.items() if mask() is None]:
            del _kinds[old]
        known = _kinds[id(keep)] = (weakref.ref(keep), _look(keep))
    return known[1]


def _look(keep: Tensor) -> str:
    live = keep.any(-2, keepdim=True)
    if bool((keep == live).all()):
        return "same"
    square = keep.shape[-2] == keep.shape[-1]
    return "prefix" if square and bool((keep == live.expand_as(keep).tril()).all()) else "other"


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``linear``."""
    return {"linear": Linear}

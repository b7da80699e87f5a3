"""Normalised queries and keys: scores are cosines times a trained scale per head.

Paper: A. Henry et al. "Query-Key Normalization for Transformers". Findings of EMNLP 2020,
arXiv:2010.04245, section 3: softmax(g · q̂ k̂ᵀ), where g is trained and starts at log2(L² - L), with L
the length of a long sentence. With ``norm: rms``: M. Dehghani et al. "Scaling Vision Transformers to
22 Billion Parameters". ICML 2023, arXiv:2302.05442, section 2: softmax(norm(q) norm(k)ᵀ / √d_k).
Departs from the papers: g is per head and layer; the first paper has g per layer, the second a gain
per coordinate and LayerNorm, which also subtracts the mean. L is an option and not measured.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from headtohead.plugin import Attention, Geometry, ModelConfig, hookimpl
from headtohead.plugin import Options as BaseOptions


class QkNormOptions(BaseOptions):
    """Norm, and initial value of the scale."""

    norm: Literal["unit", "rms"] = Field(
        "unit",
        description="unit: length 1, scores not scaled further; rms: root mean square 1, scores over √d_k",
    )
    length: int = Field(
        16,
        ge=3,
        le=100_000,
        description="L: with norm unit, g starts at log2(L² - L); with rms, at 1",
    )


def unit(x: Tensor) -> Tensor:
    """Return ``x`` with vectors of length 1 along the last axis.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    exact = normalize(x.to(dtype), dim=-1)
    return exact.to(x.dtype)


class QkNorm(Attention):
    """Split heads with scores that depend on the directions of queries and keys only."""

    phrase = "with QK norm[ of type {norm}][ for length {length}]"
    Options = QkNormOptions
    options: QkNormOptions

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads, with unscaled scores for unit vectors."""
        assert isinstance(options, QkNormOptions)
        geometry = super().geometry(options, model)
        if options.norm == "rms":
            return geometry
        return replace(geometry, scale=1.0)

    def build(self) -> None:
        self.is_unit = self.options.norm == "unit"
        length = self.options.length
        start = 1.0
        if self.is_unit:
            start = math.log2(length**2 - length)
        self.gain = self.parameter(self.context.geometry.heads, std=0.0, mean=start)

    def formula(self) -> str:
        if self.is_unit:
            return "x / |x| for x = q, k; queries times g_h"
        return "x / rms(x) for x = q, k; queries times g_h"

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Normalise queries and keys; g multiplies the queries."""
        length = 1.0
        if not self.is_unit:
            length = q.shape[-1] ** 0.5  # of a vector with root mean square 1
        normalised_q = unit(q) * length
        scaled_q = normalised_q * self.gain[:, None, :, None, None]
        normalised_k = unit(k) * length
        return scaled_q, normalised_k


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"qk-norm": QkNorm}
